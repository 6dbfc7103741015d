"""The choice of the checkpoint that a job goes on from, and of the one known to be whole.

A checkpoint is whole when rank 0's part, which holds the model, is on its disk, and so are the
other parts that it needs: in synchronous modes those of all workers that took part in that round,
in asynchronous ones no others.

While a job runs, every commit says which part its worker has written last. `WholeCheckpointTracker`
finds out from that which checkpoint is whole, the status tells all workers, and they delete only
what is older. When a job begins, every handshake says which parts its worker has, and `choose`
takes the newest checkpoint that is whole. A job that has gone on from a checkpoint writes parts
under a number of its own, so that parts of two lives of one run are never mixed.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: Number of changes of membership that are remembered, to know whose parts an earlier checkpoint
#: needs; and number of parts of each worker.
MEMORY = 16


@dataclass(frozen=True)
class Offer:
    """One whole part of a checkpoint.

    Attributes:
        round: after which it was written.
        job: number of the job that wrote it.
        whole_before: whether a checkpoint of the run was known to be whole by then.
        needs: of a part of rank 0, the ranks whose parts its checkpoint needs.
    """

    round: int
    job: int
    whole_before: bool = False
    needs: Sequence[int] = ()


@dataclass(frozen=True)
class Offers:
    """The checkpoints that one worker offers, in its handshake.

    Attributes:
        resume: whether it was started with --resume.
        parts: the parts that it holds.
        problem: why the job cannot begin as it is; "" where it can.
    """

    resume: bool = False
    parts: Sequence[Offer] = ()
    problem: str = ""

    @classmethod
    def decode(cls, fields: Mapping[str, Any]) -> "Offers":
        """Return the offers from decoded JSON of `dataclasses.asdict`.

        Raises:
            TypeError, KeyError: it is something else.
        """
        parts = [Offer(**{**part, "needs": tuple(part["needs"])}) for part in fields["parts"]]
        return cls(bool(fields["resume"]), tuple(parts), str(fields["problem"]))


@dataclass
class RunProgress:
    """The progress of a run; see `round_state.RoundState`.

    Attributes:
        round: rounds completed.
        version: commits that have gone into the weights.
        samples: of all workers.
        elapsed: seconds.
        step: times that the weights have changed.
        synchronous: whether the next commits should be used together; None where that never
            changes.
        samples_together: the samples whose commits were used together, as rounds.
    """

    round: int
    version: int
    samples: int
    elapsed: float
    step: int = 0
    synchronous: bool | None = None
    samples_together: int = 0


@dataclass
class ResumeState:
    """The state that one worker brings back from a checkpoint.

    Attributes:
        exchanges: of this worker that were used; where no part tells, about as many as everybody's.
        progress: of the run, from rank 0; None from the others.
        rule_state: of the servers, from rank 0: flat vectors as long as the weights; None for a
            vector that the rule had not begun to remember.
        weights: those that the servers' rule worked on, from rank 0, where the workers had other
            ones; else None.
    """

    exchanges: int
    progress: RunProgress | None = None
    rule_state: list[Any] = field(default_factory=list)
    weights: Any = None


class WholeCheckpointTracker:
    """Finds out which checkpoints of a running job are whole, from used commits.

    A worker has those parts that its commits have told, and no others: one that has seen the end of
    a later round only has written no part of the earlier one.

    Attributes:
        round: of the newest checkpoint that is known to be whole; 0: none.
    """

    def __init__(self) -> None:
        self.round = 0
        self._parts: dict[int, deque[int]] = {}  # rank → rounds of the newest parts of its present holder
        # From which round on a checkpoint needs whose parts; the oldest are forgotten.
        self._needs: deque[tuple[int, Sequence[int]]] = deque(maxlen=MEMORY)

    @property
    def needed(self) -> Sequence[int] | None:
        """Ranks whose parts a checkpoint of now needs; None before any commit has been used."""
        return self._needs[-1][1] if self._needs else None

    def joined(self, rank: int) -> None:
        """Note that another process has taken a slot. Its commits say which parts it has."""
        self._parts.pop(rank, None)

    def used(self, parts: Mapping[int, int], round_: int, together: bool) -> None:
        """Note that commits have been used.

        Args:
            parts: rank → round of the newest part that its worker had written, as the commit says.
            round_: rounds that are over with these commits.
            together: whether they were used together, as a round; else there is one.
        """
        for rank, part in parts.items():
            seen = self._parts.setdefault(rank, deque(maxlen=MEMORY))
            if part not in seen:
                seen.append(part)
        for written in sorted(self._parts.get(0, ()), reverse=True):
            if written > self.round and all(written in self._parts.get(rank, ()) for rank in self._needed(written)):
                self.round = written
                break
        # Commits that are used at once raise the number of rounds only when there have been as many
        # as workers: `round_` may still be the number of a round.
        since, needed = (round_, tuple(parts)) if together else (round_ + 1, (0,))
        if not self._needs or self._needs[-1][1] != needed:
            self._needs.append((since, needed))

    def _needed(self, round_: int) -> Sequence[int]:
        """Return the ranks whose parts a checkpoint of that round needs.

        If that is forgotten, return -1, the rank of no worker.
        """
        return next((needed for since, needed in reversed(self._needs) if since <= round_), (-1,))


def choose(offers: Mapping[int, Offers]) -> int:
    """Return the round to go on from; −1: the run begins from the beginning.

    Args:
        offers: rank → the offers of that worker; all ranks.

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
    if not any(part.whole_before for offer in offers.values() for part in offer.parts):
        return -1  # the job ended before any checkpoint was whole
    held = "; ".join(f"worker {rank} has {_rounds(each)}" for rank, each in sorted(offers.items()))
    raise ValueError(
        f"--resume: no checkpoint is complete: {held}; the checkpoint directory should be one that all "
        "workers see, or every worker should have its slot and its own directory back"
    )


def _has(offers: Offers, model: Offer) -> bool:
    return any((part.round, part.job) == (model.round, model.job) for part in offers.parts)


def _rounds(offers: Offers) -> str:
    rounds = sorted({part.round for part in offers.parts})
    return f"those of round {', '.join(map(str, rounds))}" if rounds else "none"
