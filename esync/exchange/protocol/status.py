"""The status of a server: the record that it publishes, and what one worker reads in it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from . import wire
from .round_state import RoundState

#: Fields of the record that are attributes of the round state: of the run, then those of each slot.
OF_RUN = (
    "round", "version", "step", "samples", "samples_together", "rounds_together", "fastest", "elapsed", "exchanged_at",
    "job", "resume_at", "whole", "synchronous",
)  # fmt: skip
OF_SLOT = ("acknowledged", "wait", "answer", "nonce", "arrivals")
_COPIED = (*OF_RUN, *OF_SLOT, "used", "member")


def status_record(round_state: RoundState) -> np.ndarray:
    """Return the record that the workers pull (wire.status_type)."""
    record = np.zeros((), wire.status_type(round_state.slots, round_state.added))
    for name in _COPIED:
        record[name] = getattr(round_state, name)
    record["stop_at"] = -1 if round_state.stop_at is None else round_state.stop_at
    record["aborted"] = bool(round_state.failure)
    record["text"] = wire.encode_text(round_state.failure or round_state.notice)
    record["excluded"] = round_state.member & round_state.excluded
    record["aside"] = (round_state.member & round_state.aside) + 2 * round_state.resting
    record["needed"][list(round_state.needed)] = 1
    record["committed"][list(round_state.pending)] = 1
    for name in round_state.added:
        record["scalars"][name] = round_state.combined_scalars[name]
    return record


class Slot(NamedTuple):
    """The state of one slot on a server.

    Attributes:
        nonce: of the process that holds it.
        member: whether it takes part in the rounds.
        acknowledged: sequence number of its last acknowledged exchange.
        committed: whether the commit of a later exchange is pending.
        used: how the acknowledged exchange was used, as `Status.use`; 0: not at all.
    """

    nonce: int
    member: bool
    acknowledged: int
    committed: bool
    used: int


@dataclass(slots=True)  # not frozen, which would triple the time to make one
class Status:
    """One server's status, as one worker reads it.

    See `wire.status_type` for the fields that are not explained here.

    Attributes:
        failure: why the run was aborted; "": it was not.
        notice: a warning to all workers at the start.
        acknowledged: sequence number of this worker's last acknowledged exchange, to which `use`,
            `wait` and `answer` belong.
        nonce: of the process that holds this worker's slot.
        arrivals: number of processes that have held the slot so far.
        committed: whether a later commit of this worker is pending.
        members: ranks that take part in the rounds.
        excluded: members that rounds do not wait for at their leader's request.
        aside: members that rounds do not wait for at their own request.
        resting: ranks of `aside` that did not send commits either when the newest round ended.
        needed: ranks whose parts a checkpoint of now needs.
        late: ranks whose commits the current round waits for.
        server: number of the server.
        source: the record that it was read from, or a round state, which may have changed since.
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
        """Return the state of a slot."""
        source = self.source
        if isinstance(source, RoundState):
            committed = rank in source.pending
            fields = source.nonce, source.member, source.acknowledged, source.used
        else:
            committed = bool(source["committed"][rank])
            fields = source["nonce"], source["member"], source["acknowledged"], source["used"]
        nonce, member, acknowledged, used = (int(values[rank]) for values in fields)
        return Slot(nonce, bool(member), acknowledged, committed, used)

    @classmethod
    def of_record(cls, record: Any, rank: int, server: int = 0) -> "Status":
        """Return the status in a record (wire.status_type) for the worker of that rank."""
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
            **{name: record[name][rank].item() for name in OF_SLOT},
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
            **{name: getattr(round_state, name) for name in (*OF_RUN, "finished", "failure", "notice")},
            **{name: getattr(round_state, name).item(rank) for name in OF_SLOT},
            scalars=round_state.added_scalars,
            use=round_state.used.item(rank),
            committed=rank in round_state.pending,
            members=everyone if complete else _ranks(round_state.member),
            excluded=_ranks(round_state.member & round_state.excluded)
            if np.count_nonzero(round_state.excluded)
            else (),
            needed=(),  # only for checkpoints, which the simulator does not write
            server=server,
            source=round_state,
            aside=_ranks(round_state.member & round_state.aside) if np.count_nonzero(round_state.aside) else (),
            resting=_ranks(round_state.resting) if np.count_nonzero(round_state.resting) else (),
        )


def awaited(status: Status) -> str:
    """Return a phrase for users that names the workers whose commits a round waits for."""
    late = ", ".join(map(str, status.late))
    return f"the commit of worker {late}" if late else "the commit of all workers to be used by the server"


def _ranks(mask: np.ndarray) -> tuple[int, ...]:
    return tuple(np.flatnonzero(mask).tolist())
