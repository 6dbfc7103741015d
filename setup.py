"""Build this package; everything about it stands in pyproject.toml."""

from setuptools import setup

setup()
