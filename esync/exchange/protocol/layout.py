"""The layout of a model: its buckets, and their keys on the servers.

A model consists of named flat float32 vectors: the trained weights, the statistics (batch norm's
running mean and variance, and other values that are not trained), and further ones that an
algorithm exchanges. Each vector is cut into buckets of at most `bucket_elements` values, which are
assigned to the servers in turn. No bucket spans two vectors, because vectors have different rules.

MXNet puts a small array on the server `key · 9973 mod S` of S, so keys that are equal modulo S are
on the same server. `key = slot · S + shard` therefore addresses a slot on a server. Slot 0 is for
messages to the server and its status, slot 1 is the mailbox for one bucket of the rule's state
(checkpoints), and the others are for buckets. A *channel* is one set of bucket keys. Channel 0 is
shared by all workers; if the server answers every worker differently, worker r uses channel r + 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ... import config

#: Names of the vectors that every model has: trained values (or their gradients, or updates), and
#: statistics.
WEIGHTS, STATISTICS = "weights", "statistics"


@dataclass(frozen=True)
class Bucket:
    """Values `start` to `stop` of one vector, kept on one server.

    Attributes:
        index: number of the bucket in the model, from 0.
        shard: number of the server that holds it, 0 to servers − 1.
        slot: number of the bucket on that server, from 0.
        start: index of its first value in the vector.
        stop: one past that of its last value.
        vector: name of the vector.
    """

    index: int
    shard: int
    slot: int
    start: int
    stop: int
    vector: str


class Layout:
    """The buckets of a model on `servers` servers.

    Args:
        sizes: name of each vector → number of its values, in any order.
        servers: number of parameter servers, at least 1.
        bucket_elements: the most values in one bucket.

    Attributes:
        sizes: as given, the weights first and the others sorted by name.
        servers: as given.
        bucket_elements: as given.
        buckets: in the order of `sizes`.

    Raises:
        ValueError: there are no weights, or a number is too small.
    """

    def __init__(self, sizes: Mapping[str, int], servers: int, bucket_elements: int = config.BUCKET_ELEMENTS) -> None:
        self.sizes = {name: sizes[name] for name in sorted(sizes, key=lambda name: (name != WEIGHTS, name))}
        self.servers = servers
        self.bucket_elements = bucket_elements
        self.buckets: list[Bucket] = []
        filled = [0] * servers
        for vector, size in self.sizes.items():
            for start in range(0, size, bucket_elements):
                shard, stop = len(self.buckets) % servers, min(start + bucket_elements, size)
                self.buckets.append(Bucket(len(self.buckets), shard, filled[shard], start, stop, vector))
                filled[shard] += 1
        self._slots = max(filled)
        self._of = {
            (name, server): tuple(
                bucket for bucket in self.buckets if bucket.vector == name and server in (None, bucket.shard)
            )
            for name in self.sizes
            for server in (None, *range(servers))
        }
        self._by_slot = {(bucket.shard, bucket.slot): bucket for bucket in self.buckets}

    def of(self, vector: str, server: int | None = None) -> tuple[Bucket, ...]:
        """Return the buckets of a vector, of all servers or of one, in order."""
        return self._of[vector, server]

    def status_key(self, shard: int) -> int:
        """Return the key of messages to server `shard` and of its status."""
        return shard

    def mailbox_key(self, shard: int) -> int:
        """Return the key of the mailbox of server `shard`."""
        return self.servers + shard

    def mailbox_elements(self, shard: int) -> int:
        """Return the number of values in the mailbox of server `shard`, without the header."""
        return max((bucket.stop - bucket.start for bucket in self.buckets if bucket.shard == shard), default=1)

    def key(self, bucket: Bucket, channel: int = 0) -> int:
        """Return the key of a bucket in a channel (0: shared by all; r + 1: of worker r alone)."""
        return (2 + channel * self._slots + bucket.slot) * self.servers + bucket.shard

    def slots_of_channels(self, channels: int) -> int:
        """Return the first free slot if `channels` channels are used."""
        return 2 + channels * self._slots

    def locate(self, key: int) -> tuple[int, Bucket]:
        """Return the channel and the bucket of a bucket's key; KeyError for any other key."""
        slot, shard = divmod(key, self.servers)
        channel, position = divmod(slot - 2, self._slots)
        return channel, self._by_slot[shard, position]
