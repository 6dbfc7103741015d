"""The exchange of models and gradients between workers: one interface, several ways.

An algorithm sees `base`: it starts an exchange with a `Payload`, gets a handle, and asks or waits
for the `Result`. `protocol` has what workers and parameter servers say to each other, `keystores`
what carries it, `codecs` how weights are packed on the way; `collectives` does without a server.
`blockwise` runs a rule while its values are in the cache; `worker_monitor` finds out which workers
are gone. May import `config`, `membership`, `rules`, `runtime` and `version`;
docs/internals/exchange.md follows one batch through all.
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
    "SlotLostError",
    "Source",
    "Specification",
    "Use",
    "values_of",
]
