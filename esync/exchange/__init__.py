"""The exchange of models and gradients between workers.

`base` is the interface for algorithms: they start an exchange with a `Payload`, get a handle, and
wait for the `Result`. `protocol` is the protocol between workers and parameter servers, `keystores`
its transport, and `codecs` the packing of weights. `collectives` exchanges without servers.
`blockwise` runs rules in blocks that fit into the cache, `weighting` and `weighted_sum` compute
means over workers, `host_group` is the shared memory of a host's workers, and `worker_monitor`
detects dead workers. May import `config`, `membership`, `rules`, `runtime` and `version`. See
docs/internals/exchange.md for the way of one batch.
"""

from .base import (
    NO_OFFERS,
    Control,
    Exchange,
    ExchangeError,
    Flat,
    JobAbortedError,
    ModelSink,
    Payload,
    Result,
    SizedSource,
    SlotLostError,
    Source,
    values_of,
)
from .protocol.layout import STATISTICS, WEIGHTS
from .protocol.specification import Specification
from .protocol.wire import Use
from .weighting import AS_UPDATES

__all__ = [
    "AS_UPDATES",
    "NO_OFFERS",
    "STATISTICS",
    "WEIGHTS",
    "Control",
    "Exchange",
    "ExchangeError",
    "Flat",
    "JobAbortedError",
    "ModelSink",
    "Payload",
    "Result",
    "SizedSource",
    "SlotLostError",
    "Source",
    "Specification",
    "Use",
    "values_of",
]
