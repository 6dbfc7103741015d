"""Checkpoints: what a run needs to go on after everything was killed, written so that a kill never spoils the last."""

from .checkpoints import Checkpoints, Tracked
from .errors import CheckpointError

__all__ = ["CheckpointError", "Checkpoints", "Tracked"]
