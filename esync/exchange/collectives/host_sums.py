"""Sums in two levels, where workers share hosts: in a host's memory first, then between hosts.

Every worker writes a bucket's values into memory that the workers of its host share. Each of them
adds up its part of all of them, in rank order. The worker with the smallest rank, the *leader*,
then sums the result over the hosts by the collective, with the leaders of the other hosts. What it
gets is in the shared memory, from where all workers of the host take it.

Only values are in the shared memory. Who has got how far is said by messages of one byte over the
same transport as all else, so it is noticed in the same way when a worker dies or hangs.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce

import numpy as np

from ... import config
from ..blockwise import places
from ..host_group import HostGroup, HostMemoryPlan
from .transport import Coroutine, Request, Transport, bucket_tag, until_done

#: Name of the arrays that the workers of a host share.
_BUCKETS = "buckets"
#: They need no table: messages take its place.
_NO_TABLE = np.dtype([("unused", "<i8")])


class SubTransport:
    """A transport among some of the ranks; see `transport.Transport`.

    Args:
        transport: among all ranks.
        ranks: those that take part, in order, this one included.
    """

    def __init__(self, transport: Transport, ranks: Sequence[int]) -> None:
        self._transport, self._ranks = transport, ranks
        self.rank, self.size = ranks.index(transport.rank), len(ranks)

    def isend(self, values: np.ndarray, to: int, tag: int) -> Request:
        """See `transport.Transport`."""
        return self._transport.isend(values, self._ranks[to], tag)

    def irecv(self, values: np.ndarray, source: int, tag: int) -> Request:
        """See `transport.Transport`."""
        return self._transport.irecv(values, self._ranks[source], tag)


class HostSums:
    """The level of the sums within this host.

    Memory of a host with k workers: k + 1 times as much as the buckets that are under way at a time
    (`COLLECTIVE_WINDOW`).

    Args:
        group: the workers of this host.
        transport: to all ranks.
        elements: the most float32 values of a bucket.

    Attributes:
        ranks: of the workers that share the memory, this one included: itself only where it has no
            part in it.
    """

    def __init__(self, group: HostGroup, transport: Transport, elements: int) -> None:
        self._group, self._transport, self._elements = group, transport, elements
        every = config.COLLECTIVE_WINDOW * elements
        plan = HostMemoryPlan(contributions={_BUCKETS: every}, residual=0, answers=[every], table=_NO_TABLE)
        alone = len(group.ranks) == 1 or not group.join(plan)
        self.ranks = (group.rank,) if alone else group.ranks
        self._busy: set[int] = set()  # slots of buckets that are under way

    def allreduce(self, values: np.ndarray, index: int, between: Callable[[np.ndarray], Coroutine]) -> Coroutine:
        """Return a coroutine that replaces `values` by their sum over all ranks.

        Args:
            values: float32, of shape (n,).
            index: of the bucket.
            between: returns a coroutine that sums over the leaders of all hosts, in place; a leader
                calls it.
        """
        if len(self.ranks) == 1:
            yield from between(values)
            return
        slot, tag = index % config.COLLECTIVE_WINDOW, bucket_tag(index)
        while slot in self._busy:
            yield False
        self._busy.add(slot)
        here = slice(slot * self._elements, slot * self._elements + values.size)
        parts = [self._group.contribution(rank, _BUCKETS)[here] for rank in self.ranks]
        total, place = self._group.answer(0)[here], self.ranks.index(self._group.rank)
        np.copyto(parts[place], values)
        peers, leader = [rank for rank in self.ranks if rank != self._group.rank], self.ranks[0]
        yield from self._messages(peers, peers, tag)  # all values are there
        for block in places(*(values.size * end // len(parts) for end in (place, place + 1))):
            np.copyto(total[block], reduce(np.add, (part[block] for part in parts)))
        if place:
            yield from self._messages([leader], [leader], tag)
        else:
            yield from self._messages([], peers, tag)  # all parts of the sum are there
            yield from between(total)
            yield from self._messages(peers, [], tag)
        np.copyto(values, total)
        self._busy.remove(slot)

    def close(self) -> None:
        """Give the memory up."""
        self._group.leave()

    def _messages(self, to: Sequence[int], sources: Sequence[int], tag: int) -> Coroutine:
        """Return a coroutine that tells some workers, and hears from some, that a step is done."""
        sent, heard = np.zeros(1, np.uint8), np.empty((len(sources), 1), np.uint8)
        requests = [self._transport.irecv(*each, tag) for each in zip(heard, sources, strict=True)]
        requests += [self._transport.isend(sent, rank, tag) for rank in to]
        for request in requests:
            yield from until_done(request)


def leaders_of(hosts: Mapping[int, Sequence[int]]) -> list[int]:
    """Return the leader of each host, in rank order.

    Args:
        hosts: rank → the ranks of its host, itself included, as it sees them.

    Raises:
        ValueError: two workers do not agree on who shares their host; the message says who.
    """
    for rank, ranks in hosts.items():
        for other in ranks:
            if tuple(hosts[other]) != tuple(ranks):
                raise ValueError(
                    f"worker {rank} shares its host's memory with {', '.join(map(str, ranks))}, but worker {other} "
                    f"with {', '.join(map(str, hosts[other]))}"
                )
    return sorted({min(ranks) for ranks in hosts.values()})
