"""The version of this package, which all processes of a job must have in common."""

__version__ = "0.1.0"
