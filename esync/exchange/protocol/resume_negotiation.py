"""The choice of the checkpoint that a job resumes from, and the tracking of complete checkpoints.

A checkpoint is *whole*, or complete, when all parts that it needs are on disk. In synchronous modes
these are the parts of all workers that its round waited for, in asynchronous modes the part of rank
0 alone, which contains the model.

While a job runs, every commit carries the round of the part that its worker has written last.
`WholeCheckpointTracker` derives the newest whole checkpoint, the status publishes it, and workers
delete only older parts. When a job starts, every handshake lists the parts of its worker, and
`choose` returns the newest whole checkpoint. A resumed job writes parts under a job number of its
own, so parts of different jobs are never mixed.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...runtime.errors import enumeration

#: Number of parts remembered for each worker, and of changes in whose parts checkpoints need.
MEMORY = 16


@dataclass(frozen=True)
class Offer:
    """One complete part of a checkpoint.

    Attributes:
        round: after which it was written.
        job: number of the job that wrote it.
        complete_before: whether an earlier checkpoint of the run was known to be whole by then.
        needs: ranks whose parts the checkpoint needs, in parts of rank 0.
    """

    round: int
    job: int
    complete_before: bool = False
    needs: Sequence[int] = ()


@dataclass(frozen=True)
class Offers:
    """The checkpoints that one worker offers, in its handshake.

    Attributes:
        resume: whether the worker was started with --resume.
        parts: the parts on its disk.
        problem: why the job cannot start; "" if it can.
    """

    resume: bool = False
    parts: Sequence[Offer] = ()
    problem: str = ""

    @classmethod
    def decode(cls, fields: Mapping[str, Any]) -> "Offers":
        """Return the offers from the decoded JSON of their `dataclasses.asdict`.

        Raises:
            TypeError, KeyError: the fields are wrong.
        """
        parts = [Offer(**{**part, "needs": tuple(part["needs"])}) for part in fields["parts"]]
        return cls(bool(fields["resume"]), tuple(parts), str(fields["problem"]))


@dataclass
class RunProgress:
    """The progress of a run.

    See `round_state.RoundState` for the attributes. `synchronous` is None if it never changes.
    `scalars` are the combined ones of the newest round, `resting` the ranks of those workers.
    """

    round: int
    version: int
    samples: int
    elapsed: float
    step: int = 0
    synchronous: bool | None = None
    samples_together: int = 0
    scalars: Mapping[str, float] = field(default_factory=dict)
    resting: Sequence[int] = ()

    def __post_init__(self) -> None:
        self.resting = tuple(self.resting)  # a list, as JSON has it


@dataclass
class ResumeState:
    """The state that one worker restores from a checkpoint.

    Attributes:
        exchanges: number of exchanges of this worker; an estimate if its part is missing.
        progress: of the run, from rank 0; None from other ranks.
        rule_state: of the servers, from rank 0: flat vectors of the weights' size; None for a
            vector that did not exist yet.
        weights: the servers' exact weights, from rank 0, if the workers' were lossy; else None.
    """

    exchanges: int
    progress: RunProgress | None = None
    rule_state: list[Any] = field(default_factory=list)
    weights: Any = None


class WholeCheckpointTracker:
    """Determines which checkpoints of a running job are whole, from the commits that were used.

    A part counts only if a commit of its worker has named it: a worker that has seen only the end
    of a later round has not written the part of an earlier one.

    Attributes:
        round: of the newest checkpoint known to be whole; 0: none.
    """

    def __init__(self) -> None:
        self.round = 0
        self._parts: dict[int, deque[int]] = {}  # rank → rounds of the newest parts of its present process
        # (round, ranks): from that round on, checkpoints need the parts of these ranks.
        self._needs: deque[tuple[int, Sequence[int]]] = deque(maxlen=MEMORY)

    @property
    def needed(self) -> Sequence[int] | None:
        """Ranks whose parts a checkpoint of now needs; None before the first commit is used."""
        return self._needs[-1][1] if self._needs else None

    def joined(self, rank: int) -> None:
        """Forget the parts of a slot that another process has taken."""
        self._parts.pop(rank, None)

    def used(self, parts: Mapping[int, int], round_: int, needed: Sequence[int] | None) -> None:
        """Update the newest whole checkpoint after commits were used.

        Args:
            parts: rank → round of its newest part, from its commit.
            round_: number of rounds completed with these commits.
            needed: ranks whose parts a checkpoint of this round needs; None: the commit was used at
                once.
        """
        for rank, part in parts.items():
            newest = self._parts.setdefault(rank, deque(maxlen=MEMORY))
            if part not in newest:
                newest.append(part)
        for written in sorted(self._parts.get(0, ()), reverse=True):
            if written > self.round and all(written in self._parts.get(rank, ()) for rank in self._needed(written)):
                self.round = written
                break
        # A commit used at once does not always increase the number of rounds, so `round_` may
        # still be that of the last round that was used together.
        since, needs = (round_ + 1, (0,)) if needed is None else (round_, needed)
        if not self._needs or self._needs[-1][1] != needs:
            self._needs.append((since, needs))

    def _needed(self, round_: int) -> Sequence[int]:
        """Return the ranks whose parts a checkpoint of that round needs; (-1,) if not known any more."""
        return next((needed for since, needed in reversed(self._needs) if since <= round_), (-1,))


def choose(offers: Mapping[int, Offers]) -> int:
    """Choose the round to resume from; −1: the run starts from scratch.

    Args:
        offers: rank → offers of that worker, for all ranks.

    Raises:
        ValueError: the job cannot start.
    """
    ranks_of: dict[str, list[int]] = {}
    for rank, offer in sorted(offers.items()):
        if offer.problem:
            ranks_of.setdefault(offer.problem, []).append(rank)
    if ranks_of:
        raise ValueError("; ".join(f"worker {enumeration(ranks, 5)}: {problem}" for problem, ranks in ranks_of.items()))
    resuming = [rank for rank, offer in sorted(offers.items()) if offer.resume]
    if not resuming:
        return -1
    if len(resuming) < len(offers):
        other = min(set(offers) - set(resuming))
        raise ValueError(f"worker {resuming[0]} was started with --resume and worker {other} without it")
    for model in sorted(offers[0].parts, key=lambda part: part.round, reverse=True):
        if all(_has(offers[rank], model) for rank in model.needs):
            return model.round
    if not any(part.complete_before for offer in offers.values() for part in offer.parts):
        return -1  # the job ended before any checkpoint was whole
    held = "; ".join(f"worker {rank} has {_rounds(offer)}" for rank, offer in sorted(offers.items()))
    raise ValueError(
        f"--resume: no checkpoint is complete: {held}; the checkpoint directory should be one that all "
        "workers see, or every worker should have its slot and its own directory back"
    )


def _has(offers: Offers, model: Offer) -> bool:
    return any((part.round, part.job) == (model.round, model.job) for part in offers.parts)


def _rounds(offers: Offers) -> str:
    rounds = sorted({part.round for part in offers.parts})
    return f"those of round {', '.join(map(str, rounds))}" if rounds else "none"
