"""Which parameter server a worker's greeting asks for."""

import math
from collections.abc import Callable
from dataclasses import replace

from ...compression import NONE
from ..codecs.choice import packings_of
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
    ledger = Ledger(greeting.slots, asked.synchronous, limits, staleness=asked.staleness, added=asked.scalars)
    layout = greeting.layout()
    up, down = packings_of(asked, layout, greeting.slots)
    if not up.name == down.name == NONE:
        memory = None
    uplink, downlink = up.uplink(shard), down.downlink(shard)
    return ParameterServer(layout, ledger, uplink, downlink, asked.rules(), clock, memory, asked.weighting)
