"""The base class of algorithms: they decide when a worker exchanges, and what it sends.

An algorithm sees the world only through the interfaces in `AlgorithmContext`; it never imports
MXNet, threads, clocks or HTTP. The same object therefore runs on a real cluster and on a modelled
one.
"""

import math
from abc import ABC, abstractmethod
from argparse import Namespace
from collections.abc import Mapping, Set
from dataclasses import replace
from inspect import get_annotations
from typing import Any, ClassVar, Literal

from ..exchange import STATISTICS, WEIGHTS, Exchange, ModelSink, Payload, Result, Source, Specification
from ..exchange.codecs.quantization import NONE
from ..exchange.protocol.round_state import Limits
from ..exchange.weighting import NORMALIZED, SAMPLES
from ..runtime.batch_sizes import EQUAL_ITERATIONS, Division
from ..runtime.futures import Handle
from ..runtime.logged_values import NOISE_SCALE
from ..runtime.phase_timer import COMPUTE, GLOBAL_AGGREGATE, GLOBAL_UPDATE, LOCAL_UPDATE
from .batch_division import BatchBySpeedError, BatchDivision, refusal
from .context import AlgorithmContext, OptimizerPart
from .exchange_options import CompressionOptions
from .gradient_noise import GradientNoise
from .model_view import ModelView
from .options import Options as AnyOptions
from .rate_scaling import NO_SAMPLES, RateDecayOptions
from .styles import Style

#: Key of what the exchange's codecs keep, in the result of `Algorithm.unsent`.
_CODECS = "codecs"

#: What an exchange may carry.
Sends = Literal["gradients", "updates", "nothing"]


class Algorithm(ABC):
    """One worker's side of an algorithm. A subclass defines everything about it.

    Its options are the fields of its nested class `Options`. The constructor takes their values by
    name, `SSP(staleness=2)`, or an object of that class,
    `SSP(SSP.Options(staleness=2))`, which type checkers see through. See
    docs/how-to/adding_an_algorithm.md.

    Attributes:
        name, label, style, summary: see `registry.register`.
        options: the options with their values.
        sends: what the exchanges carry: the "gradients" of batches, with which the servers do SGD;
            "updates", the differences that a local optimizer has made to the weights; or "nothing".
        vectors: name of each further vector that is exchanged beside the weights → name of its rule
            in rules.RULES. Each is as long as the weights and begins with zeros; see
            `before_exchange`.
        per_worker_rates: whether the optimizer's learning rate, momentum and weight decay are each
            worker's own and may differ, because they act on what this worker alone has computed;
            else all workers must have the same.
        optimizer_chooses_rule: whether the servers take the steps of the user's optimizer
            (`AlgorithmContext.rule`, one of several); else where gradients are sent, the optimizer
            is SGD.
        has_momentum: whether the method can use one.
        plain_sgd: whether local steps have to be those of plain SGD, because the method relies on
            their form: no momentum, no clipping, one learning rate for all parameters.
        needs_gradients: whether the messages depend on the values of gradients, so that there is no
            simulation without gradients.
        leaves_out: whether workers may be left out; the built-in worker deals their data to the others.
        float32_only: whether the weights have to be float32, because both sides add the same
            numbers to them.
        synchronous: whether all workers end their rounds together.
        elastic: whether the others can go on without a worker that is gone.
        serverless: whether all workers exchange together, so that a collective can take the
            servers' place.
        switches_synchrony: whether a run goes from synchronous to asynchronous training, or back;
            its curves are recorded then.
        excludes: flag (with underscores) → the flags that it makes meaningless, and why.
        without_state_server: what is missing where no state server is known though the mode could
            use one.
        instead_of_state_server: what to do where the mode needs one and there is none.
        exchange_count: exchanges of this worker's slot, with those of replaced workers; in modes with
            rounds, the number of the newest round that it has taken part in; local: iterations.
        iterations: local iterations of the round under way, or of the one that the last step
            has ended.
        exchanged: whether the last step ended in an exchange.
        abandoned: whether the last step left its gradients unused, because an exchange was due or
            they had overflowed.
        learning_rates: sum of the rates by which the local steps since the last exchange have
            multiplied the mean gradients; a step that was left out after an overflow counts 0.
        result: the outcome of the last exchange.
        left_out: ranks that the last exchange did without, though they are there.
        batches: divides the batches by speed; None: all workers have equal ones.

    Raises:
        TypeError: there is no such option.
        ValueError: a value cannot be used; the message says what was expected.
    """

    class Options(AnyOptions):
        """No options."""

    name: ClassVar[str]
    label: ClassVar[str]
    style: ClassVar[Style]
    summary: ClassVar[str]
    options: AnyOptions
    sends: ClassVar[Sends] = "gradients"
    per_worker_rates: ClassVar[bool] = True
    optimizer_chooses_rule: ClassVar[bool] = False
    has_momentum: ClassVar[bool] = True
    plain_sgd: ClassVar[bool] = False
    vectors: ClassVar[Mapping[str, str]] = {}
    needs_gradients: ClassVar[bool] = False
    leaves_out: bool = False
    float32_only: ClassVar[bool] = False
    elastic: ClassVar[bool] = False
    serverless: ClassVar[bool] = False
    switches_synchrony: ClassVar[bool] = False
    excludes: ClassVar[Mapping[str, tuple[Set[str], str]]] = {}
    without_state_server: ClassVar[str] = ""
    instead_of_state_server: ClassVar[str] = ""
    synchronous: bool = True
    left_out: tuple[int, ...] = ()
    iterations: int = 0
    exchange_count: int = 0
    exchanged: bool = False
    abandoned: bool = False
    learning_rates: float = 0.0
    result: Result = Result()
    exchange: Exchange | None = None
    batches: BatchDivision | None = None
    context: AlgorithmContext
    replica: Any
    device: Any
    recorder: Any
    _fixed: ClassVar[Set[str]]

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        attributes = {name for base in cls.__mro__ for name in (*vars(base), *get_annotations(base))}
        options = getattr(cls.Options, "model_fields", {})  # other classes are refused by `register`
        if clash := sorted(attributes & options.keys()):
            owner = cls.__qualname__
            raise TypeError(f"{owner}.{clash[0]} is an attribute: no option in {owner}.Options can have its name")
        cls._fixed = {"options", *options}

    def __init__(self, *values: Any, **settings: Any) -> None:
        super().__setattr__("options", self.Options.of(*values, **settings))
        self._noise = GradientNoise()

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute, unless it is `options`, or has the name of an option: these stay as they are.

        Raises:
            AttributeError: it is one of them.
        """
        if name in self._fixed:
            owner = type(self).__name__
            if name == "options":
                raise AttributeError(f"{owner}.options cannot be changed: make a new {owner} with other options")
            raise AttributeError(
                f"{owner}.{name} is an option and cannot be set; its value is in `options`, and for another one make "
                f"{owner}({name}={value!r})"
            )
        super().__setattr__(name, value)

    @classmethod
    def check_flags(cls, options: Namespace, typed: Set[str]) -> None:
        """Refuse flags that do not fit each other (`excludes`), beyond what `Options` checks.

        Args:
            options: the parsed flags of a worker.
            typed: names of those that were really given.

        Raises:
            ValueError: flags do not fit; the message says which, and what to do.
        """
        for name, (others, why) in cls.excludes.items():
            if name in typed and (needless := sorted(typed & others)):
                flag, other = (option.replace("_", "-") for option in (name, needless[0]))
                raise ValueError(f"--{other} makes no sense beside --{flag}: {why}")
        if "lr_decay" in typed and not (getattr(options, "epochs", None) or getattr(options, "train_steps", None)):
            raise ValueError(NO_SAMPLES)

    def check_workers(self, workers: int) -> None:  # noqa: B027 - to be overridden where it is of use
        """Raise ValueError if the options do not fit this number of workers."""

    @property
    def asks_state_server(self) -> bool:
        """Whether a state server is needed, and the job is begun there."""
        return False

    @property
    def weight_compression(self) -> str:
        """The compression of messages that carry weights."""
        return self.options.compression if isinstance(self.options, CompressionOptions) else NONE

    @property
    def evaluated_statistics(self) -> str:
        """The batch-norm statistics that are evaluated and exported: "mean" or "rank0".

        "mean" is the mean of all workers' latest, "rank0" rank 0's own.
        """
        return getattr(self.options, "statistics", "mean")

    @property
    def terms(self) -> dict[str, Any]:
        """Settings, beside the specification, that are fixed and the same on all workers.

        They are compared at the start.
        """
        return self.options.agreed

    @property
    def checkpoint_terms(self) -> dict[str, Any]:
        """Settings that a checkpoint must have in common with a run that goes on from it, by name."""
        return self.options.fixed

    @property
    def effective_options(self) -> dict[str, Any]:
        """The values in effect in this run, as JSON can hold them.

        They are named as flags are, with underscores; an option without a flag of its own has its
        own name.
        """
        values = self.options.model_dump(mode="json")
        return {option.dest or option.shared or option.name: values[option.name] for option in self.options.info()}

    @property
    def updates(self) -> int:
        """Number of updates, for a learning rate schedule.

        In modes with rounds it is that of rounds, otherwise that of this slot's exchanges,
        including those of replaced workers.
        """
        return self.exchange_count

    @property
    def round(self) -> int:
        """Rounds of the run, as of the last exchange; asynchronous: commits of all workers ÷ workers."""
        return self.result.round

    @property
    def counts_exchanges(self) -> bool:
        """Whether `exchange_count` may differ from `round`, because workers exchange on their own."""
        return not self.synchronous or self.switches_synchrony

    def updates_of(self, vector: str) -> int:
        """Return the same of the optimizer of a vector; see `context.OptimizerPart`."""
        return self.updates

    @property
    def needs_one_optimizer(self) -> str:
        """Why all parameters need one optimizer; "": there may be several.

        A subclass that takes the steps of several overrides it together with `step_further`.
        """
        if type(self).before_local_step is not Algorithm.before_local_step or self.plain_sgd:
            return "changes the gradients of all parameters together, before one step"
        return "has the servers take the steps of one optimizer" if self.sends == "gradients" else ""

    @property
    def equal_updates(self) -> bool:
        """Whether all workers take equally many optimizer steps between two common models.

        Where they do not, a schedule that counts a worker's own steps gives each worker another
        learning rate, and the trainer warns of it.
        """
        return self.synchronous and not self.switches_synchrony

    @property
    def batch_division(self) -> Division:
        """How batches follow the devices' speeds with `batch_by_speed`."""
        return EQUAL_ITERATIONS

    @property
    def prevents_batch_by_speed(self) -> str:
        """Why workers cannot have batches by speed, and what to do; "": they can."""
        if not self.batch_division.by_samples:
            return ""
        by_samples = not self.vectors and getattr(self.options, "weighting", SAMPLES) != NORMALIZED
        return refusal(self.name, self.synchronous and self.equal_updates, by_samples)

    @property
    def effective_workers(self) -> float:
        """The number of workers, in terms of the busiest one, whose results the step is a mean of.

        1 where it is no mean, or not known yet.
        """
        return 1.0

    @property
    def rate_factor(self) -> float:
        """By what the learning rate of a batch's gradients is multiplied; see `rate_scaling`.

        It changes with exchanges only.
        """
        if not isinstance(self.options, RateDecayOptions):
            return 1.0
        samples = self.result.samples
        limit = self.context.limits.samples if samples else math.inf  # a trial has no context
        return self.options.rate_factor(self.effective_workers, samples, limit)

    @property
    def evaluate_every(self) -> int | None:
        """Steps of the common model between two evaluations; None: the training loop decides."""
        return None

    @property
    def facts(self) -> dict[str, Any]:
        """Facts about the run so far, for run.json, beside those that all algorithms have."""
        changes = isinstance(self.options, RateDecayOptions) and self.options.changes_rate
        return {"learning_rate_factor": self.rate_factor} if changes else {}

    @property
    def exchange_phase(self) -> str:
        """The name of an exchange in the log files."""
        return GLOBAL_UPDATE if self.sends == "updates" else GLOBAL_AGGREGATE

    @property
    def in_flight(self) -> bool:
        """Whether an exchange is under way, during which this worker runs ahead."""
        return False

    @property
    def finished(self) -> bool:
        """Whether the run is over."""
        return self.result.finished

    def start(self, context: AlgorithmContext) -> None:
        """Connect to the other workers, and begin with the common model."""
        decays = isinstance(self.options, RateDecayOptions) and self.options.lr_decay
        if decays and not self.switches_synchrony and math.isinf(context.limits.samples):
            raise ValueError(NO_SAMPLES)
        self.context = context
        self.replica = context.replica
        self.device = context.world.device
        self.recorder = context.world.recorder
        self.replica.add_vectors(self.vectors)

    def begin_step(self, samples: int) -> None:
        """Note the samples of the batch of the next `step`, by which batches by speed are measured and emulated."""
        if self.batches is not None:
            self.device.time_factor = self.batches.begin(samples)

    @abstractmethod
    def step(self, batch_size: int) -> None:
        """Take a step with the gradients that backward has computed, and exchange if it is time."""

    def step_further(self, further: OptimizerPart, batch_size: int) -> None:
        """Take a step of a further optimizer; the iteration ends with `step`."""
        with self.recorder.phase(LOCAL_UPDATE):
            further.local_step(batch_size)

    def skip(self) -> None:
        """End an iteration whose gradients cannot be used, without a step or an exchange."""
        self._end_iteration()
        if self.exchange is not None:
            self.exchange.heartbeat()
        self.exchanged, self.abandoned = False, True

    def before_local_step(self, model: ModelView) -> None:  # noqa: B027 - to be overridden where it is of use
        """Change the gradients of a batch, or the weights, before the gradients are used.

        It does nothing by default. It is called once for every batch, when its gradients are there:
        before the step of the local optimizer, or before they are sent, densely or sparsely. It is
        not called for gradients that are left unused, because an exchange is due or because they
        have overflowed, in a trial (`Trainer.trial`), nor by the simulator without numerics. Its
        time is part of the iteration's, as the phase "local update".

        Args:
            model: this worker's weights, the mean gradient of the batch, and more; valid during the
                call.
        """

    def before_exchange(self, model: ModelView) -> None:  # noqa: B027
        """Write what this worker contributes to the further vectors of an exchange.

        It does nothing by default. It is called when an exchange is due, before anything is sent.
        Weights that are changed here count as progress of this worker, where it sends updates. It
        is not called by the simulator without numerics.

        Args:
            model: as in `before_local_step`, without a gradient. `model.common(name)` are the
                common values of a vector that is named in `vectors`, and `model.contribution(name)`
                is what is sent for it.
        """

    def after_exchange(self, model: ModelView) -> None:  # noqa: B027
        """Look at the common model, or change it, at the end of an exchange.

        It does nothing by default. It is called when the common model has been taken over, the last
        one of a run included; with iterations that have gone on during the exchange, once they have
        been added to it. The common model that a run begins with is not the end of an exchange.
        Weights that are changed here count as progress of this worker, for its next update. It is
        not called by the simulator without numerics.

        Args:
            model: as in `before_local_step`, without a gradient.
        """

    def state(self) -> dict[str, Any]:
        """Return what this worker must remember beyond its options when a run is resumed.

        By default that is nothing. It is called once after `start`, and for every checkpoint.

        Returns:
            Names → what JSON can hold, tuples, and NumPy arrays, also within lists and dicts. Where
            it is empty, nothing is written.
        """
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Go back to what `state` has returned.

        It is called after `start` and before the first step of a resumed run.

        Raises:
            ValueError: that is not possible; the message says why.
        """
        raise ValueError("it has no state that could be restored")

    def unsent(self) -> dict[str, Any]:
        """Return what this worker has learnt and not sent yet, for a checkpoint; empty if nothing.

        An algorithm that keeps such values of its own adds them, as `state` could return them,
        under names of its own. No exchange is under way.
        """
        residuals = self.exchange.unsent() if self.exchange is not None else {}
        return {_CODECS: residuals} if residuals else {}

    def restore_unsent(self, state: dict[str, Any]) -> None:
        """Go on with what `unsent` has returned.

        It is called after `start` and before the first step of a resumed run. A replacement begins
        with nothing: most of what its slot had not sent at a checkpoint has been sent since.

        Raises:
            KeyError, ValueError: that is not possible; the message says why.
        """
        if _CODECS in state and self.exchange is not None:
            self.exchange.restore_unsent(state[_CODECS])

    def checkpoint_written(self) -> None:  # noqa: B027 - to be overridden where it is of use
        """Go on after this worker has written its part of a checkpoint."""

    def moving_without_gradient(self, momentum: float, weight_decay: float) -> list[str]:
        """Return what changes a weight whose gradient is zero, if the step is not the local optimizer's.

        Args:
            momentum: of the optimizer.
            weight_decay: of the optimizer.
        """
        return [name for name, value in (("momentum", momentum), ("weight decay", weight_decay)) if value]

    def _prepare_gradient(self, batch_size: int) -> None:
        """Call `before_local_step`, if defined; the replica must be closed."""
        if type(self).before_local_step is not Algorithm.before_local_step:
            with self.recorder.phase(LOCAL_UPDATE):
                self.replica.call_hook(self.before_local_step, batch_size, self.float32_only)

    def _local_step(self, batch_size: int) -> float:
        """Take a step of the local optimizer; return the seconds of the iteration on the device."""
        self._prepare_gradient(batch_size)
        with self.recorder.phase(LOCAL_UPDATE):
            rate = self.replica.local_step(batch_size)
        self.learning_rates += rate
        self._noise.add_step(rate)
        return self._end_iteration()

    def _contribute(self) -> None:
        """Call `before_exchange`, if defined; the replica must be closed."""
        if type(self).before_exchange is not Algorithm.before_exchange:
            self.replica.call_hook(self.before_exchange, fixed_weights=self.float32_only)

    def _end_iteration(self) -> float:
        """Wait for the device; return the seconds of the iteration."""
        with self.recorder.phase(COMPUTE):
            seconds = self.device.end_iteration()
        if self.batches is not None:
            self.batches.end(seconds)
        self.recorder.add_iteration(seconds)
        return seconds

    def stop(self) -> None:
        """Ask for the run to end after the round under way, on all workers."""
        if self.exchange is not None:
            self.exchange.stop()

    def abort(self, reason: str) -> None:
        """End the run on all workers because this one has failed."""
        if self.exchange is not None:
            self.exchange.abort(reason)

    def close(self) -> None:
        """Disconnect from the other workers."""
        if self.exchange is not None:
            self.exchange.close()

    def _join(self, specification: Specification) -> Exchange:
        """Connect to the other workers."""
        context, replica, times = self.context, self.replica, self.context.world.step_times
        specification = replace(
            specification,
            individual=context.individual,
            vectors={**specification.vectors, **self.vectors},
            scalars={
                **specification.scalars,
                **dict.fromkeys(context.scalars(), "maximum"),
                **(GradientNoise.SCALARS if self._measures_noise else {}),
                **BatchDivision.scalars_of(len(times)),
            },
        )
        if self.weight_compression != NONE:
            tensors = list(replica.weights.sizes)
            specification = replace(specification, compression=self.weight_compression, tensors=tensors)
        agreement = context.agreement
        if times:
            self._check_batch_by_speed()
            if self.batch_division.by_samples:
                specification = replace(specification, weighting=SAMPLES)
            agreement = {**agreement, "batches by speed": " ".join(map(str, times))}
        exchange = context.world.exchange(specification)
        self.exchange = exchange
        if times:
            self.batches = BatchDivision(times, exchange.rank, exchange.workers, self.batch_division)
        offers = context.checkpoints.offers(exchange.rank, exchange.workers)
        sizes = {name: vector.size for name, vector in self._vectors().items()}
        exchange.join(sizes, self._limits(exchange), agreement, offers)
        state = context.checkpoints.settle(exchange.rank, exchange.job, exchange.resume_at, exchange.replacement)
        if state is not None:
            exchange.resume(state)
        context.joined()
        return exchange

    def _start_exchange(self, payload: Payload, model: ModelSink) -> Handle[Result]:
        """Start an exchange, with the trainer's scalars; see `Exchange.start`."""
        assert self.exchange is not None
        scalars = {**payload.scalars, **self.context.scalars()}
        if self.batches is not None:
            scalars.update(self.batches.scalars())
        if self._measures_noise and self.exchange.workers > 1:
            momentum = None
            if self.sends == "updates":
                momentum = next((optimizer.momentum() for optimizer in self.context.optimizers), 0.0)
            scalars.update(self._noise.measure(payload, self.replica.vectors, self.round, momentum))
        return self.exchange.start(replace(payload, scalars=scalars), model)

    def _check_batch_by_speed(self) -> None:
        why = self.prevents_batch_by_speed
        if not why and self.sends == "gradients" and len(self.context.optimizers) > 1:
            why = "with several optimizers only the last exchange of an iteration carries samples; leave it out"
        if why:
            raise BatchBySpeedError(f"batch_by_speed: {why}")

    @property
    def _measures_noise(self) -> bool:
        return self.synchronous and not self.switches_synchrony and self.sends != "nothing"

    def _limits(self, exchange: Exchange) -> Limits:
        """Return the limits of the run, after the number of workers is known."""
        return self.context.limits

    def _begin(self, exchange: Exchange) -> None:
        """Receive the common model."""
        replica = self.replica
        replica.open()
        self.result = exchange.begin(self._vectors(), replica)
        replica.close()
        self.exchange_count = self.result.round if self.synchronous else exchange.exchanges
        if self.batches is not None:
            self.batches.follow(self.result, participated=False)

    def _vectors(self) -> dict[str, Any]:
        """Return the vectors of this worker's replica that are exchanged."""
        return {**self.replica.vectors, STATISTICS: self.replica.statistics, **self.replica.further}

    def _with_statistics(self, vectors: Mapping[str, Source]) -> dict[str, Any]:
        """Return the vectors to send and those to receive, with batch-norm statistics.

        The replica must be open. Synchronous workers replace their statistics by the mean.
        Asynchronous workers send theirs and keep them; rank 0, which evaluates and exports, also
        receives the mean.
        """
        replica = self.replica
        vectors = {**vectors, **self._contributions()}
        if not self.synchronous and self.evaluated_statistics != "mean":
            return {"vectors": vectors}
        if self._leads:
            replica.keep_statistics(separate=not self.synchronous)
        returned = None if self.synchronous or self._leads else {WEIGHTS, *vectors}
        return {"vectors": {**vectors, STATISTICS: replica.statistics}, "requested": returned}

    @property
    def _leads(self) -> bool:
        """Whether this worker evaluates and exports the model."""
        return self.exchange is not None and self.exchange.rank == 0

    def _contributions(self) -> dict[str, Source]:
        """Return the contribution of this worker to each further vector."""
        return {name: self.replica.contributions[name] for name in self.vectors}

    def _count(self, result: Result) -> None:
        """Count a finished exchange, and call `after_exchange`; the replica must be closed."""
        self.learning_rates = 0.0
        self.result = result
        if self.batches is not None:
            self.batches.follow(result)
        if self._measures_noise and (noise_scale := self._noise.follow(result.scalars)) is not None:
            self.recorder.log(NOISE_SCALE, noise_scale)
        self.exchange_count = result.round if self.synchronous else self.exchange_count + result.used
        self.exchanged = result.used
        if type(self).after_exchange is not Algorithm.after_exchange:
            with self.recorder.phase(self.exchange_phase):
                self.replica.call_hook(self.after_exchange, fixed_weights=self.float32_only)
