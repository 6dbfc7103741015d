"""The exchange by a collective, without a server: every worker does a server's work.

All commits go to all ranks, the values are summed by a collective, and each rank keeps the same
`RoundState`, the same model and the same state of the rule. So the end of the run, stopping and
checkpoints are decided alike everywhere. What requires a process that outlives a worker is not
possible: no replacement, no --elastic, no asynchronous modes.
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
from .autotuner import AutoEngine
from .engine import CollectiveEngine
from .exchange_state import CollectiveState
from .mpi import MPITransport, started_by_mpi
from .pending_exchange import OverlappedCollective, PendingCollective
from .replicated_model import CommonModel
from .transport import Backoff, CoroutinePool, allgather_texts


class CollectiveExchange(CollectiveState, Exchange):
    """The exchange by a collective.

    Args:
        specification: of the rules that every rank runs; synchronous.
        engine: sums vectors over the ranks.
        watchdog: warns when something takes long.
        start_timeout: seconds to wait for the others to appear.
        round_timeout: seconds to wait for the others in one exchange.
        inject_delay: called before a payload is sent; a straggler on purpose waits in it.

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
        said = self._gather(json.dumps([handshake.encode(), time.monotonic()]), "the handshake of")
        handshakes = {rank: Handshake.decode(json.loads(said[rank])[0]) for rank in range(self.workers)}
        self.round_state = RoundState(self.workers, True, limits, added=self._specification.scalars)
        self._offset = json.loads(said[0])[1]
        notice = StartNotice(handshakes[0])
        for rank, other in handshakes.items():
            if differences := handshakes[0].differences(other):
                raise JobAbortedError(f"worker {rank} does not match worker 0: {'; '.join(differences)}")
            self.round_state.join(rank, other.nonce, self._offset)
            notice.add(other)
        if warning := notice.text():
            progress.warn(warning, launcher=self.rank == 0)
        try:
            self.resume_at = choose({rank: each.offers for rank, each in handshakes.items()})
            self.round_state.resume_at = self.resume_at
        except ValueError as error:
            raise JobAbortedError(str(error)) from None
        self.job = self.round_state.job
        self.weightings = self._specification.weightings()
        self.model = CommonModel(handshake.layout(), self._specification, self.workers)

    def begin(self, vectors: Mapping[str, Source], model: ModelSink) -> Result:
        """See `Exchange.begin`; the model is the sum of rank 0's and zeros."""
        if self.rank == 0:
            self.model.fill(self.model.values, vectors)
        with self.patience("the model of worker 0"):
            self._share(self.model.values)
        self.model.write(model, vectors)
        self.engine.measure(self.model.values.nbytes)
        return self.report(0.0, 0.0, True)

    def start(self, payload: Payload, model: ModelSink) -> PendingCollective:
        """Commit a payload, and begin its exchange; see `Exchange.start`."""
        if payload.control.switch is not None or payload.control.use == Use.AT_ONCE:
            raise ExchangeError(f"--collective {self.engine.name} has no server, which switching to ASP needs")
        self.sequence += 1
        kind = OverlappedCollective if self._specification.overlap else PendingCollective
        self._pending = kind(self, payload, model)
        return self._pending

    def heartbeat(self) -> None:
        """See `Exchange.heartbeat`; it takes in messages, so that failures are noticed soon.

        While an overlapped exchange is under way, its thread does that, and its handle tells.
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
        self._give_up()
        self.control.broadcast(wire.ABORT, self.sequence, text=reason)
        self._linger(lambda: self.control.flushed)

    def close(self) -> None:
        """Leave together with the others.

        A process that ends before MPI has let it go takes the others with it.
        """
        if self._closed:
            return
        self._closed = True
        self._give_up()
        self.control.broadcast(wire.LEAVE, self.sequence)
        if self._failed or self.control.failed:
            self._linger(self._everybody_left)
        else:
            with self.patience("the goodbye of the other workers", "") as wait:
                backoff = Backoff(config.COLLECTIVE_WAIT_PAUSE)
                while not self._everybody_left():
                    wait.what = f"the goodbye of {names(self.control.remaining_peers)}"
                    wait.check()
                    backoff.wait()
        if self._everybody_left():
            self.engine.close()

    # --- checkpoints ------------------------------------------------------------------------------

    def resume(self, state: ResumeState) -> None:
        """See `Exchange.resume`; all ranks call it.

        They take the run's progress and the rule's state from rank 0.
        """
        self.exchanges = self.sequence = state.exchanges
        progress = None if state.progress is None else asdict(state.progress)
        held = [each is not None for each in state.rule_state]
        said = self._gather(json.dumps([progress, held, state.exchanges]), "the checkpoint's progress of")
        progress, held, self.sequence = json.loads(said[0])
        self.exchanges = self.sequence
        self.round_state.acknowledged[:] = self.sequence
        self.round_state.resume(RunProgress(**progress), self._offset)
        vectors: list[np.ndarray | None] = []
        for place, there in enumerate(held):
            vector = np.zeros(self.model.layout.sizes[WEIGHTS], np.float32) if there else None
            if vector is not None:
                if self.rank == 0:
                    np.copyto(vector, state.rule_state[place])
                with self.patience("the checkpoint of worker 0"):
                    self._share(vector)
            vectors.append(vector)
        self.model.restore(vectors)

    @override
    def rule_state(self) -> list[np.ndarray | None]:
        return self.model.state()

    def assign(self, weights: np.ndarray) -> None:
        """See `Exchange.assign`; every rank has the weights."""
        np.copyto(self.model.vector(self.model.values, WEIGHTS), weights)

    @override
    def version(self) -> int:
        return self.round_state.version

    # --- helpers ----------------------------------------------------------------------------------

    def _give_up(self) -> None:
        """Stop taking part in an exchange that is under way."""
        if self._pending is not None:
            self._pending.cancel()

    def _share(self, vector: np.ndarray) -> None:
        """Sum a vector over all ranks, in which all but rank 0 have zeros: so they get rank 0's."""
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

    def _everybody_left(self) -> bool:
        with contextlib.suppress(JobAbortedError):  # said before the goodbye
            self.control.poll()
        return not self.control.remaining_peers and self.control.flushed

    def _linger(self, enough: Any) -> None:
        """Give the others a moment to hear the message, and to leave."""
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
    """Return the ranks in words, for messages."""
    return f"worker {', '.join(map(str, ranks))}" if ranks else "nobody"


def check_start(collective: str) -> None:
    """Check that MPI has started this process, so that it can be a rank.

    Raises:
        EnvironmentProblemError: no MPI has started it.
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
    """Connect to the other ranks over MPI; the arguments are those of `CollectiveExchange`.

    Raises:
        EnvironmentProblemError: no MPI has started this process, or not as many as DMLC_NUM_WORKER
            says.
        MPIMissingError: there is no MPI.
    """
    check_start(collective)
    with watchdog.waiting("MPI to connect all workers", start_timeout, "were all of them started?"):
        transport = MPITransport()
    said = os.environ.get("DMLC_NUM_WORKER")
    if said is not None and said != str(transport.size):
        raise EnvironmentProblemError(
            f"DMLC_NUM_WORKER is {said}, but MPI has started {transport.size} worker(s): they should be the same"
        )
    engine = AutoEngine(transport) if collective == "auto" else CollectiveEngine(collective, transport)
    return CollectiveExchange(specification, engine, watchdog, start_timeout, round_timeout, inject_delay)
