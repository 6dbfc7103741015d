"""The state that an exchange by a collective shares with its handles."""

import threading
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import numpy as np

from ...runtime.watchdog import Watchdog
from ..base import Flat, Payload
from ..protocol.round_state import RoundState
from .allreduce import ReceiveBuffers
from .control_messages import ControlChannel
from .engine import CollectiveEngine
from .replicated_model import CommonModel


class CollectiveState:
    """The connection to the other ranks, and the common model.

    Args:
        engine: sums vectors over the ranks.
        watchdog: warns of long waits.
        round_timeout: seconds to wait for the others in one exchange.
        inject_delay: called before a payload is sent, to delay an artificial straggler.
        nonce: of this process.
        scalars: names of the scalars of messages other than the built-in ones.

    Attributes:
        rank: of this worker.
        workers: number of ranks.
        sequence: number of the newest exchange.
        part: see `Exchange.part`.
        control: messages between the ranks.
        turn: lock of the thread that uses MPI, which allows one thread at a time.
        round_state: the progress of the run, equal on all ranks; set by `join`.
        weightings: name of each vector → how much each worker counts in its mean; set by `join`.
        model: the common model; set by `join`.
        buffers: for the buckets of payloads that are summed up.
    """

    round_state: RoundState
    weightings: dict[str, str]
    model: CommonModel

    def __init__(
        self,
        engine: CollectiveEngine,
        watchdog: Watchdog,
        round_timeout: float,
        inject_delay: Callable[[], None],
        nonce: int,
        scalars: Collection[str],
    ) -> None:
        self.engine, self.watchdog, self.inject_delay = engine, watchdog, inject_delay
        self._round_timeout = round_timeout
        self.rank, self.workers = engine.transport.rank, engine.transport.size
        self.sequence = self.part = 0
        self.control = ControlChannel(engine.transport, nonce, scalars)
        self.turn = threading.RLock()
        self._copy: np.ndarray | None = None
        self.buffers = ReceiveBuffers()
        self._reported = self._counted = (0, 0)

    def copy(self, payload: Payload) -> Payload:
        """Return a payload with copies of its vectors, which are valid until the next call."""
        if self._copy is None:
            self._copy = np.zeros_like(self.model.values)
        self.model.fill(self._copy, payload.vectors)
        return replace(payload, vectors={name: Flat(self.model.vector(self._copy, name)) for name in payload.vectors})

    def patience(self, what: str, hint: str = "is every worker still running?") -> Any:
        """Return a context manager that monitors a wait for the others."""
        return self.watchdog.waiting(what, self._round_timeout, hint)

    def read_delta(self) -> tuple[int, int]:
        """Return the bytes sent and received between the last call and the newest finished exchange.

        These are the bytes passed to MPI, also if they stay within one machine.
        """
        before, self._reported = self._reported, self._counted
        return self._reported[0] - before[0], self._reported[1] - before[1]

    def count(self) -> None:
        """Count the bytes of a finished exchange, before the next one starts."""
        transport = self.engine.transport
        self._counted = getattr(transport, "sent", 0), getattr(transport, "received", 0)
