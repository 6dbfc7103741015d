"""The reader of the servers' statuses: errors, the next round, and the result of an exchange."""

import math
from collections.abc import Callable, Sequence

from ... import config
from ..base import JobAbortedError, Result, SlotLostError
from .status import Status
from .store import Store

#: The fields of a result that a status has, too.
_DECIDED = Result.__dataclass_fields__.keys() & Status.__dataclass_fields__


class StatusReader:
    """Reads and checks the servers' statuses for one worker.

    Args:
        store: connection to the servers.
        observe: called with every status that has no error.

    Attributes:
        round: number of the round that the next payload is part of, if it is used together.
        excluded: ranks that this round does not wait for, according to the first server.
        uninformed: servers in that round whose excluded ranks are different.
        aside: ranks that rounds do not wait for at their own request.
        lost: whether this process has lost its slot.
    """

    def __init__(self, store: Store, observe: Callable[[Status], None]) -> None:
        self._store, self._observe = store, observe
        self.round = 0
        self.excluded: tuple[int, ...] = ()
        self.uninformed: list[int] = []
        self.aside: tuple[int, ...] = ()
        self.lost = False
        self._read_at = -math.inf

    @property
    def stale(self) -> bool:
        """Whether the newest status was read too long ago to rely on."""
        return self._store.now() - self._read_at > config.STATUS_EVERY

    def read(self) -> list[Status]:
        """Return the checked statuses of all servers."""
        statuses = self._store.statuses()
        for status in statuses:
            self.check(status)
        return statuses

    def check(self, status: Status) -> None:
        """Check a status.

        Raises:
            JobAbortedError: a worker has aborted the run.
            SlotLostError: the servers have given up this process, or replaced it.
        """
        store = self._store
        store.progressed()
        self._read_at = store.now()
        if status.failure:
            raise JobAbortedError(status.failure)
        replaced = status.nonce != store.nonce
        dropped = store.lease < math.inf and store.rank not in status.members
        self.lost = replaced or dropped
        if replaced:
            raise SlotLostError(f"another process has taken over the slot of worker {store.rank}")
        if dropped:
            raise SlotLostError(
                f"worker {store.rank} was not heard for {store.lease:g} s (its process or machine stood still), or "
                "took no step for half of --round-timeout, and the others have gone on without it; start it again to "
                "take the slot back, with a longer --lease or --round-timeout where it needs that"
            )
        self._observe(status)

    def result(
        self, statuses: Sequence[Status], wait: float, transfer: float, deciding: Status | None = None
    ) -> Result:
        """Return the result of an exchange, and update `round`, `excluded`, `uninformed` and `aside`.

        Server 0 decides when the run ends, how commits are used, and which workers are excluded. A
        leader's commit may have reached some servers only; the next payload then informs the others
        of the excluded workers. If the servers are in different rounds, the next payload is part of
        the earliest one, and the result has the workers that this round excludes.

        Args:
            statuses: of all servers.
            wait: see `Result`.
            transfer: see `Result`.
            deciding: the status that decides; None: that of server 0.
        """
        first = statuses[0]
        earliest = min(statuses, key=lambda status: status.rounds_together)
        deciding = deciding or first
        self._store.finished = deciding.finished
        self.round = earliest.rounds_together + 1
        self.excluded = first.excluded
        self.uninformed = [
            server
            for server, status in enumerate(statuses)
            if status.excluded != first.excluded and status.rounds_together == first.rounds_together
        ]
        self.aside = tuple(sorted({rank for status in statuses for rank in status.aside}))
        common = {"wait": wait, "excluded": earliest.excluded, "aside": self.aside}
        decided = {name: getattr(deciding, name) for name in _DECIDED}
        return Result(**decided | common, transfer=transfer, used=bool(deciding.use))

    def includable(self) -> list[int]:
        """Return the ranks whose unawaited commits the next round can include.

        Every server must have such a commit pending or used already. If a former leader has reached
        some servers only, the round is over there; a commit that they have not used in it must not
        be used by the others, or the servers' models would differ if the run ended. Only the leader
        needs the ranks, and it reads the statuses anew for them, because the last ones are a round
        old.
        """
        statuses = self.read()
        leaders = {min(awaited_ranks(status), default=-1) for status in statuses}
        if self._store.rank not in leaders:
            return []
        includable: list[int] = []
        for rank in sorted({rank for status in statuses for rank in status.aside}):
            slots = [(status.slot(rank), status.rounds_together >= self.round) for status in statuses]
            waits = any(slot.committed for slot, _ in slots)
            same = len({slot.acknowledged + slot.committed for slot, _ in slots}) == 1
            consistent = all(
                slot.used and not slot.committed if over else slot.used or slot.committed for slot, over in slots
            )
            if waits and same and consistent:
                includable.append(rank)
        return includable


def awaited_ranks(status: Status) -> set[int]:
    """Return the ranks that a server's rounds wait for."""
    return set(status.members).difference(status.excluded, status.aside)
