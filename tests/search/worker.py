"""A worker's program, for a model of a few values.

It is what `esync.worker` does around an exchange and its checkpoints.
"""

import math
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from esync.algorithms import Algorithm
from esync.checkpoints.checkpoints import Checkpoints
from esync.exchange import NO_OFFERS, STATISTICS, WEIGHTS, Control, ModelSink, Payload, Result, Specification, Use
from esync.exchange.protocol.client import ParameterServerExchange
from esync.exchange.protocol.pending import PendingExchange
from esync.exchange.protocol.round_state import Limits
from esync.runtime.mxnet_import import mx
from esync.trainer_status import TrainerStatus

from ..support.memory_cluster import MemoryStore
from ..support.vectors import SIZES, Held, gradient, sources, values
from .schedule import Schedule

RATE = 0.25
#: Rounds after which Sync-Switch goes over to the other way, and back, and so on: at most.
SEGMENT = 5
#: Seconds of an iteration of a worker that rounds do not wait for.
DISCARD = 0.1


class Parameter:
    """One vector of the model, as Gluon has it."""

    grad_req, dtype = "write", np.float32

    def __init__(self, name: str, held: Held) -> None:
        self.name, self._held = name, held

    def list_ctx(self) -> list[Any]:
        return [mx.cpu()]

    def list_data(self) -> list[Any]:
        return [mx.nd.array(self._held.vectors[self.name], dtype=np.float32)]

    def set_data(self, data: Any) -> None:
        self._held.vectors[self.name][:] = data.asnumpy()


class Optimizer:
    """Has nothing to remember."""

    def __init__(self) -> None:
        self.lr_scheduler, self.wd, self.rescale_grad = None, 0.0, 1.0


class Training:
    """What checkpoints and the loop ask an algorithm for."""

    name = "search"
    vectors: ClassVar[dict[str, str]] = {}
    left_out: tuple[int, ...] = ()
    in_flight = False

    def __init__(self, exchange: ParameterServerExchange, switches: bool) -> None:
        self.exchange, self._switches = exchange, switches
        self.result: Result | None = None
        self.exchange_count, self.exchanged = 0, False

    @property
    def round(self) -> int:
        """Rounds of the run, as of the last exchange."""
        return self.result.round if self.result is not None else 0

    @property
    def synchronous(self) -> bool:
        """Whether the next payload waits for the others'."""
        if self._switches and self.result is not None and self.result.synchronous is not None:
            return self.result.synchronous
        return self.exchange.specification.synchronous

    @property
    def finished(self) -> bool:
        """Whether the run is over."""
        return self.result is not None and self.result.finished

    def begun(self, result: Result) -> None:
        """The common model is there."""
        self.result = result
        shared = self.synchronous and not self._switches
        self.exchange_count = result.round if shared else self.exchange.exchanges

    def take_part(self) -> None:
        """An exchange begins."""
        if self._switches and self.result is not None:
            self.left_out = self.result.excluded if self.synchronous else ()

    def count(self, result: Result) -> None:
        """An exchange is over."""
        self.result = result
        shared = self.synchronous and not self._switches
        self.exchange_count = result.round if shared else self.exchange_count + result.used
        self.exchanged = result.used

    state, restore = Algorithm.state, Algorithm.restore
    unsent, restore_unsent = Algorithm.unsent, Algorithm.restore_unsent
    checkpoint_written = Algorithm.checkpoint_written


class WatchedExchange(ParameterServerExchange):
    """An exchange that tells the job of every payload; see `world.Job`."""

    def __init__(self, specification: Specification, store: MemoryStore, job: Any) -> None:
        super().__init__(specification, store, host_group=job.host_group(store))
        self._job = job

    def start(self, payload: Payload, model: ModelSink) -> PendingExchange:
        """See `Exchange.start`."""
        self._job.sent(self, payload)
        return super().start(payload, model)


class Checkpointed(TrainerStatus):
    """What checkpoints ask a trainer for, of a model of a few values.

    Attributes:
        trained: payloads of this slot that have been used, which checkpoints track.
    """

    gradient_scale = 1.0

    def __init__(self) -> None:
        self._held, self.trained = Held(), 0
        self.replica = SimpleNamespace(further={}, common=(), holding=nullcontext)
        self._params = self.parameters = self.trained_parameters = [Parameter(name, self._held) for name in SIZES]
        self._optimizer, self.optimizers = Optimizer(), [self]
        self._updaters = [SimpleNamespace(states={}, states_synced={})]

    def state(self) -> dict[str, Any]:
        """What is tracked."""
        return {"trained": self.trained}

    def restore(self, state: dict[str, Any]) -> None:
        """Go back to there."""
        self.trained = int(state["trained"])

    def _master(self, parameter: Any) -> None:
        """There are no float16 weights."""


class Worker(Checkpointed):
    """One worker process, from the moment when it has found the others.

    Args:
        schedule: of the run.
        store: its way to the servers.
        job: what it is part of; is told what happens, and says when the process hangs; see
            `world.Job`.
    """

    def __init__(self, schedule: Schedule, store: MemoryStore, job: Any) -> None:
        self._schedule, self._store, self._job = schedule, store, job
        super().__init__()
        self.exchange = WatchedExchange(schedule.settings.specification, store, job)
        self.training = Training(self.exchange, schedule.settings.switches)
        self._algorithm = self.training  # type: ignore[assignment]

    def run(self) -> None:
        """Train until the run is over."""
        schedule, exchange = self._schedule, self.exchange
        checkpoints = None
        if schedule.every:
            checkpoints = Checkpoints(self._job.folder, schedule.every, schedule.keep, resume=True)
            checkpoints.bind(self, {})
            checkpoints.track("trained", self)
        rank, workers = self._store.rank, schedule.workers
        offers = checkpoints.offers(rank, workers) if checkpoints is not None else NO_OFFERS
        exchange.join(SIZES, Limits(rounds=schedule.rounds), checkpoints.terms if checkpoints else {}, offers)
        for name, vector in values(rank).items():
            self._held.write(name, 0, vector)
        state = None
        if checkpoints is not None:
            state = checkpoints.settle(rank, exchange.job, exchange.resume_at, exchange.replacement)
            if state is not None:
                exchange.resume(state)
        self._job.begins(self, self._held, state.weights if state is not None else None)
        self.training.begun(exchange.begin(sources(self._held.vectors), self._held))
        if checkpoints is not None:
            checkpoints.begun()
        self._job.joined(self)
        while not self.finished:
            self._job.iteration(self)
            exchange.heartbeat()
            self.training.take_part()
            if self._aside:
                self._store.sleep(DISCARD)
                if self.training.result is not None and self.rank not in self.training.result.aside:
                    exchange.step_aside()
                if checkpoints is not None:
                    checkpoints.save_ahead(exchange.newest_round() + 1)
            if self.rank in self.training.left_out:  # else it could always do something, and time would never pass
                self._store.sleep(DISCARD)
            result = exchange.start(self._payload(), self._held).wait()
            self.training.count(result)
            self.trained += result.used
            self._job.exchanged(self, result, self._held)
            if checkpoints is not None and self.exchanged:
                checkpoints.save_if_due()
            if schedule.stop and rank == 0 and result.round >= schedule.stop:
                exchange.stop()
        if checkpoints is not None:
            checkpoints.save()
        self._job.finishes(self)
        exchange.close()

    def _payload(self) -> Payload:
        schedule, specification = self._schedule, self.exchange.specification
        weights = gradient(self.rank, self.exchange.sequence + 1, schedule.workers)
        statistics = values(self.rank, self.exchange.sequence + 1)[STATISTICS]
        vectors = sources({WEIGHTS: weights, STATISTICS: statistics})
        terms: dict[str, Any] = {"momentum": schedule.momentum}
        if specification.sparse:
            places = np.flatnonzero(weights)
            del vectors[WEIGHTS]
            terms = {"step": (places, weights[places])}
        if self._aside:
            returns = (schedule.seed + self.exchange.sequence) % 3 == 0
            terms["control"] = Control(Use.BACK if returns else Use.UNAWAITED)
        if schedule.settings.switches:
            terms["control"] = self._switching()
        return Payload(vectors, 1, RATE, **terms)

    @property
    def _aside(self) -> bool:
        """Whether rounds need not wait for this worker; see `algorithms.tiered_esync`."""
        return self._schedule.settings.tiered and self.rank == self._schedule.workers - 1 > 0

    def _switching(self) -> Control:
        """What a commit of Sync-Switch says beside; see `algorithms.sync_switch`."""
        result, workers = self.algorithm.result, self._schedule.workers
        assert result is not None
        synchronous, excluded = self.algorithm.synchronous, result.excluded
        crowd = workers - len(excluded)
        leads = self.rank == min(set(range(workers)) - set(excluded))
        samples = result.samples + (crowd if synchronous else 1)
        segment = 1 + self._schedule.seed % SEGMENT
        planned = math.floor(samples / (segment * workers)) % 2 == 0
        exclusions = (workers - 1,) if workers > 2 and result.round % 2 == 1 else ()
        # One that has only just begun has not seen yet what the process before may have seen: who
        # is slow.
        knows = self.algorithm.exchanged
        use = Use.TOGETHER if synchronous else Use.AT_ONCE
        return Control(
            Use.DISCARD if synchronous and self.rank in excluded else use,
            switch=planned if knows and (leads or not synchronous) and planned != synchronous else None,
            excluded=exclusions if knows and leads and synchronous and exclusions != excluded else None,
        )
