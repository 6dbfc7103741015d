"""Transfers of one size through one server's port, with known times of entry.

The port is shared as in `simulate.ports.Port`, which computes it event by event. Here every transfer
has a different host at its other end, so that its limit never changes, and transfers with the same
limit complete in the order of their entry.
"""

import math
from bisect import insort
from collections import deque
from collections.abc import Sequence
from typing import TypeVar

from ..ports import AT_ONCE, NOTHING

T = TypeVar("T")


class _Flow:
    """Transfers with the same limit; see `simulate.ports.Flow`."""

    __slots__ = ("given", "limit", "queue", "rate")

    def __init__(self, limit: float) -> None:
        self.limit, self.rate, self.given = limit, 0.0, 0.0
        self.queue: deque[tuple[float, object]] = deque()

    def __lt__(self, other: "_Flow") -> bool:
        return self.limit < other.limit


def carry(bandwidth: float, size: float, entries: Sequence[tuple[float, float, T]]) -> list[tuple[float, T]]:
    """Return the time of completion and the identifier of each transfer, in order of time.

    Args:
        bandwidth: the port's bandwidth in bytes per second.
        size: bytes of every transfer.
        entries: time of entry, largest rate in bytes per second, and identifier of each transfer, in
            order of time.
    """
    size = max(size, 2 * NOTHING)
    done: list[tuple[float, T]] = []
    flows: list[_Flow] = []
    by_limit: dict[float, _Flow] = {}
    due, since, sharing, index, last = math.inf, 0.0, 0, 0, len(entries)
    while index < last or sharing:
        entering = index < last and entries[index][0] <= due
        now = entries[index][0] if entering else due
        passed, since = now - since, now
        for flow in flows:
            flow.given += flow.rate * passed
        if entering:
            _, limit, item = entries[index]
            index += 1
            sharing += 1
            entered = by_limit.get(limit)
            if entered is None:
                entered = by_limit[limit] = _Flow(limit)
                insort(flows, entered)
            entered.queue.append((entered.given + size, item))
        else:
            due = math.inf
            empty = []
            for flow in flows:
                queue, enough = flow.queue, flow.given + max(NOTHING, flow.rate * AT_ONCE)
                while queue and queue[0][0] <= enough:
                    done.append((now, queue.popleft()[1]))  # type: ignore[arg-type]
                    sharing -= 1
                if not queue:
                    empty.append(flow)
            for flow in empty:
                flows.remove(flow)
                del by_limit[flow.limit]
        room, competing, soonest = bandwidth, sharing, math.inf
        for flow in flows:
            rate = room / competing
            if flow.limit < rate:
                rate = flow.limit
            flow.rate = rate
            members = len(flow.queue)
            room -= rate * members
            competing -= members
            remaining = (flow.queue[0][0] - flow.given) / rate
            if remaining < soonest:
                soonest = remaining
        if now + soonest < due:
            due = now + soonest
    return done
