"""Which parameter server a worker's greeting asks for."""

import math
from collections.abc import Callable
from dataclasses import replace

from ...compression import Compression
from ...rules import make_rule
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
    ledger = Ledger(greeting.slots, greeting.synchronous, limits, staleness=greeting.staleness)
    layout = greeting.layout()
    if greeting.sparse:
        from ..codecs.sparse_server import SparseServer  # compiles its inner loops

        return SparseServer(layout, ledger, shard, clock, **greeting.options)
    rule = make_rule(greeting.rule, greeting.options)
    if compression := Compression.parse(greeting.compression):
        from ..codecs.compressed_server import CompressedServer  # compiles its inner loops

        unpacker = unpacker_of(compression, layout, greeting.slots, shard, greeting.tensors)
        return CompressedServer(layout, ledger, rule, clock, unpacker, greeting.weighting)
    return ParameterServer(layout, ledger, rule, greeting.private, clock, memory, greeting.weighting)
