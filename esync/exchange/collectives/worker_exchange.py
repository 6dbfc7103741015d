"""The exchange by a collective, without a server: every worker does the work of a server.

Commits are sent to all ranks, the values are summed by a collective, and every rank has the same
`RoundState`, the same model and the same state of the rule. So all ranks agree on the end of the
run and on checkpoints. Features that need a process that outlives a worker are not supported:
replacements, --elastic and asynchronous modes.
"""

import contextlib
import json
import os
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from typing_extensions import override

from ... import config
from ...runtime import progress
from ...runtime.environment import EnvironmentProblemError
from ...runtime.watchdog import Watchdog
from ..base import NO_OFFERS, Exchange, ExchangeError, JobAbortedError, ModelSink, Payload, Result, Source
from ..codecs.quantization import NONE
from ..protocol import wire
from ..protocol.handshake import Handshake, StartNotice
from ..protocol.layout import WEIGHTS
from ..protocol.resume_negotiation import Offers, ResumeState, RunProgress, choose
from ..protocol.round_state import Limits, RoundState
from ..protocol.specification import Specification
from ..protocol.wire import Use
from .engine import CollectiveEngine
from .exchange_state import CollectiveState
from .mpi import MPITransport, started_by_mpi
from .pending_exchange import OverlappedCollective, PendingCollective
from .replicated_model import CommonModel, result_of
from .transport import Backoff, CoroutinePool, allgather_texts


class CollectiveExchange(CollectiveState, Exchange):
    """The exchange by a collective.

    Args:
        specification: of the exchange; synchronous.
        engine: sums vectors over the ranks.
        watchdog: warns of long waits.
        start_timeout: seconds to wait for the others to start.
        round_timeout: seconds to wait for the others in one exchange.
        inject_delay: called before a payload is sent, to delay an artificial straggler.

    Raises:
        ExchangeError: the mode needs a server.
    """

    def __init__(
        self,
        specification: Specification,
        engine: CollectiveEngine,
        watchdog: Watchdog,
        start_timeout: float = config.START_TIMEOUT,
        round_timeout: float = config.ROUND_TIMEOUT,
        inject_delay: Callable[[], None] = lambda: None,
    ) -> None:
        if (
            not specification.synchronous
            or specification.private
            or specification.sparse
            or specification.compression != NONE
        ):
            raise ExchangeError(
                f"--collective {engine.name} has no server, which modes need that do not exchange together"
            )
        nonce = secrets.randbits(62) + 1
        super().__init__(engine, watchdog, round_timeout, inject_delay, nonce, specification.scalars)
        self._specification, self._start_timeout, self._nonce = specification, start_timeout, nonce
        self.replacement, self.exchanges = False, 0
        self.job, self.resume_at = 0, -1
        self._failed = self._closed = False
        self._pending: PendingCollective | None = None

    @override
    def join(
        self,
        sizes: Mapping[str, int],
        limits: Limits,
        agreement: dict[str, Any],
        offers: Offers = NO_OFFERS,
    ) -> None:
        elements = self.engine.bucket_elements
        handshake = Handshake(
            rank=self.rank,
            nonce=self._nonce,
            slots=self.workers,
            sizes=sizes,
            servers=1,
            bucket_elements=elements,
            specification=self._specification,
            limits=limits,
            agreement={"collective": self.engine.name, **agreement},
            offers=offers,
        )
        texts = self._gather(json.dumps([handshake.encode(), time.monotonic()]), "the handshake of")
        handshakes = {rank: Handshake.decode(json.loads(texts[rank])[0]) for rank in range(self.workers)}
        self.round_state = RoundState(self.workers, True, limits, added=self._specification.scalars)
        self._offset = json.loads(texts[0])[1]
        notice = StartNotice(handshakes[0])
        for rank, other in handshakes.items():
            if differences := handshakes[0].differences(other):
                raise JobAbortedError(f"worker {rank} does not match worker 0: {'; '.join(differences)}")
            self.round_state.join(rank, other.nonce, self._offset)
            notice.add(other)
        if warning := notice.text():
            progress.warn(warning, launcher=self.rank == 0)
        try:
            self.resume_at = choose({rank: other.offers for rank, other in handshakes.items()})
            self.round_state.resume_at = self.resume_at
        except ValueError as error:
            raise JobAbortedError(str(error)) from None
        self.job = self.round_state.job
        self.weightings = self._specification.weightings()
        self.model = CommonModel(handshake.layout(), self._specification, self.workers)

    def begin(self, vectors: Mapping[str, Source], model: ModelSink) -> Result:
        """See `Exchange.begin`; the model is distributed as the sum of rank 0's and zeros."""
        if self.rank == 0:
            self.model.fill(self.model.values, vectors)
        with self.patience("the model of worker 0"):
            self._share(self.model.values)
        self.model.write(model, vectors)
        return result_of(self.round_state, 0.0, 0.0, True)

    def start(self, payload: Payload, model: ModelSink) -> PendingCollective:
        """Commit a payload, and start its exchange; see `Exchange.start`."""
        if payload.control.switch is not None or payload.control.use == Use.AT_ONCE:
            raise ExchangeError(f"--collective {self.engine.name} has no server, which switching to ASP needs")
        self.sequence += 1
        kind = OverlappedCollective if self._specification.overlap else PendingCollective
        self._pending = kind(self, payload, model)
        return self._pending

    def heartbeat(self) -> None:
        """See `Exchange.heartbeat`; it receives messages, so that failures are noticed early.

        During an overlapped exchange, its thread does so.
        """
        if not self._specification.overlap or self._pending is None or self._pending.done():
            with self.turn:
                self.control.poll()

    @override
    def stop(self) -> None:
        with self.turn:
            self.control.broadcast(wire.STOP, self.sequence)

    @override
    def abort(self, reason: str) -> None:
        self._failed = True
        self._cancel()
        self.control.broadcast(wire.ABORT, self.sequence, text=reason)
        self._linger(lambda: self.control.flushed)

    def close(self) -> None:
        """Leave together with the others, because MPI ends all if a process exits before that."""
        if self._closed:
            return
        self._closed = True
        self._cancel()
        self.control.broadcast(wire.LEAVE, self.sequence)
        if self._failed or self.control.failed:
            self._linger(self._all_left)
        else:
            with self.patience("the goodbye of the other workers", "") as wait:
                backoff = Backoff(config.COLLECTIVE_WAIT_PAUSE)
                while not self._all_left():
                    wait.what = f"the goodbye of {names(self.control.remaining_peers)}"
                    wait.check()
                    backoff.wait()
        if self._all_left():
            self.engine.close()

    # --- checkpoints ------------------------------------------------------------------------------

    def resume(self, state: ResumeState) -> None:
        """See `Exchange.resume`; all ranks call it, and rank 0's progress and rule state are used."""
        self.exchanges = self.sequence = state.exchanges
        progress = None if state.progress is None else asdict(state.progress)
        present = [vector is not None for vector in state.rule_state]
        texts = self._gather(json.dumps([progress, present, state.exchanges]), "the checkpoint's progress of")
        progress, present, self.sequence = json.loads(texts[0])
        self.exchanges = self.sequence
        self.round_state.acknowledged[:] = self.sequence
        self.round_state.resume(RunProgress(**progress), self._offset)
        vectors: list[np.ndarray | None] = []
        owners = [name for name, count in self.model.state_vectors.items() for _ in range(count)]
        for index, (name, exists) in enumerate(zip(owners, present, strict=True)):
            vector = np.zeros(self.model.layout.sizes[name], np.float32) if exists else None
            if vector is not None:
                if self.rank == 0:
                    np.copyto(vector, state.rule_state[index])
                with self.patience("the checkpoint of worker 0"):
                    self._share(vector)
            vectors.append(vector)
        self.model.restore(vectors)

    @override
    def rule_state(self) -> list[np.ndarray | None]:
        return self.model.state()

    def assign(self, weights: np.ndarray, vector: str = WEIGHTS) -> None:
        """See `Exchange.assign`; every rank has the weights."""
        np.copyto(self.model.vector(self.model.values, vector), weights)

    @override
    def version(self) -> int:
        return self.round_state.version

    # --- helpers ----------------------------------------------------------------------------------

    def _cancel(self) -> None:
        """Cancel the current exchange, if any."""
        if self._pending is not None:
            self._pending.cancel()

    def _share(self, vector: np.ndarray) -> None:
        """Broadcast a vector from rank 0, by a sum in which all other ranks have zeros."""
        self.engine.run(vector, Backoff(config.COLLECTIVE_PAUSE), self.control.poll)

    def _gather(self, text: str, what: str) -> dict[int, str]:
        texts: dict[int, str] = {}
        with self.watchdog.waiting(f"{what} all workers", self._start_timeout, "were all of them started?") as wait:

            def check() -> None:
                missing = sorted(set(range(self.workers)) - set(texts))
                wait.what = f"{what} {names(missing)}"
                wait.check()

            gathering = CoroutinePool([allgather_texts(self.engine.transport, text, texts)])
            gathering.run(Backoff(config.COLLECTIVE_WAIT_PAUSE), check)
        return texts

    def _all_left(self) -> bool:
        with contextlib.suppress(JobAbortedError):  # sent before the goodbye
            self.control.poll()
        return not self.control.remaining_peers and self.control.flushed

    def _linger(self, enough: Callable[[], bool]) -> None:
        """Give the others some time to receive the last message and to leave."""
        end = time.monotonic() + config.COLLECTIVE_FAREWELL
        backoff = Backoff(config.COLLECTIVE_WAIT_PAUSE)
        while time.monotonic() < end:
            try:
                self.control.poll()
            except JobAbortedError:
                continue
            if enough():
                return
            backoff.wait()


def names(ranks: list[int]) -> str:
    """Return a phrase with the ranks, for messages."""
    return f"worker {', '.join(map(str, ranks))}" if ranks else "nobody"


def check_start(collective: str) -> None:
    """Check that MPI has started this process.

    Raises:
        EnvironmentProblemError: it has not.
    """
    if not started_by_mpi():
        raise EnvironmentProblemError(
            f"--collective {collective}: this process was not started by MPI; start all workers together, for instance "
            f"mpiexec -n 1 python -m esync.worker -g 0 --collective {collective} : "
            f"-n 1 python -m esync.worker -c 1 --collective {collective}"
        )


def over_mpi(
    specification: Specification,
    collective: str,
    watchdog: Watchdog,
    start_timeout: float = config.START_TIMEOUT,
    round_timeout: float = config.ROUND_TIMEOUT,
    inject_delay: Callable[[], None] = lambda: None,
) -> Exchange:
    """Connect to the other ranks over MPI; see `CollectiveExchange` for the arguments.

    Raises:
        EnvironmentProblemError: MPI has not started this process, or not as many as
            DMLC_NUM_WORKER.
        MPIMissingError: MPI is not available.
    """
    check_start(collective)
    with watchdog.waiting("MPI to connect all workers", start_timeout, "were all of them started?"):
        transport = MPITransport()
    expected = os.environ.get("DMLC_NUM_WORKER")
    if expected is not None and expected != str(transport.size):
        raise EnvironmentProblemError(
            f"DMLC_NUM_WORKER is {expected}, but MPI has started {transport.size} worker(s): they should be the same"
        )
    engine = CollectiveEngine(collective, transport)
    return CollectiveExchange(specification, engine, watchdog, start_timeout, round_timeout, inject_delay)
