"""Checkpoints of an earlier run, which a run without --resume refuses: looked for without MXNet, as launch does it."""

import re
from pathlib import Path

from ..runtime.errors import ExpectedError

#: A worker's part of a checkpoint, as `checkpoint.store` names it.
PART = re.compile(r"round-(?P<round>\d+)/worker-(?P<rank>\d+)\.json", re.ASCII)


class EarlierCheckpointsError(ExpectedError):
    """A directory holds checkpoints that a run would have to go on from, or to delete."""


def refusal(directory: Path, round_: int) -> str:
    """Return what to do about the checkpoints of an earlier run, the newest of which is of that round."""
    return (
        f"{directory} holds checkpoints of an earlier run (round {round_}): go on with --resume, delete them with "
        "--overwrite, or choose another directory"
    )


def refuse_earlier(directory: Path, workers: int) -> None:
    """Refuse to begin where one of so many workers would refuse it, before anything is touched.

    Raises:
        EarlierCheckpointsError: one of them has written a part of a checkpoint there.
    """
    parts = (PART.fullmatch(f"{path.parent.name}/{path.name}") for path in directory.glob("round-*/worker-*.json"))
    rounds = [int(part["round"]) for part in parts if part is not None and int(part["rank"]) < workers]
    if rounds:
        raise EarlierCheckpointsError(refusal(directory, max(rounds)))
