"""Transfers of one size through one server's port, when all times of entry are known.

The port is shared as in `simulate.ports.Port`, which computes it event by event. Here no two
transfers have their other end on one host. So a transfer's own limit never changes, and transfers
with the same limit leave in the order in which they came.
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
    """Return when each transfer is done, and which one it is, in the order of time.

    Args:
        bandwidth: the port's bandwidth in bytes per second.
        size: bytes of every transfer.
        entries: for each transfer its time of entry, the bytes per second that it can use at most,
            and what identifies it, in the order of time.
    """
    size = max(size, 2 * NOTHING)
    done: list[tuple[float, T]] = []
    flows: list[_Flow] = []
    by_limit: dict[float, _Flow] = {}
    due, since, sharing, place, last = math.inf, 0.0, 0, 0, len(entries)
    while place < last or sharing:
        entering = place < last and entries[place][0] <= due
        now = entries[place][0] if entering else due
        passed, since = now - since, now
        for flow in flows:
            flow.given += flow.rate * passed
        if entering:
            _, limit, item = entries[place]
            place += 1
            sharing += 1
            known = by_limit.get(limit)
            if known is None:
                known = by_limit[limit] = _Flow(limit)
                insort(flows, known)
            known.queue.append((known.given + size, item))
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
        room, others, soonest = bandwidth, sharing, math.inf
        for flow in flows:
            rate = room / others
            if flow.limit < rate:
                rate = flow.limit
            flow.rate = rate
            members = len(flow.queue)
            room -= rate * members
            others -= members
            left = (flow.queue[0][0] - flow.given) / rate
            if left < soonest:
                soonest = left
        if now + soonest < due:
            due = now + soonest
    return done
