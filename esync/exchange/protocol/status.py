"""The status of a server, as one worker reads it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from . import wire
from .round_state import OF_RUN, RoundState


class Slot(NamedTuple):
    """What a server knows of one slot.

    Attributes:
        nonce: of the process that holds it.
        member: whether it takes part in the rounds.
        acknowledged: number of its last exchange that was dealt with.
        committed: whether a later one waits for the others.
        used: how that which was dealt with was used, as in `Status.use`; 0: not at all.
    """

    nonce: int
    member: bool
    acknowledged: int
    committed: bool
    used: int


@dataclass(slots=True)  # not frozen, which takes three times as long to make
class Status:
    """One server's status, as one worker reads it.

    See `wire.status_type` for the fields that are not explained here.

    Attributes:
        failure: why the run was aborted; "" while it was not.
        notice: a warning to all workers at the start.
        acknowledged: number of this worker's last exchange that was dealt with; `use`, `wait` and
            `answer` are about it.
        nonce: of the process that holds this worker's slot; `arrivals` counts the processes that
            have held it so far.
        committed: whether a later exchange of this worker waits for the others.
        members: ranks that take part in the rounds.
        excluded: ranks that are there, but that rounds do not wait for, as their leader has asked.
        aside: likewise, as each of them has said itself.
        resting: those of them that sent nothing either when the newest round ended.
        needed: ranks whose parts a checkpoint of now needs.
        late: ranks whose commits the round under way waits for.
        server: number of the server.
        source: what it was made from: a record, or the state of a server that may have gone on.
    """

    round: int
    version: int
    step: int
    samples: int
    samples_together: int
    rounds_together: int
    fastest: float
    scalars: Mapping[str, float]
    elapsed: float
    exchanged_at: float
    job: int
    resume_at: int
    whole: int
    finished: bool
    synchronous: bool
    failure: str
    notice: str
    acknowledged: int
    use: int
    wait: float
    answer: int
    nonce: int
    arrivals: int
    committed: bool
    members: tuple[int, ...]
    excluded: tuple[int, ...]
    needed: tuple[int, ...]
    late: tuple[int, ...] = ()
    server: int = 0
    source: Any = field(default=None, compare=False, repr=False)
    aside: tuple[int, ...] = ()
    resting: tuple[int, ...] = ()

    def slot(self, rank: int) -> Slot:
        """Return what is known of a slot."""
        source = self.source
        if isinstance(source, RoundState):
            committed = rank in source.pending
            fields = source.nonce, source.member, source.acknowledged, source.used
        else:
            committed = bool(source["committed"][rank])
            fields = source["nonce"], source["member"], source["acknowledged"], source["used"]
        nonce, member, acknowledged, used = (int(each[rank]) for each in fields)
        return Slot(nonce, bool(member), acknowledged, committed, used)

    @classmethod
    def of_record(cls, record: Any, rank: int, server: int = 0) -> "Status":
        """Return the status in a record (`wire.status_type`) for the worker of that rank."""
        member, excluded, committed = record["member"] != 0, record["excluded"] != 0, record["committed"] != 0
        aside = record["aside"] & 1 != 0
        text = bytes(record["text"]).decode()
        aborted = bool(record["aborted"])
        stop_at = int(record["stop_at"])
        of_run = {name: record[name].item() for name in OF_RUN}
        of_run["synchronous"] = bool(of_run["synchronous"])
        return cls(
            **of_run,
            scalars=wire.scalars_of(record),
            finished=0 <= stop_at <= of_run["round"],
            failure=text if aborted else "",
            notice="" if aborted else text,
            **{name: record[name][rank].item() for name in ("acknowledged", "wait", "answer", "nonce", "arrivals")},
            use=int(record["used"][rank]),
            committed=bool(committed[rank]),
            members=_ranks(member),
            excluded=_ranks(excluded),
            needed=_ranks(record["needed"] != 0),
            late=_ranks(member & ~excluded & ~aside & ~committed),
            server=server,
            source=record,
            aside=_ranks(aside),
            resting=_ranks(record["aside"] & 2 != 0),
        )

    @classmethod
    def of_round_state(cls, round_state: RoundState, rank: int, everyone: tuple[int, ...], server: int = 0) -> "Status":
        """Return the present status of a server's round state.

        `everyone` is the tuple of all ranks.
        """
        complete = np.count_nonzero(round_state.member) == round_state.slots
        return cls(
            round=round_state.round,
            version=round_state.version,
            step=round_state.step,
            samples=round_state.samples,
            samples_together=round_state.samples_together,
            rounds_together=round_state.rounds_together,
            fastest=round_state.fastest,
            scalars=round_state.added_scalars,
            elapsed=round_state.elapsed,
            exchanged_at=round_state.exchanged_at,
            job=round_state.job,
            resume_at=round_state.resume_at,
            whole=0,
            finished=round_state.finished,
            synchronous=round_state.synchronous,
            failure=round_state.failure,
            notice=round_state.notice,
            acknowledged=round_state.acknowledged.item(rank),
            use=round_state.used.item(rank),
            wait=round_state.wait.item(rank),
            answer=round_state.answer.item(rank),
            nonce=round_state.nonce.item(rank),
            arrivals=round_state.arrivals.item(rank),
            committed=rank in round_state.pending,
            members=everyone if complete else _ranks(round_state.member),
            excluded=_ranks(round_state.member & round_state.excluded)
            if np.count_nonzero(round_state.excluded)
            else (),
            needed=(),  # like `whole`, for checkpoints only, which users of this method do not write
            server=server,
            source=round_state,
            aside=_ranks(round_state.member & round_state.aside) if np.count_nonzero(round_state.aside) else (),
            resting=_ranks(round_state.resting) if np.count_nonzero(round_state.resting) else (),
        )


def awaited(status: Status) -> str:
    """Return the names of the workers whose commits a round waits for, for the user."""
    late = ", ".join(map(str, status.late))
    return f"the commit of worker {late}" if late else "the commit of all workers to be used by the server"


def _ranks(chosen: np.ndarray) -> tuple[int, ...]:
    return tuple(np.flatnonzero(chosen).tolist())
