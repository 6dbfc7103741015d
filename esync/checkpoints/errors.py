"""What can be wrong with checkpoints."""

from ..runtime.errors import ExpectedError


class CheckpointError(ExpectedError):
    """A checkpoint cannot be written, read, or used here; the message names it and says why."""
