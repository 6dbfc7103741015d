"""esync.Trainer: takes the place of gluon.Trainer in an ordinary Gluon loop, on every device of a cluster."""

import copy
import hashlib
import json
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np

from .algorithms import Algorithm, AlgorithmContext, Hyper, NoCheckpoints, World, make
from .algorithms.loading import agreed_source
from .algorithms.trainer_status import TrainerStatus
from .checkpoints.checkpoints import Checkpoints
from .exchange import values_of
from .exchange.protocol.round_state import Limits
from .gluon.master_weights import MasterWeights
from .gluon.optimizer_to_rule import moving_without_gradient, rule_of, sgd_alone
from .gluon.optimizers import SGD, AdamW
from .gluon.replica import Replica
from .gluon.trainer_interface import GluonTrainer
from .rules import PLAIN_SGD
from .runtime.mxnet_import import mx
from .world import RealWorld

#: Optimizers whose step replaces the weights by what follows from the state alone.
STATE_IS_THE_MODEL = (mx.optimizer.Ftrl, mx.optimizer.FTML)

#: Optimizers whose weight decay has no part in the gradient, so that it does not grow with it.
DECOUPLED_DECAY = (mx.optimizer.AdaGrad, mx.optimizer.AdaDelta, AdamW)

#: A loss scale below this is no remedy for overflows any more: float16's smallest number.
SMALLEST_LOSS_SCALE = 2.0**-24


class Trainer(TrainerStatus, GluonTrainer):
    """Trains Gluon parameters together with the other workers of a cluster.

    Takes what gluon.Trainer takes, in the same order, plus the algorithm. Three things differ from
    plain Gluon over a dist_sync key store, which sums over workers: `batch_size` in `step` is this
    worker's own, and the mean over the workers is taken here; `kvstore`, `compression_params` and
    `update_on_kvstore` stay as they are, None, because the exchange is this project's own; and
    weights begin as rank 0's on all workers.

    Where the optimizer runs depends on what the algorithm sends (`Algorithm.sends`). One that sends
    updates ("esync", "local-sgd", …), or nothing ("local"), takes any Gluon optimizer, runs it on
    the worker and keeps its state across exchanges ("ftrl" and "ftml", whose state determines the
    weights, are for "local" only). With `multi_precision`, what is exchanged is the optimizer's
    float32 copies of float16 weights. One that sends gradients ("sync", "async", …) leaves the step
    to the servers. "sync", "async" and "ssp" take the optimizers "sgd", "nag", "adam", "adamw",
    "rmsprop" and "adagrad" with Gluon's options, clip_gradient among them, and the servers keep
    their state. Learning rate, momentum and wd are carried along with every gradient, so that
    set_learning_rate and schedules reach the servers; the other options are fixed for the run and
    the same on all workers. Algorithms with an SGD of their own there ("dcasgd", "sync-switch")
    take "sgd" with learning_rate, momentum, wd and lr_scheduler. The sparse ones ("dgs", …) take
    the same options, and do the step on the worker, sparsely. Where gradients are sent, there is
    one learning rate and weight decay for all parameters: another lr_mult or wd_mult is refused.

    Where one step is taken with the mean of all workers' gradients ("sync" and "sync-switch",
    `Algorithm.own_rates` is False), all workers must have the same learning rate, momentum and wd.
    They are compared at the start and in every round; where they differ, the run ends on all
    workers with JobAbortedError, which names ranks and values. A schedule (lr_scheduler) counts
    rounds there, so that it also is the same on a worker that takes over the slot of a dead one;
    set_learning_rate must be called on all workers after the same round. With other algorithms
    these settings are each worker's own; where they differ at the start, all workers log it. What
    they must have in common can be said with `agreement`.

    Args:
        params: net.collect_params(), or a dict or list of parameters, on one device.
        optimizer: name or mx.optimizer.Optimizer.
        optimizer_params: keyword arguments of the optimizer, where it is a name.
        algorithm: a mode's name ("esync", "sync", "local", …), `package.module:Class`,
            `file.py:Class`, or an object with its options, such as
            `esync.algorithms.SSP(staleness=2)`.
        limits: what ends the run, for all workers; `finished` tells.
        agreement: more that must be the same on all workers, name → value (a string or a number);
            differences are reported by name at the start.
        world: how this worker reaches the others; by default as the DMLC_* variables and
            ESYNC_STATE_SERVER say.
        checkpoints: where to write checkpoints, and whether to go on from one; call its
            `save_if_due` after each step.
        gradient_scale: how many times the mean gradient of a batch the learning rate multiplies. 1
            is Gluon's manner; with the batch size it is the sum over the batch, as on the command
            line. Weight decay, clipping and the λ of DC-ASGD are relative to the mean gradient in
            either case.

    Attributes:
        algorithm: the algorithm object.
        checkpoints: as given.
        gradient_scale: as given.
        world: the interfaces to the cluster, with the phases of the round in `world.recorder`.

    Raises:
        ValueError: an argument, a parameter or an option of the optimizer cannot be used; named in
            the message.
    """

    def __init__(
        self,
        params: Any,
        optimizer: Any,
        optimizer_params: dict[str, Any] | None = None,
        kvstore: None = None,
        compression_params: None = None,
        update_on_kvstore: None = None,
        *,
        algorithm: str | Algorithm = "esync",
        limits: Limits | None = None,
        agreement: dict[str, Any] | None = None,
        world: World | None = None,
        checkpoints: Checkpoints | None = None,
        gradient_scale: float = 1.0,
    ) -> None:
        for name, value in (
            ("kvstore", kvstore),
            ("compression_params", compression_params),
            ("update_on_kvstore", update_on_kvstore),
        ):
            if value is not None:
                raise ValueError(f"{name}={value!r}: esync.Trainer exchanges in its own way; leave {name} out")
        self.algorithm = make(algorithm)
        if str(optimizer).lower() == "sgd" and self.algorithm.sends != "gradients":
            optimizer, optimizer_params = SGD(**(optimizer_params or {})), None
        if not 0 < gradient_scale < math.inf:
            raise ValueError(f"gradient_scale is {gradient_scale!r}, but should be a number above 0")
        super().__init__(params, optimizer, optimizer_params, kvstore=None)
        self.gradient_scale = gradient_scale
        self._scale *= gradient_scale
        self._rule = PLAIN_SGD
        if self.algorithm.sends == "gradients":
            self._choose_rule(optimizer_params or {})
        else:
            _follow_scale(self._optimizer, gradient_scale)
        self._check_suits(checkpoints)
        self._masters = MasterWeights(self._updaters[0])
        self.world: World = RealWorld() if world is None else world
        self.checkpoints = checkpoints
        self._updates_before = self._optimizer.num_update
        self._limits = limits or Limits()
        self._agreement = dict(agreement or {})
        self._capability = 0.0
        self._started = False
        self._on_trial = False
        self._ignore_stale_grad = False

    # --- the loop ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Find the other workers and begin with the common weights. The first `step` does it where it was not done.

        Called after the parameters have their shapes (initialized, and one batch seen where shapes
        are inferred).

        Raises:
            SecondTrainerError: another Trainer of this process takes part in a cluster already.
        """
        if self._started:
            return
        self.replica = Replica(self._params, self._local_step, self._master, lambda: self._scale / self.gradient_scale)
        shapes = [list(parameter.shape) for parameter in self._params]
        agreement = {
            "algorithm": self.algorithm.name,
            "parameter shapes": _digest(shapes),
            **self.algorithm.options.fixed,
            **self._agreement,
        }
        if self._rule.name != "sgd":  # of which checkpoints of earlier versions say nothing
            agreement["rule of the servers"] = self._rule.name
        if self.algorithm.compression:  # the same
            agreement["compression"] = str(self.algorithm.compression)
        if self.checkpoints is not None:
            self.checkpoints.bind(self, agreement)
        # Rates may be others after a resume, and so may an algorithm's source: checkpoints do not
        # keep them.
        common, own = ({}, self._rates()) if self.algorithm.own_rates else (self._rates(), {})
        agreement = {**self.algorithm.terms, **common, **agreement, **agreed_source(type(self.algorithm))}
        self.algorithm.start(
            AlgorithmContext(
                replica=self.replica,
                world=self.world,
                hyper=self._hyper,
                capability=lambda: self._capability,
                limits=self._limits,
                agreement=agreement if self.checkpoints is None else {**agreement, **self.checkpoints.terms},
                checkpoints=self.checkpoints or NoCheckpoints(),
                own=own,
                rule=self._rule,
            )
        )
        if self.checkpoints is not None:
            self.checkpoints.begun()
        self._started = True
        self.world.device.begin_run(self.elapsed)
        self.world.device.begin_iteration()

    def step(self, batch_size: int, ignore_stale_grad: bool = False) -> None:
        """Go on with the gradients of one batch of this worker: a local step, an exchange, or both.

        Args:
            batch_size: samples of this worker's batch; gradients are divided by it, as in Gluon.
                The mean over the workers is taken by the exchange.
            ignore_stale_grad: as in gluon.Trainer.

        With automatic mixed precision (`mxnet.contrib.amp`) gradients that have overflowed are not
        used. Where the optimizer runs on the workers, the local step is left out, as in Gluon.
        Otherwise nothing is sent, `abandoned` is True, and the exchange has to wait for the next
        batch of this worker.

        Raises:
            JobAbortedError: another worker has ended the run because it failed.
            OverflowError: gradients overflow however small the loss scale is.
            ValueError: `ignore_stale_grad` could leave a parameter out that the algorithm's step
                moves all the same; or a rate that the servers would step with is NaN or infinite.
        """
        if ignore_stale_grad and self.algorithm.plain_sgd:
            raise ValueError(
                f"algorithm {self.algorithm.name!r} moves parameters without a gradient, too, so that none can be left "
                "out of a step: leave ignore_stale_grad out, or set grad_req of such parameters to 'null'"
            )
        self._ignore_stale_grad = ignore_stale_grad
        if self._on_trial:
            self._local_step(batch_size)
            return
        if self.finished:
            raise RuntimeError("the run is over (trainer.finished): there is nobody to exchange with any more")
        if not self._started:
            before = self._weights()
            self.start()
            if not np.array_equal(before, self._weights()):
                return  # these gradients belong to initial weights that rank 0's have just replaced
        if self.algorithm.sends == "gradients":
            self._check_fresh_gradients()
        if self.algorithm.sends == "gradients" and self._overflow():
            self.algorithm.skip()
        else:
            self.algorithm.abandoned = False
            self.algorithm.step(batch_size)
        self._check_loss_scale()
        if not self.abandoned:
            self.world.recorder.samples += batch_size
        self.world.device.begin_iteration()

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Try one iteration: with trainer.trial(): …forward, backward, trainer.step(b)… changes nothing in the end.

        It measures what this device can do before the first round (paper, Algorithm 1,
        RUN-BATCH-DATA-TEST). Weights, statistics and the optimizer's state are put back. The first
        trial of a process also pays for building the graph; the last trial counts. Hooks of the
        algorithm are not called: what they cost is first seen in the run.
        """
        Replica(self._params, self._local_step)  # refuses parameters without a shape, whose values could not be kept
        kept = [(parameter, parameter.data().copy()) for parameter in self._params]
        # Wherever an optimizer keeps its state (Nadam and the schedules have some of their own),
        # the trial uses a copy.
        owners = [self._optimizer, self._updaters[0], *([self._loss_scaler] if self._loss_scaler is not None else [])]
        originals = [(each.__dict__, dict(each.__dict__)) for each in owners]
        scale = self._scale
        shared = ("param_dict", "optimizer")
        for state, _ in originals:
            state.update(copy.deepcopy({name: value for name, value in state.items() if name not in shared}))
        device = self.world.device
        self._on_trial = True
        mx.nd.waitall()
        begun = device.now()
        try:
            yield
            mx.nd.waitall()
            self._capability = max(device.now() - begun, getattr(device, "step_time", None) or 0.0)
        finally:
            self._on_trial = False
            for parameter, values in kept:
                parameter.set_data(values)
            self._scale = scale
            for state, original in originals:
                state.clear()
                state.update(original)

    @contextmanager
    def mean_statistics(self) -> Iterator[None]:
        """Evaluate or save the common model: with trainer.mean_statistics(): net.save_parameters(…).

        Asynchronous workers keep batch-norm statistics of their own, which suit their own data.
        Within the with statement the network of rank 0 has the mean of all workers' latest
        statistics, as of its last exchange. A worker that runs ahead (`run_ahead`) has a model of
        its own: within the with statement its network has the common one of the last exchange. In
        other synchronous modes, with `statistics="rank0"` and on other ranks nothing changes.
        """
        if not self._started:
            yield
            return
        with self.replica.with_mean_statistics():
            yield

    def stop(self) -> None:
        """End the run on all workers after the round under way."""
        self.algorithm.stop()

    def abort(self, reason: str) -> None:
        """End the run on all workers because this one has failed."""
        self.algorithm.abort(reason)

    def busy(self, what: str) -> AbstractContextManager[None]:
        """Tell the others that this worker is alive while the body of a with statement runs.

        With --elastic the others go on without a worker that is silent for longer than the lease.
        Whatever may take that long belongs in such a statement, for instance
        `with trainer.busy("evaluating"): …`. It holds for half of the round timeout at most.
        Writing and reading checkpoints do not need it.

        Args:
            what: what the worker does, for the warning that it takes longer than that.
        """
        exchange = self.algorithm.exchange
        return nullcontext() if exchange is None else exchange.busy(what)

    def close(self) -> None:
        """Leave the cluster; the others go on without waiting for this worker."""
        self.algorithm.close()
        if self.checkpoints is not None:
            self.checkpoints.release()

    def allreduce_grads(self) -> None:
        """Not available: what is exchanged, and when, is up to the algorithm."""
        raise RuntimeError("esync.Trainer has no allreduce_grads and no update; call step")

    def update(self, batch_size: int, ignore_stale_grad: bool = False) -> None:
        """Not available; see `allreduce_grads`."""
        self.allreduce_grads()

    # --- helpers ----------------------------------------------------------------------------------

    def _local_step(self, batch_size: int) -> float:
        """Take a step of the local optimizer; see `Replica`."""
        optimizer = self._optimizer
        before = optimizer.num_update
        super().step(batch_size, self._ignore_stale_grad)
        # After an overflow automatic mixed precision leaves the step out, and the optimizer counts
        # none.
        return float(optimizer.learning_rate) * self.gradient_scale if optimizer.num_update > before else 0.0

    @property
    def _exchanges_weights(self) -> bool:
        """Whether exchanges write to weights that a local optimizer works on."""
        return self.algorithm.sends == "updates"

    def _master(self, parameter: Any) -> Any:
        """The float32 copy of a parameter's weight that is exchanged in the weight's place, or None."""
        if not self._exchanges_weights:
            return None
        return self._masters.of(self._param2idx[parameter.name], parameter.data())

    def _check_fresh_gradients(self) -> None:
        """Do what gluon.Trainer does about gradients that no backward pass has brought up to date."""
        for parameter in self._params:
            if parameter.grad_req == "null":
                continue
            data = parameter.data()
            if not data._fresh_grad:
                if not self._ignore_stale_grad:
                    raise UserWarning(
                        f"the gradient of parameter {parameter.name} has not been updated by backward since the last "
                        "step: this may be a mistake; if it is meant, call step with ignore_stale_grad=True, and this "
                        "parameter is left out"
                    )
                self._check_left_out(parameter)
                parameter.zero_grad()
            data._fresh_grad = False

    def _check_left_out(self, parameter: Any) -> None:
        """Refuse to leave out a parameter that something other than its gradient moves."""
        optimizer, algorithm = self._optimizer, self.algorithm
        moved_by = algorithm.moving_without_gradient(getattr(optimizer, "momentum", 0.0), optimizer.wd)
        if moved_by := [*moved_by, *moving_without_gradient(self._rule)]:
            raise ValueError(
                f"the gradient of parameter {parameter.name} is stale, and ignore_stale_grad asks to leave it out of "
                f"this step, but algorithm {algorithm.name!r} steps with all parameters together, and "
                f"{' and '.join(moved_by)} would go on without a gradient: set to 0 what can be, or use an algorithm "
                "whose optimizer runs on the workers ('esync', 'local-sgd', …)"
            )

    @property
    def _loss_scaler(self) -> Any:
        """The one of automatic mixed precision; None where it is not used."""
        return getattr(self, "_amp_loss_scaler", None)

    def _overflow(self) -> bool:
        """Whether the loss was scaled and these gradients are not finite; makes the next loss scale smaller then."""
        return self._loss_scaler is not None and self._loss_scaler.has_overflow(self._params)

    def _check_loss_scale(self) -> None:
        """Gradients that are never finite would be skipped for ever, and the other workers would wait for them."""
        if self._loss_scaler is not None and self._loss_scaler.loss_scale < SMALLEST_LOSS_SCALE:
            raise OverflowError(
                f"the gradients overflow even with a loss scale of {self._loss_scaler.loss_scale}: the training has "
                "diverged (try a smaller learning rate), or the inputs are not finite"
            )

    def _weights(self) -> np.ndarray:
        replica = Replica(self._params, self._local_step, self._master)
        replica.open()
        weights = values_of(replica.weights)
        replica.close()
        return weights

    def _hyper(self) -> Hyper:
        optimizer, number = self._optimizer, self._updates_before + self.algorithm.updates + 1
        if optimizer.lr_scheduler is not None:
            # Some schedules only know where they are from the calls before. A newcomer has missed
            # those of its slot.
            for missed in range(optimizer.num_update + 1, number):
                optimizer.lr_scheduler(missed)
        optimizer.num_update = number
        rate, momentum = optimizer.learning_rate, getattr(optimizer, "momentum", 0.0)
        _check_rates(rate, momentum, optimizer.wd)
        return Hyper(rate, momentum, optimizer.wd, self._scale, self.gradient_scale)

    def _rates(self) -> dict[str, Any]:
        """The optimizer's settings as they are compared with other workers'; not those of a schedule, which change."""
        optimizer = self._optimizer
        # A local optimizer's weight decay has been made to fit the scale of its gradients.
        fitted = self.algorithm.sends != "gradients" and not isinstance(optimizer, DECOUPLED_DECAY)
        scale = self.gradient_scale if fitted else 1.0
        rates = {"momentum": getattr(optimizer, "momentum", None), "weight decay": optimizer.wd / scale}
        if optimizer.lr_scheduler is None:
            rates["learning rate"] = optimizer.lr
        # To so many digits, because machines may compute other last bits.
        digits = {name: float(f"{rate:.9g}") for name, rate in rates.items() if rate is not None}
        return {"optimizer": type(optimizer).__name__.lower(), **digits}

    def _check_suits(self, checkpoints: Checkpoints | None) -> None:
        """Refuse what an algorithm cannot do."""
        algorithm = self.algorithm
        if checkpoints is not None and algorithm.prevents_checkpoints:
            raise ValueError(
                f"algorithm {algorithm.name!r} keeps no checkpoints with {algorithm.prevents_checkpoints}: they would "
                "lose what workers have not sent yet"
            )
        if not algorithm.has_momentum and getattr(self._optimizer, "momentum", None):
            raise ValueError(f"algorithm {algorithm.name!r} has no momentum: leave it out of the optimizer's options")
        if algorithm.plain_sgd:
            self._check_plain_sgd()
        if self._exchanges_weights and isinstance(self._optimizer, STATE_IS_THE_MODEL):
            raise ValueError(
                f"algorithm {algorithm.name!r} exchanges weights, but the optimizer {type(self._optimizer).__name__!r} "
                "computes the weights from its own state in every step, and so would forget the common ones: use "
                "another one ('adam', 'adagrad', …); algorithm 'local' takes any"
            )
        for parameter in self._params:
            if algorithm.float32_only and np.dtype(parameter.dtype) != np.float32 and parameter.grad_req != "null":
                raise ValueError(
                    f"algorithm {algorithm.name!r} needs float32 weights, but parameter {parameter.name} is "
                    f"{np.dtype(parameter.dtype)}"
                )

    def _check_plain_sgd(self) -> None:
        """Refuse local steps from which the gradients cannot be worked out by dividing by the learning rate."""
        name, optimizer = self.algorithm.name, self._optimizer
        instead = "or use 'local-sgd', 'fedprox' or 'esync', which take any optimizer"
        if not isinstance(optimizer, mx.optimizer.SGD):
            raise ValueError(
                f"algorithm {name!r} takes plain SGD steps on the workers, but the optimizer is "
                f"{type(optimizer).__name__!r}: use 'sgd', {instead}"
            )
        if optimizer.clip_gradient is not None:
            raise ValueError(f"algorithm {name!r} takes plain SGD steps: leave clip_gradient out, {instead}")
        for parameter in self._params:
            if parameter.lr_mult != 1:
                raise ValueError(
                    f"algorithm {name!r} takes plain SGD steps with one learning rate for all parameters, but "
                    f"{parameter.name} has lr_mult {parameter.lr_mult}: leave it out, {instead}"
                )

    def _choose_rule(self, options: dict[str, Any]) -> None:
        """Have the servers, or this algorithm's sparse step, do what the optimizer would; refuse what they cannot."""
        algorithm, optimizer = self.algorithm, self._optimizer
        choose = rule_of if algorithm.optimizer_chooses_rule else sgd_alone
        self._rule = choose(optimizer, options, algorithm.name)
        rate = optimizer.lr if optimizer.lr_scheduler is None else 0.0  # a schedule's is checked whenever it is sent
        _check_rates(rate, getattr(optimizer, "momentum", 0.0), optimizer.wd)
        for parameter in self._params:
            if parameter.lr_mult != 1 or (optimizer.wd and parameter.wd_mult != 1):
                raise ValueError(
                    f"algorithm {algorithm.name!r} steps with one learning rate and weight decay for all parameters, "
                    f"but {parameter.name} has lr_mult {parameter.lr_mult} and wd_mult {parameter.wd_mult}: use an "
                    "algorithm whose optimizer runs on the workers ('esync', 'local-sgd', …)"
                )


def _follow_scale(optimizer: Any, scale: float) -> None:
    """Keep an optimizer's terms relative to the mean gradient when it is given so many times as much."""
    if not isinstance(optimizer, DECOUPLED_DECAY):
        optimizer.wd *= scale
    if optimizer.clip_gradient is not None:
        optimizer.clip_gradient *= scale
    if hasattr(optimizer, "lamda"):  # Gluon's own DCASGD, whose term is quadratic in the gradient
        optimizer.lamda /= scale


def _check_rates(learning_rate: float, momentum: float, weight_decay: float) -> None:
    """ValueError where one is NaN or infinite: it would spoil the weights of all workers at once."""
    for name, rate in (("learning rate", learning_rate), ("momentum", momentum), ("weight decay", weight_decay)):
        if not math.isfinite(rate):
            raise ValueError(f"the {name} is {rate}, but should be a finite number")


def _digest(value: Any) -> str:
    """Return a short text that differs where the values differ."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:12]
