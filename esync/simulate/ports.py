"""Ports shared by simultaneous transfers, in closed form: no transfer is updated while others come and go.

The port's bandwidth is divided equally; a transfer whose other end cannot take that much gets what
that end can, and leaves the rest to the others (max-min fairness, which TCP connections of equal
round trip come close to). Transfers with the same limit of their own get the same rate all the
time. So they make one *flow*, which counts what each of its members has been given since the flow
began; a member is done when that count has come to where it stood at the member's beginning plus
the member's size. The next to be done is the first of a heap.

A host that sends or receives several transfers at once divides its own port equally between them;
what one of them cannot use is not given to its other ones. This differs from full max-min fairness
only where the servers of one cluster are loaded unequally.
"""

import heapq
import math
from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .engine import SimulationEngine

#: Bytes that rounding may leave over, and seconds at the transfer's rate.
NOTHING, AT_ONCE = 1e-3, 1e-9


@dataclass(frozen=True)
class Link:
    """Link of a host to the network.

    Attributes:
        bandwidth: bytes per second that its port carries, in each direction.
        latency: seconds from this host to the middle of the network.
    """

    bandwidth: float = math.inf
    latency: float = 0.0


class NetworkTransfer:
    """Bytes in transit.

    Attributes:
        left: bytes still to be carried when it entered its flow.
        arrived: called when the last byte is there.
        owner: of whom they are: a crash ends them.
        begun: when its sender sent it.
        dropped: the crash has come.
        centre: the server's port, which it shares.
        edge: the port of its other end.
        flow: that it is part of at the centre; None before and after.
        due: what the flow will have given to each member when this one is done.
        number: of its entry in the flow's heap.
    """

    __slots__ = ("arrived", "begun", "centre", "dropped", "due", "edge", "flow", "left", "number", "owner")

    def __init__(self, size: float, arrived: Callable[[], Any], owner: object, begun: float) -> None:
        self.left = max(size, 2 * NOTHING)
        self.arrived, self.owner, self.begun = arrived, owner, begun
        self.dropped = False
        self.centre: Port
        self.edge: Port
        self.flow: Flow | None = None
        self.due, self.number = 0.0, 0


class Flow:
    """Transfers through one port that have the same limit.

    Attributes:
        limit: bytes per second that each of them can use at most.
        rate: bytes per second that each of them gets.
        given: bytes that each member has got since the flow began.
        members: how many there are.
        heap: (due, number, transfer) of the members; of those that have left, until they come to
            the front.
    """

    __slots__ = ("given", "heap", "limit", "members", "rate")

    def __init__(self, limit: float) -> None:
        self.limit, self.rate, self.given, self.members = limit, 0.0, 0.0, 0
        self.heap: list[tuple[float, int, NetworkTransfer]] = []

    def __lt__(self, other: "Flow") -> bool:
        return self.limit < other.limit

    def first(self) -> NetworkTransfer | None:
        """Return the member that will be done next."""
        heap = self.heap
        while heap:
            _, number, transfer = heap[0]
            if transfer.flow is self and transfer.number == number:
                return transfer
            heapq.heappop(heap)
        return None


class Port:
    """One direction of a host's port.

    Args:
        engine: whose time.
        bandwidth: bytes per second.
        done: called, from an event, with each transfer whose last byte has gone through this port
            as the server's.
    """

    def __init__(self, engine: SimulationEngine, bandwidth: float, done: Callable[[NetworkTransfer], None]) -> None:
        self._engine, self._bandwidth, self._done = engine, bandwidth, done
        self._flows: list[Flow] = []  # by limit
        self._by_limit: dict[float, Flow] = {}
        self._count = 0  # transfers that share this port as the server's
        self._edges: dict[NetworkTransfer, None] = {}  # transfers that have this port at their other end
        self._since = 0.0  # when the flows' counts were last brought up to date
        self._due = math.inf  # when the next transfer may be done; never too late
        self._numbers = 0

    # --- as the other end -------------------------------------------------------------------------

    def begin(self, transfer: NetworkTransfer) -> None:
        """A transfer enters."""
        self._edges[transfer] = None
        transfer.centre.enter(transfer)
        self._limit()

    def end(self, transfer: NetworkTransfer) -> None:
        """A transfer is done, or its owner gone; its centre is to be planned anew."""
        transfer.centre.leave(transfer)
        del self._edges[transfer]
        self._limit()

    def _limit(self) -> None:
        """Divide this port equally between its transfers."""
        if self._edges:
            limit = self._bandwidth / (len(self._edges) + self._count)
            for transfer in self._edges:
                transfer.centre.place(transfer, limit)
        if self._count:  # a server runs here, too
            self._advance()
            self.plan()

    # --- as the server's port ---------------------------------------------------------------------

    def enter(self, transfer: NetworkTransfer) -> None:
        """One more to share with; `place` says how much it can use."""
        self._count += 1
        self._limit()

    def leave(self, transfer: NetworkTransfer) -> None:
        """One less."""
        self._advance()
        self._take_out(transfer)
        self._count -= 1
        self._limit()

    def place(self, transfer: NetworkTransfer, limit: float) -> None:
        """This transfer can use so many bytes per second from now on."""
        if transfer.flow is not None and transfer.flow.limit == limit:
            return
        self._advance()
        self._take_out(transfer)
        flow = self._by_limit.get(limit)
        if flow is None:
            flow = self._by_limit[limit] = Flow(limit)
            insort(self._flows, flow)
        flow.members += 1
        transfer.flow, transfer.due = flow, flow.given + transfer.left
        self._numbers += 1
        transfer.number = self._numbers
        heapq.heappush(flow.heap, (transfer.due, transfer.number, transfer))
        self.plan()

    def plan(self) -> None:
        """Divide the bandwidth, and see to it that the next transfer to be done will be noticed."""
        room, sharing = self._bandwidth, self._count
        if self._edges:  # it serves both ways: what others take of it first is theirs
            room *= sharing / (sharing + len(self._edges))
        soonest = math.inf
        for flow in self._flows:
            flow.rate = min(flow.limit, room / sharing)
            room -= flow.rate * flow.members
            sharing -= flow.members
            if (first := flow.first()) is not None:
                soonest = min(soonest, (first.due - flow.given) / flow.rate)
        due = self._engine.time + soonest
        if due < self._due:
            self._due = due
            self._engine.call_at(due, self._look, due)

    def _look(self, due: float) -> None:
        """See who is done; where others have come since this was planned, it is too early for that."""
        if due != self._due:
            return
        self._due = math.inf
        self._advance()
        done = []
        for flow in self._flows:
            enough = flow.given + max(NOTHING, flow.rate * AT_ONCE)
            while (first := flow.first()) is not None and first.due <= enough:
                heapq.heappop(flow.heap)
                done.append(first)
        for transfer in done:
            transfer.edge.end(transfer)
        self.plan()
        for transfer in done:
            self._done(transfer)

    def _advance(self) -> None:
        """Bring what the flows have given up to date."""
        now = self._engine.time
        passed, self._since = now - self._since, now
        if passed:
            for flow in self._flows:
                flow.given += flow.rate * passed

    def _take_out(self, transfer: NetworkTransfer) -> None:
        flow, transfer.flow = transfer.flow, None
        if flow is not None:
            transfer.left = max(transfer.due - flow.given, NOTHING)
            flow.members -= 1
            if not flow.members:
                self._flows.remove(flow)
                del self._by_limit[flow.limit]
