"""Networks: built by name (`networks`), made fast on CPUs (`depthwise`), saved at the end (`export`).

May import `runtime`.
"""

from .networks import MODELS, build

__all__ = ["MODELS", "build"]
