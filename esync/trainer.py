"""esync.Trainer, which takes the place of gluon.Trainer in an ordinary Gluon loop."""

import logging
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from typing_extensions import override

from .algorithms import Algorithm, AlgorithmContext, CheckpointHooks, World, make
from .algorithms.choice import DEFAULT_ALGORITHM, resolve_algorithm
from .checkpoints.checkpoints import Checkpoints
from .exchange import JobAbortedError
from .exchange.protocol.round_state import Limits
from .gluon.batch_samples import ONE_SAMPLE, divisor_and_samples, whole_batch_size
from .gluon.loader_batches import Batch, LoaderBatches
from .gluon.logged_numbers import LoggedNumbers
from .gluon.optimizer_checks import check_unused
from .gluon.optimizer_trainer import OptimizerTrainer
from .gluon.parameter_kinds import check_types, distinct, others_of, others_warning
from .gluon.randomness import seed_mxnet
from .gluon.replica import Replica, track_running_statistics, weights_of
from .runtime import progress
from .runtime.exit_hooks import ExitHooks
from .runtime.mxnet_import import mx
from .runtime.set_once import SetOnce
from .runtime.worker_environment import WorkerEnvironment, claim_worker, is_alone
from .trainer_agreement import Agreement
from .trainer_callbacks import IterationReport, TrainerCallback, checkpoints_of
from .trainer_end import EndingMixin
from .trainer_optimizers import FurtherTrainer, SeveralOptimizers
from .world import RealWorld

log = logging.getLogger(__name__)

#: Iterations whose phases are kept where no run takes them.
NEWEST_ITERATIONS = 1000


class Trainer(SeveralOptimizers, EndingMixin):
    """Trains Gluon parameters together with the other workers of a cluster.

    Takes what gluon.Trainer takes, in the same order, plus the algorithm. Three things differ from
    plain Gluon over a dist_sync key store, which sums over workers: `batch_size` in `step` is this
    worker's own, and the mean over the workers is taken here; `kvstore`, `compression_params` and
    `update_on_kvstore` have no effect (`kvstore` may be "local" or "device"), because the exchange is
    this project's own; and weights begin as rank 0's on all workers.

    Where the optimizer runs depends on what the algorithm sends (`Algorithm.sends`): where updates
    are sent ("esync", "local-sgd", …), or nothing ("local"), any Gluon optimizer runs on the worker
    and keeps its state across exchanges. Where gradients are sent ("sync", "async", "dgs", …), the
    servers take the step, or the algorithm does, with the optimizers that docs/reference/modes.md
    lists for it, and one learning rate and weight decay for all parameters.

    Where one step is taken with the mean of all workers' gradients (`Algorithm.per_worker_rates` is False)
    learning rate, momentum and wd must be the same on all workers, in every round; else the run ends
    with JobAbortedError, which names ranks and values. With other algorithms each worker has its
    own. `esync.CommonLRScheduler` gives workers that take different numbers of steps the same rate.

    Args:
        params: net.collect_params(), or a dict or list of parameters, on one device.
        optimizer: name or mx.optimizer.Optimizer.
        optimizer_params: keyword arguments of the optimizer, where it is a name.
        algorithm: a mode's name ("esync", "sync", "local", …), `package.module:Class`,
            `file.py:Class`, or an object with its options, such as
            `esync.algorithms.SSP(staleness=2)`. None: what ESYNC_ALGORITHM says, as with
            `esync launch -m`, or "esync". Where the environment has no DMLC_* variable at all, so
            that there is no cluster, it is "local", and a line says so.
        limits: what ends the run, for all workers; `finished` tells.
        agreement: more that must be the same on all workers, name → value (a string or a number).
            Differences are reported by name at the start.
        world: how this worker reaches the others. None: as the DMLC_* and ESYNC_* variables
            say (`esync.world.RealWorld.from_environment()`).
        checkpoints: where to write checkpoints, and whether to resume from one; call its
            `save_if_due` after each step.
        sources: like `agreement`, but may change before a run is resumed, as digests of source code do.
        gradient_scale: how many times the mean gradient of a batch the learning rate multiplies. 1
            is Gluon's manner; with the batch size it is the sum over the batch, as on the command
            line. Weight decay, clipping and the λ of DC-ASGD are relative to the mean gradient in
            either case.
        dataset_size: samples of the whole training set, by which `epoch` counts.
        run: an `esync.Run`, which records logs, evaluations, checkpoints and the final model.

    Attributes:
        checkpoints: as given, or those of the run.
        gradient_scale: as given.
        steps: calls of `step` so far in this process, trials not counted.
        ends_run: whether `close` ends the run on all workers where it is not finished.
        world: the interfaces to the cluster, with the phases of the round in `world.recorder`;
            of its newest iterations only, unless the run takes them
            (`TrainerCallback.takes_phases`).

    Raises:
        ValueError: an argument, a parameter or an option of the optimizer cannot be used; named in
            the message.
    """

    checkpoints = SetOnce[Checkpoints | None]()
    world = SetOnce[World]()

    def __init__(
        self,
        params: Any,
        optimizer: Any,
        optimizer_params: dict[str, Any] | None = None,
        kvstore: str | None = None,
        compression_params: None = None,
        update_on_kvstore: bool | None = None,
        *,
        algorithm: str | Algorithm | None = None,
        limits: Limits | None = None,
        agreement: dict[str, Any] | None = None,
        world: World | None = None,
        checkpoints: Checkpoints | None = None,
        gradient_scale: float = 1.0,
        dataset_size: int | None = None,
        run: TrainerCallback | None = None,
        sources: dict[str, str] | None = None,
    ) -> None:
        check_unused(kvstore=kvstore, compression_params=compression_params, update_on_kvstore=update_on_kvstore)
        algorithm = resolve_algorithm(algorithm) if world is None else make(algorithm or DEFAULT_ALGORITHM)
        super().__init__(distinct(params), optimizer, optimizer_params, algorithm, gradient_scale, dataset_size)
        self._others: list[Any] = []
        self._run = run or TrainerCallback()
        measures = (world is None or isinstance(world, RealWorld)) and WorkerEnvironment.read().measure
        if measures:  # without end, and without a trace
            self._run, checkpoints, limits = IterationReport(), None, None
        self.check_plateau(self._run.evaluates)
        checkpoints = checkpoints_of(self._run, checkpoints)
        if world is None and self.algorithm.sends != "nothing":
            if is_alone():
                self._become_local()
            else:
                claim_worker()
        self.world = RealWorld.from_environment() if world is None else world
        if not self._run.takes_phases:
            self.world.recorder.keep_newest(NEWEST_ITERATIONS)
        self.checkpoints = checkpoints
        self._limits = limits or Limits()
        self._agreement, self._sources = dict(agreement or {}), dict(sources or {})
        self._capability = 0.0
        self._hooks = ExitHooks(self._end)
        self.steps = 0
        self._logged = LoggedNumbers()
        self._left_out = False  # whether the rest of the iteration is, after a further optimizer's step
        self._follow_progress()

    # --- the loop ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Find the other workers and begin with the common weights.

        Call it after the parameters have their shapes (initialized, and one batch seen where shapes
        are inferred). Where the program has not called it, the first `step` does.

        Raises:
            SecondTrainerError: another Trainer of this process takes part in a cluster already.
        """
        if self._started:
            return
        self._check_open()
        self._run.setup(self)
        self._others = others_of(self._run.network_parameters(), self.trained_parameters)
        for optimizer in self.optimizers:
            optimizer._follow_optimizer()
        self.check_plateau(self._run.evaluates)  # of an optimizer that has been replaced
        self.replica = Replica(
            self.trained_parameters,
            self._local_step,
            self._master,
            lambda: self._scale / self.gradient_scale,
            self._others,
            self.sections if self.algorithm.sends == "gradients" else None,
        )
        if self.algorithm.sends != "nothing":
            check_types(self.parameters, self.algorithm.name)
        real = isinstance(self.world, RealWorld)  # other worlds have their workers in one process
        agreement = Agreement.of(
            self.algorithm, self.parameters, self.optimizers, self.dataset_size, self._agreement, self._sources, real
        )
        if self.checkpoints is not None:
            self.checkpoints.bind(self, agreement.model)
        progress.report_event(progress.READY)
        try:
            self.algorithm.start(
                AlgorithmContext(
                    replica=self.replica,
                    world=self.world,
                    hyper=self._hyper,
                    capability=lambda: self._capability,
                    limits=self._limits,
                    agreement={**agreement.common, **(self.checkpoints.terms if self.checkpoints is not None else {})},
                    checkpoints=self.checkpoints or CheckpointHooks(),
                    individual=agreement.individual,
                    joined=lambda: self._run.joined(self),
                    rule=self._rule,
                    optimizers=[optimizer.part for optimizer in self.optimizers],
                    scalars=lambda: self.scalars,
                )
            )
        finally:
            # Also where it has failed: the others may know of this worker by now. Worlds other than
            # the real one do not end with this process. Alone and without records nobody cares.
            alone = self.algorithm.exchange is None and type(self._run) is TrainerCallback
            if real and not alone:
                self._hooks.install()
        if self.checkpoints is not None:
            self.checkpoints.begun()
        track_running_statistics(self.parameters)
        if real and self.workers > 1:
            seed_mxnet(self.rank)
        for optimizer in self.optimizers:
            optimizer.begin()
        if self.finished:
            self.replica.keep_final_statistics()
        for optimizer in self.optimizers:
            optimizer._follow_progress()
            optimizer._check_schedule()
        if self._others and self.rank == 0 and self.workers > 1:
            log.warning("%s", others_warning(self._others))
        progress.report_event(progress.JOINED, rank=self.rank, exchanges=self.exchanges)
        self._run.train_begin(self)
        self._hooks.go_first()
        self.world.device.begin_run(self.elapsed)
        self.world.recorder.begin_iteration()
        self.world.device.begin_iteration()

    def step(self, batch_size: float, ignore_stale_grad: bool = False, *, samples: int | None = None) -> None:
        """Go on with the gradients of one batch of this worker: a local step, an exchange, or both.

        Args:
            batch_size: what gradients are divided by, as in Gluon: the number of samples of this
                worker's batch, or 1 where the loss is their mean. The mean over the workers is
                taken by the exchange.
            ignore_stale_grad: as in gluon.Trainer.
            samples: the number of samples that limits, epochs and logs count, where it is not
                `batch_size`: step(1, samples=64) for the mean loss of 64 samples.

        With automatic mixed precision (`mxnet.contrib.amp`) gradients that have overflowed are not
        used. Where the optimizer runs on the workers, the local step is left out, as in Gluon.
        Otherwise nothing is sent, `abandoned` is True, and the exchange has to wait for the next
        batch of this worker; where it is a further optimizer's step (`add_optimizer`), the others of
        this iteration are left out, too, and the next iteration begins with it.

        Raises:
            BatchSizeError: `batch_size` is not above 0, or the samples are no whole number of 1 or
                more.
            JobAbortedError: another worker has ended the run because it failed.
            OverflowError: gradients overflow however small the loss scale is.
            RunFinished: the run is over, which the program should have seen by `finished`. It is a
                SystemExit, which ends the program with exit code 0, or the with statement around
                the trainer.
            ValueError: `ignore_stale_grad` could leave a parameter out that the algorithm's step
                moves all the same; or a rate that the servers would step with is NaN or infinite.
        """
        self.step_optimizer(self, batch_size, ignore_stale_grad, samples)

    def step_optimizer(
        self,
        optimizer: OptimizerTrainer,
        batch_size: float,
        ignore_stale_grad: bool = False,
        samples: int | None = None,
    ) -> None:
        """Take a step of this trainer's own optimizer (`step`), or of a further one."""
        if ignore_stale_grad and self.algorithm.plain_sgd:
            raise ValueError(
                f"algorithm {self.algorithm.name!r} moves parameters without a gradient, too, so that none can be left "
                "out of a step: leave ignore_stale_grad out, or set grad_req of such parameters to 'null'"
            )
        optimizer._ignore_stale_grad = ignore_stale_grad
        divisor, count = divisor_and_samples(batch_size, samples)
        if self._on_trial:
            with optimizer._divided(divisor, count):
                optimizer._local_step(count)
            return
        further = optimizer if isinstance(optimizer, FurtherTrainer) else None
        if further and self.finished:
            return  # the trainer's own step says what is to be done
        if self.finished:
            self.replica.restore_final_statistics()
            if self.steps:
                self._leave_loop()
        self._check_open()
        if self._started and self.algorithm.sends != "nothing":
            self.replica.check_trained(frozen_allowed=self.algorithm.sends == "updates")
        self.steps += further is None
        if further is None and self.steps == 1:
            self.check_order()
        counted = self.dataset_size is not None or math.isfinite(self._limits.samples)
        if counted and self.steps == divisor == 1 and samples is None and further is None:
            log.warning("%s", ONE_SAMPLE)
        stale = False
        if not self._started:
            before = weights_of(self.trained_parameters, self._master)
            self.start()
            # Gradients of initial weights that rank 0's have just replaced.
            stale = not np.array_equal(before, weights_of(self.trained_parameters, self._master))
        if stale or self.finished:  # a resumed run may have nothing left to do
            self.algorithm.abandoned = True
            self._logged.clear()
            self._left_out = stale and further is not None
            return
        gradients = self.algorithm.sends == "gradients"
        if further is None or gradients:
            self.world.recorder.end_computing(again=bool(self._further))
        if gradients:
            optimizer._check_fresh_gradients()
        self._left_out = self._left_out or (gradients and optimizer._overflow())
        if self._left_out and further:
            self.algorithm.abandoned = True
        elif self._left_out:
            self._left_out = False
            self.algorithm.skip()
        else:
            self.algorithm.abandoned = False
            if further is None:
                self.algorithm.begin_step(count)
            try:
                with optimizer._divided(divisor, count):
                    if further:
                        self.algorithm.step_further(further.part, count)
                    else:
                        self.algorithm.step(count)
            except JobAbortedError as error:
                # It is another worker's: how it has come here helps nobody.
                raise error.with_traceback(None) from None
        optimizer._check_loss_scale()
        optimizer._follow_progress()
        if further:
            return
        if not self.abandoned:
            self.world.recorder.samples += count
            self._logged.record(self.world.recorder)
        self._logged.clear()
        if self.finished:
            self.replica.keep_final_statistics()
        self._run.batch_end(self)
        self.world.recorder.begin_iteration()
        self.world.device.begin_iteration()

    def log(self, /, **values: Any) -> None:
        """Log numbers by name, such as `trainer.log(loss=loss.mean(), learning_rate=trainer.learning_rate)`.

        Call it before `step`: the numbers are those of the iteration that `step` ends, and are left
        out with a batch whose gradients it leaves unused. The logs of each round (`esync.Run`) have
        the mean over all calls of the round, on each worker; so do summaries, `report.html`, the
        dashboard and TensorBoard.

        Args:
            values: numbers, or NumPy or MXNet arrays of one element; MXNet's are read when the step ends.
                A mean that is NaN or infinite shows as missing.

        Raises:
            LoggedValueError: a value is no single number; or a name is taken, or the 33rd.
        """
        self._logged.add(values, self._run.evaluates, keep=not self._on_trial)

    def batches(self, loader: Iterable[Batch], begin_epoch: Callable[[int], None] | None = None) -> Iterator[Batch]:
        """Return an iterator over a loader's batches, epoch after epoch, until the run is over.

        It restarts the loader at the end of each epoch, ends when the run is `finished`, and repeats
        a batch whose gradients a step has left unused (`abandoned`). The logs show the time that the
        loop waits for batches as the phase "get_batch". Checkpoints contain the position of the
        iterator made last; a resumed run skips the batches of that epoch up to there, which takes
        as long as loading them.

        Among several workers, NumPy's, Python's and MXNet's generators are seeded by rank and epoch
        before each epoch, from numbers that they draw when the first one begins. So the program's
        own seeds make a run repeatable, and a resumed run has the same order of a
        `DataLoader(…, shuffle=True)`. A worker alone is not seeded; there
        `begin_epoch=numpy.random.seed` repeats the order.

        Args:
            loader: a `gluon.data.DataLoader`, a DataIter, a list, or anything else that can be gone
                through again and again. Before each epoch its `set_epoch(number)` and `reset()` are
                called where it has them.
            begin_epoch: called with the number of each epoch, from 0, before the loader is started,
                and before the generators are seeded.

        Raises:
            NoBatchesError: from the iterator: the loader has no batch, or cannot be started anew.
            TypeError: the loader cannot be gone through in a for statement.
        """
        batches = LoaderBatches(self, loader, begin_epoch)
        if self.checkpoints is not None:
            self.checkpoints.track("loader", batches)
        return batches

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Try one iteration, and undo what it changes, within a with statement.

        Forward, backward and `trainer.step(batch_size)` in `with trainer.trial(): …` measure what
        this device can do before the first round (paper, Algorithm 1, RUN-BATCH-DATA-TEST).
        Weights, statistics and the optimizer's state are put back in the end. The first trial of a
        process also pays for building the graph; the last trial counts. Hooks of the algorithm are
        not called: what they cost is first seen in the run.
        """
        device = self.world.device
        with self.undone(self._others or others_of(self._run.network_parameters(), self.trained_parameters)):
            mx.nd.waitall()
            begun = device.now()
            yield
            mx.nd.waitall()
            self._capability = max(device.now() - begun, getattr(device, "step_time", None) or 0.0)

    @contextmanager
    def mean_statistics(self) -> Iterator[None]:
        """Let the network have the common model within a with statement, to evaluate or save it.

        Where rank 0 averages the common models (`esync.Run(weight_average="polynomial")`), its network has
        the average.

        For instance: `with trainer.mean_statistics(): net.save_parameters(…)`. Asynchronous workers
        keep batch-norm statistics of their own, which suit their own data. Within the with
        statement the network of rank 0 has the mean of all workers' latest statistics, as of its
        last exchange. A worker that runs ahead (`run_ahead`) has a model of its own: within the
        with statement its network has the common one of the last exchange. In other synchronous
        modes, with `statistics="rank0"` and on other ranks nothing changes.
        """
        if not self._started:
            yield
            return
        with self.replica.holding(self.replica.evaluated):
            yield

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do something other than training: with trainer.paused(): …evaluate….

        The time does not count as this worker's: neither the state server nor an algorithm takes
        the device for a slow one. The others do not stop for it: where they need this worker in a
        round they wait for it, for the round timeout at most; with --elastic for half of that.
        """
        with self.world.device.paused(), self.world.recorder.paused():
            yield

    @override
    def batch_size(self, batch_size: int) -> int:
        if not self._started and not self._on_trial and self.world.step_times:
            self.start()
        size = whole_batch_size(batch_size, "trainer.batch_size")
        return self._run.batch_size(self, super().batch_size(size))

    # --- helpers ----------------------------------------------------------------------------------

    @property
    def parameters(self) -> list[Any]:
        """The parameters that are exchanged: those of all optimizers, and what else the run's network has."""
        return [*self.trained_parameters, *self._others]
