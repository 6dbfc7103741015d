"""Which checkpoint the workers of a job go on from: a pure decision over what each of them says it holds.

Every worker offers the rounds that it has a whole part of, in its greeting. Rank 0's parts hold the model, so the
choice is among them; each says whose other parts it needs: in synchronous modes those of all members of that round, in
asynchronous ones nobody's. A job that went on from a checkpoint writes parts under a number of its own, so that parts
of two lives of one run are never mixed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Offer:
    """One whole part of a checkpoint.

    Attributes:
        round: when it was written.
        job: number of the job that wrote it.
        ordinal: how many checkpoints the run had had by then, this one included.
        needs: of rank 0, the ranks without whose parts this checkpoint is of no use.
    """

    round: int
    job: int
    ordinal: int = 1
    needs: Sequence[int] = ()


@dataclass(frozen=True)
class Offers:
    """What one worker says.

    Attributes:
        resume: whether it has been told to go on from a checkpoint.
        parts: what it holds.
        problem: why the job cannot begin as it is; "" where it can.
    """

    resume: bool = False
    parts: Sequence[Offer] = ()
    problem: str = ""

    @classmethod
    def decode(cls, fields: Mapping[str, Any]) -> "Offers":
        """Read what `dataclasses.asdict` and JSON have made of it; TypeError or KeyError where it is something else."""
        parts = [Offer(**{**part, "needs": tuple(part["needs"])}) for part in fields["parts"]]
        return cls(bool(fields["resume"]), tuple(parts), str(fields["problem"]))


@dataclass
class Books:
    """How far a run has come; see `ledger.Ledger`.

    Attributes:
        round: rounds completed.
        version: commits that have gone into the weights.
        samples: of all workers.
        elapsed: seconds.
        step: times that the weights have changed.
        synchronous: whether the next commits should be used together; None where that never changes.
        samples_together: the samples whose commits were used together, as rounds; None in checkpoints that do not tell.
    """

    round: int
    version: int
    samples: int
    elapsed: float
    step: int = 0
    synchronous: bool | None = None
    samples_together: int | None = None


@dataclass
class Progress:
    """What one worker brings back from a checkpoint.

    Attributes:
        exchanges: of this worker that were used.
        books: of the run, from rank 0; None from the others.
        state: what the rule remembers, from rank 0: one flat vector each, as many values as there are weights; None
            where the rule had not begun to remember it.
        weights: those that the servers' rule worked on, from rank 0, where the workers had other ones; else None.
    """

    exchanges: int
    books: Books | None = None
    state: list[Any] = field(default_factory=list)
    weights: Any = None


def choose(offers: Mapping[int, Offers]) -> int:
    """The round to go on from; −1: the run begins from the beginning.

    Args:
        offers: rank → what that worker says; all ranks.

    Raises:
        ValueError: the job should not begin; the message says why.
    """
    problems = [f"worker {rank}: {each.problem}" for rank, each in sorted(offers.items()) if each.problem]
    if problems:
        raise ValueError("; ".join(problems))
    told = [rank for rank, each in sorted(offers.items()) if each.resume]
    if not told:
        return -1
    if len(told) < len(offers):
        other = min(set(offers) - set(told))
        raise ValueError(f"worker {told[0]} was started with --resume and worker {other} without it")
    for model in sorted(offers[0].parts, key=lambda part: part.round, reverse=True):
        if all(_has(offers[rank], model) for rank in model.needs):
            return model.round
    if all(part.ordinal == 1 for each in offers.values() for part in each.parts):
        return -1  # the job ended while its first checkpoint was being written
    held = "; ".join(f"worker {rank} has {_rounds(each)}" for rank, each in sorted(offers.items()))
    raise ValueError(
        f"--resume: no checkpoint is there in all its parts: {held}; the checkpoint directory should be one that all "
        "workers see, or every worker should have its slot and its own directory back"
    )


def _has(offers: Offers, model: Offer) -> bool:
    return any((part.round, part.job) == (model.round, model.job) for part in offers.parts)


def _rounds(offers: Offers) -> str:
    rounds = sorted({part.round for part in offers.parts})
    return f"those of round {', '.join(map(str, rounds))}" if rounds else "none"
