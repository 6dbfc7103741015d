"""Which parameter server a worker's greeting asks for."""

import math
from collections.abc import Callable
from dataclasses import replace

from ...compression import Compression
from ..codecs.choice import unpacker_of
from .greeting import Greeting
from .inbox import Memory
from .ledger import Ledger
from .parameter_server import ParameterServer

#: The server that decides when the run ends: the one that holds key 0.
FIRST = 0


def serve(greeting: Greeting, shard: int, clock: Callable[[], float], memory: Memory | None = None) -> ParameterServer:
    """A server as the first worker's greeting wants it.

    Args:
        greeting: of the first worker.
        shard: number of this server.
        clock: seconds, monotonic.
        memory: where it works; None: host memory. Sparse and packed messages are always worked on in host memory.
    """
    # Time passes differently on every server: only the first one, which decides when the run ends, looks at it.
    limits = greeting.limits if shard == FIRST else replace(greeting.limits, seconds=math.inf)
    asked = greeting.specification
    ledger = Ledger(greeting.slots, asked.synchronous, limits, staleness=asked.staleness)
    layout, rules = greeting.layout(), asked.rules()
    if asked.sparse:
        from ..codecs.sparse_server import SparseServer  # compiles its inner loops

        return SparseServer(layout, ledger, rules, shard, clock, **asked.options)
    if compression := Compression.parse(asked.compression):
        from ..codecs.compressed_server import CompressedServer  # compiles its inner loops

        unpacker = unpacker_of(compression, layout, greeting.slots, shard, asked.tensors)
        return CompressedServer(layout, ledger, rules, clock, unpacker, asked.weighting)
    return ParameterServer(layout, ledger, rules, asked.private, clock, memory, asked.weighting)
