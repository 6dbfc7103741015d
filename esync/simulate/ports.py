"""Ports shared by simultaneous transfers, without an update of every transfer when others begin or end.

The port's bandwidth is divided equally. A transfer whose other end is slower gets the rate of that
end, and leaves the rest to the others (max-min fairness, which TCP connections with equal round-trip
times approximate). Transfers with the same limit always have the same rate. They form a *flow*, which
counts the bytes that each member has received since the flow began. A member is complete when that
count has grown by the member's size; a heap yields the member that completes next.

A host with several simultaneous transfers divides its own port equally between them; bandwidth that
one of them cannot use is not given to the others. This differs from max-min fairness only if the
servers of one cluster are loaded unequally.
"""

import heapq
import math
from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .engine import SimulationEngine

#: Remainder of a transfer that counts as rounding error: bytes, and seconds at the transfer's rate.
NOTHING, AT_ONCE = 1e-3, 1e-9


@dataclass(frozen=True)
class Link:
    """A host's link to the network.

    Attributes:
        bandwidth: bytes per second that its port carries, in each direction.
        latency: seconds from this host to the middle of the network.
    """

    bandwidth: float = math.inf
    latency: float = 0.0


class NetworkTransfer:
    """Bytes in transit.

    Attributes:
        left: bytes that remained when it entered its flow.
        arrived: called when the last byte has arrived.
        owner: the sender or receiver whose crash ends the transfer.
        begun: when it was sent.
        dropped: whether its owner has crashed.
        centre: the server's port, which it shares.
        edge: the port at its other end.
        flow: its flow at the centre; None before and after.
        due: value of `Flow.given` at which it is complete.
        number: number of its entry in the flow's heap.
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
        limit: largest rate of each member in bytes per second.
        rate: current rate of each member in bytes per second.
        given: bytes that each member has received since the flow began.
        members: number of members.
        heap: (due, number, transfer) of each member. Entries of removed members stay until they are
            at the front.
    """

    __slots__ = ("given", "heap", "limit", "members", "rate")

    def __init__(self, limit: float) -> None:
        self.limit, self.rate, self.given, self.members = limit, 0.0, 0.0, 0
        self.heap: list[tuple[float, int, NetworkTransfer]] = []

    def __lt__(self, other: "Flow") -> bool:
        return self.limit < other.limit

    def first(self) -> NetworkTransfer | None:
        """Return the member that completes next; None without members."""
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
        engine: the simulation's engine.
        bandwidth: bytes per second.
        done: called, from an event, with each complete transfer whose centre is this port.
    """

    def __init__(self, engine: SimulationEngine, bandwidth: float, done: Callable[[NetworkTransfer], None]) -> None:
        self._engine, self._bandwidth, self._done = engine, bandwidth, done
        self._flows: list[Flow] = []  # by limit
        self._by_limit: dict[float, Flow] = {}
        self._count = 0  # number of transfers whose centre is this port
        self._edges: dict[NetworkTransfer, None] = {}  # transfers whose edge is this port, in order
        self._since = 0.0  # time of the last update of the flows' counts
        self._due = math.inf  # lower bound of the time at which the next transfer is complete
        self._numbers = 0

    # --- as an edge -------------------------------------------------------------------------------

    def begin(self, transfer: NetworkTransfer) -> None:
        """Add a transfer whose edge is this port."""
        self._edges[transfer] = None
        transfer.centre.enter(transfer)
        self._limit()

    def end(self, transfer: NetworkTransfer) -> None:
        """Remove a transfer that is complete, or whose owner has crashed; `plan` its centre afterwards."""
        transfer.centre.leave(transfer)
        del self._edges[transfer]
        self._limit()

    def _limit(self) -> None:
        """Divide this port's bandwidth equally between its transfers."""
        if self._edges:
            limit = self._bandwidth / (len(self._edges) + self._count)
            for transfer in self._edges:
                transfer.centre.place(transfer, limit)
        if self._count:  # a server runs here, too
            self._advance()
            self.plan()

    # --- as a centre ------------------------------------------------------------------------------

    def enter(self, transfer: NetworkTransfer) -> None:
        """Add a transfer whose centre is this port; `place` sets the limit of its rate."""
        self._count += 1
        self._limit()

    def leave(self, transfer: NetworkTransfer) -> None:
        """Remove a transfer whose centre is this port."""
        self._advance()
        self._remove(transfer)
        self._count -= 1
        self._limit()

    def place(self, transfer: NetworkTransfer, limit: float) -> None:
        """Set the largest rate of a transfer from now on, in bytes per second."""
        if transfer.flow is not None and transfer.flow.limit == limit:
            return
        self._advance()
        self._remove(transfer)
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
        """Divide the bandwidth, and schedule a check at the time when the next transfer is complete."""
        room, sharing = self._bandwidth, self._count
        if self._edges:  # transfers whose edge is this port take their share first
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
            self._engine.call_at(due, self._finish_due, due)

    def _finish_due(self, due: float) -> None:
        """Finish the transfers that are complete at the planned time, unless the plan has changed."""
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
        """Update the flows' counts of bytes to the current time."""
        now = self._engine.time
        passed, self._since = now - self._since, now
        if passed:
            for flow in self._flows:
                flow.given += flow.rate * passed

    def _remove(self, transfer: NetworkTransfer) -> None:
        flow, transfer.flow = transfer.flow, None
        if flow is not None:
            transfer.left = max(transfer.due - flow.given, NOTHING)
            flow.members -= 1
            if not flow.members:
                self._flows.remove(flow)
                del self._by_limit[flow.limit]
