"""The handle of an exchange by a collective: commits of all ranks, sums of buckets, the rule."""

import time

import numpy as np

from ... import config
from ...runtime.futures import BackgroundTask
from ..base import JobAbortedError, ModelSink, Payload, Result
from ..protocol import wire
from ..protocol.layout import Bucket
from ..weighting import divisor, factor
from .control_messages import Commits
from .exchange_state import CollectiveState
from .replicated_model import result_of
from .transport import Backoff, Coroutine, CoroutinePool


class PendingCollective:
    """The handle of an exchange, which advances with every call.

    The buckets of the payload are read one after the other, so its vectors must not change before
    the exchange is done. `wait` writes every bucket of the model as soon as it is updated, unless
    the sum was under way before.
    """

    def __init__(self, exchange: CollectiveState, payload: Payload, model: ModelSink) -> None:
        self._exchange, self._model = exchange, model
        self._sequence = exchange.sequence
        self._vectors, self._returned = payload.vectors, set(payload.returned)
        self._begun = self._ended = time.perf_counter()
        self._waited = 0.0
        exchange.inject_delay()
        self._committed = time.perf_counter()
        exchange.control.broadcast(
            wire.COMMIT, self._sequence, exchange.engine.seconds, part=exchange.part, **payload.fields
        )
        self._commits: Commits | None = None
        self._coroutines: CoroutinePool | None = None
        self._missing: list[int] = []
        self._used = self._over = self._cancelled = self._writes_at_once = False
        self._result: Result | None = None

    def done(self) -> bool:
        """Advance, and return whether the exchange is over.

        Raises:
            JobAbortedError: the run has failed.
        """
        return self._over or self.advance() is None

    def wait(self) -> Result:
        """Wait for the sum, write the model, and return the result."""
        if self._result is None:
            self._writes_at_once = self._coroutines is None
            self.run()
            exchange = self._exchange
            exchange.count()
            written = self._vectors.keys() if self._used and self._writes_at_once else set()
            exchange.model.write(self._model, self._returned - written)
            transfer = max(0.0, self._ended - self._begun - self._waited)
            self._result = result_of(exchange.round_state, self._waited, transfer, self._used)
        return self._result

    def cancel(self) -> None:
        """Stop sending and receiving, because this worker leaves."""
        self._cancelled = True

    def run(self) -> None:
        """Advance until the exchange is over.

        Pauses grow long while other workers compute, and stay short during transfers.
        """
        with self._exchange.patience("the other workers' commits", "") as wait:
            backoff = Backoff(config.COLLECTIVE_WAIT_PAUSE)
            transferring = False
            while not (self._over or self._cancelled):
                happened = self.advance()
                if happened is None:
                    break
                if not transferring and self._coroutines is not None:
                    transferring, backoff = True, Backoff(config.COLLECTIVE_PAUSE)
                if happened:
                    backoff.reset()
                    continue
                wait.what = self._awaited()
                wait.check()
                backoff.wait()

    def advance(self) -> bool | None:
        """Advance as far as possible without waiting.

        Returns:
            Whether something has happened; None when the exchange is over.
        """
        with self._exchange.turn:
            happened = self._advance()
        if happened is None:
            self._ended = time.perf_counter()
        return happened

    def _advance(self) -> bool | None:
        exchange = self._exchange
        exchange.control.poll()
        if self._commits is None:
            self._missing = exchange.control.missing(self._sequence)
            if self._missing:
                return False
            self._waited = time.perf_counter() - self._committed
            self._commits = exchange.control.pop_commits(self._sequence)
            if self._commits.stop:
                exchange.round_state.stop()
            due: list[int] = []
            for message in self._commits.messages.values():
                due += exchange.round_state.commit(message, self._commits.clock)
            if exchange.round_state.failure:  # all ranks come to the same result
                exchange.control.failed = True
                raise JobAbortedError(exchange.round_state.failure)
            if not due:  # the run was over before
                self._over = True
                return None
            self._terms = exchange.round_state.scalars.terms(
                [message for _, message in sorted(self._commits.messages.items())]
            )
            exchange.engine.agree(self._commits.seconds)
            self._transfer_began = time.perf_counter()
            buckets = exchange.model.layout.buckets
            self._coroutines = CoroutinePool(self._sum(bucket) for bucket in buckets if bucket.vector in self._vectors)
        assert self._coroutines is not None
        happened = self._coroutines.advance()
        if not self._coroutines.over:
            return happened
        exchange.round_state.applied(sorted(self._commits.messages), self._commits.clock)
        exchange.engine.seconds = time.perf_counter() - self._transfer_began
        self._used = self._over = True
        return None

    def _sum(self, bucket: Bucket) -> Coroutine:
        """Return the coroutine of one bucket: the sum over the ranks, the mean, the rule."""
        exchange, commits = self._exchange, self._commits
        assert commits is not None
        weighting = exchange.weightings[bucket.vector]
        samples = {rank: int(message["samples"]) for rank, message in commits.messages.items()}
        size = bucket.stop - bucket.start
        buffer = exchange.buffers.acquire(4 * size)
        values = buffer[: 4 * size].view(np.float32)
        exchange.model.read(bucket, self._vectors[bucket.vector], factor(weighting, samples[exchange.rank]), values)
        yield from exchange.engine.allreduce(values, bucket.index)
        total, turn = divisor(weighting, list(samples.values())), exchange.round_state.step
        at_once = self._model if self._writes_at_once and bucket.vector in self._returned else None
        yield from exchange.model.update(bucket, values, total, self._terms, turn, at_once)
        exchange.buffers.release(buffer)

    def _awaited(self) -> str:
        """Return a phrase that names what is awaited."""
        if self._commits is None:
            return f"the commit of worker {', '.join(map(str, self._missing))}"
        return f"the sum over all workers ({self._exchange.engine.name})"


class OverlappedCollective(PendingCollective):
    """The handle of an exchange during which the worker continues to train.

    The payload is copied at the start, a thread runs the exchange, and `wait` writes the model.
    The thread and the main thread take turns in using MPI.
    """

    def __init__(self, exchange: CollectiveState, payload: Payload, model: ModelSink) -> None:
        super().__init__(exchange, exchange.copy(payload), model)
        self._task = BackgroundTask(self.run, super().cancel)

    def done(self) -> bool:
        """Return whether the exchange is over, without waiting."""
        return self._task.done()

    def wait(self) -> Result:
        """Wait for the thread, then write the model and return the result."""
        self._task.wait()
        return super().wait()

    def cancel(self) -> None:
        """Stop sending and receiving, because this worker leaves."""
        self._task.cancel()
