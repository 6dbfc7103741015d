"""What all tests have in common."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """MXNet 1.9.1 warns about its own use of old NumPy and SciPy names: nothing that a test could show."""
    config.addinivalue_line("filterwarnings", "ignore::DeprecationWarning:(mxnet|gluoncv).*")
