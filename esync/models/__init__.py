"""The networks by their names on the command line, and the forms in which a trained one is saved.

May import `runtime`.
"""

from .networks import MODELS, build

__all__ = ["MODELS", "build"]
