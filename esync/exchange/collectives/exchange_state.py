"""The state that an exchange by a collective shares with the handles under way."""

import threading
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import numpy as np

from ...runtime.watchdog import Watchdog
from ..base import Flat, Payload, Result
from ..protocol.round_state import RoundState
from .allreduce import ReceiveBuffers
from .control_messages import ControlChannel
from .engine import CollectiveEngine
from .replicated_model import CommonModel, result_of


class CollectiveState:
    """The ranks, the messages between them and the common model.

    Args:
        engine: sums vectors over the ranks.
        watchdog: warns when something takes long.
        round_timeout: seconds to wait for the others in one exchange.
        inject_delay: called before a payload is sent; a straggler on purpose waits in it.
        nonce: of this process.
        scalars: names of those that messages have beside the built-in ones.

    Attributes:
        rank: of this worker.
        workers: number of ranks.
        sequence: number of the newest exchange.
        part: see `Exchange.part`.
        control: messages between the ranks.
        turn: held by the thread that talks to the others, because MPI is used by one thread at a
            time.
        round_state: the rounds as all ranks count them; there from joining on, like the following
            two.
        weightings: name of each vector → how much each worker counts in its mean.
        model: the common one.
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
        self._taken = self._counted = (0, 0)

    def report(self, wait: float, transfer: float, used: bool) -> Result:
        """Return the present state of the run as a result."""
        return result_of(self.round_state, wait, transfer, used)

    def copy(self, payload: Payload) -> Payload:
        """Return a payload with copies of its vectors; there is one exchange at a time."""
        if self._copy is None:
            self._copy = np.zeros_like(self.model.values)
        self.model.fill(self._copy, payload.vectors)
        return replace(payload, vectors={name: Flat(self.model.vector(self._copy, name)) for name in payload.vectors})

    def patience(self, what: str, hint: str = "is every worker still running?") -> Any:
        """Return a context manager that watches over a wait for the others."""
        return self.watchdog.waiting(what, self._round_timeout, hint)

    def take(self) -> tuple[int, int]:
        """Return the bytes sent and received from the last call to the newest finished exchange.

        They are what MPI was given to carry: between processes of one machine it is no network that
        carries them.
        """
        before, self._taken = self._taken, self._counted
        return self._taken[0] - before[0], self._taken[1] - before[1]

    def count(self) -> None:
        """Count the bytes of an exchange that is over.

        They belong to it even where the next one has begun before `take`.
        """
        transport = self.engine.transport
        self._counted = getattr(transport, "sent", 0), getattr(transport, "received", 0)
