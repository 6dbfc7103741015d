"""esync.Run: the records of a training program, built in or the user's own.

They are the round logs and run.json, progress lines, the state server's dashboard, evaluations in
the background, checkpoints, the end of the run at a target, and the final model.
"""

import logging
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .. import config
from ..checkpoints.checkpoints import Checkpoints
from ..coordination.round_reporter import RoundReporter
from ..exchange.collectives.worker_exchange import CollectiveExchange
from ..gluon.parameter_kinds import UnsuitableParametersError, rounds_weights
from ..gluon.weight_average import AVERAGE
from ..loggers import BackgroundLogger, LoggedRun, Logger, chosen_loggers
from ..loggers.tensorboard import EventFile, require
from ..runtime import progress
from ..runtime.environment import state_server_address
from ..runtime.errors import EvaluationError, enumeration
from ..runtime.exit_hooks import failure
from ..runtime.files import expanded
from ..runtime.metric import Goal, Metric
from ..runtime.mxnet_arrays import array_module
from ..runtime.preemption import PreemptionNotice
from ..runtime.progress import ProgressReporter
from ..runtime.run_names import run_name
from ..runtime.set_once import SetOnce
from ..runtime.worker_environment import DEVICE, WorkerEnvironment
from ..trainer import Trainer
from ..trainer_callbacks import TrainerCallback
from .callbacks import make_callbacks
from .evaluation_process import EvaluationProcess, EvaluationProgram
from .forked_evaluation import ForkedEvaluation
from .inline_evaluator import InlineEvaluator
from .loop import DIVERGED
from .plain_arrays import PlainArrays
from .plateau_detection import PlateauDetection
from .round_callbacks import Evaluator, LogClock, PeriodicEvaluation, RoundCallbacks, average_of
from .round_log import MODEL_FOLDER, RoundLog, loggers_of
from .run_facts import facts_after_start
from .run_folder import names_of, run_folder, same_below
from .unrecognized_classes import UnrecognizedClasses

log = logging.getLogger(__name__)


class Run(TrainerCallback):
    """The records of a run; give it to `esync.Trainer`, which tells it what happens.

    On every worker it writes a file for each round (`iter-N.txt`) and `run.json`, which
    `esync summarize` and `esync plot` read, prints a line for each round, and reports to the state
    server's dashboard where one is known. Rank 0 evaluates the common model now and then, in a
    process of its own, so that nobody waits for it, and writes the final model.

    Args:
        log_dir: base folder of the logs; None stands for ESYNC_LOG_DIR, or `logs`.
        name: name of the run, which keeps its logs apart, in `{log_dir}/{program}/{mode}@{name}/{host}`.
            A job of the launcher gets its name from there, by `--name`.
        tensorboard: folder for event files of TensorBoard. Below it they are as the logs are
            below `log_dir`. None stands for ESYNC_TENSORBOARD, which `esync launch --tensorboard`
            sets, or for none.
        loggers: get the rounds and evaluations of rank 0, and its final model, such as
            `esync.loggers.WandbLogger`. Others are `MLflowLogger`, and classes of the user's own
            (`esync.loggers.Logger`). None stands for those of ESYNC_WANDB and ESYNC_MLFLOW, which
            `esync launch --wandb` and `--mlflow` set.
        evaluate: a function without arguments that returns the metric of the network's current weights, or a
            mapping of names to numbers. In a mapping, the metric has its name, and the others are further
            results, such as `recall/3`. It is called in a fork of rank 0's
            process, so that it may use whatever the program has in memory, but changes nothing here;
            on a GPU, which a fork cannot use, in the worker itself, which waits for it. It is tried
            once before the first round. An `EvaluationProgram` starts a process of its own. None evaluates nothing.
        background: False: call `evaluate` in the worker itself.
        evaluation_timeout: seconds that one evaluation in the background may take.
        every: rounds between two evaluations, in asynchronous modes exchanges of rank 0, unless the
            algorithm says how often.
        metric: name of the metric, and whether it should be high ("max") or low ("min").
        target: value of the metric that ends the run on all workers; None if there is none.
        checkpoints: where to write checkpoints, and whether to resume from one. Those that are due
            are written after the steps. None stands for ESYNC_CHECKPOINT_DIR, which
            `esync launch --checkpoint-dir` sets, or for no checkpoints.
        net: the network, a Gluon block. Its final model is written at the end, beside the
            checkpoints or the logs. None writes no final model.
        input_shape: shape of one input without the batch, for instance (1, 28, 28). With it, shapes
            of `net` that are inferred are known before the first batch, and the final model is also
            written as a symbol and as ONNX.
        before_export: called before the final model is written, while the network has it.
        facts: further facts for run.json, by name, as JSON can hold them.
        device: name of this worker's device, such as gpu0. It is also that of its log folder, if the
            launcher has not chosen one.
        overwrite: delete the logs of an earlier run instead of moving them aside.
        quiet: print no lines.
        state_server: host:port of the state server whose dashboard shows the run, unless the
            algorithm names one. None stands for ESYNC_STATE_SERVER, if that is set.
        job: name of the training there. The algorithm's comes first; None stands for ESYNC_JOB, or `default`.
        weight_average: "polynomial": evaluate, and save as the final model, an average of the common models so
            far; "none": the newest one. See `gluon.weight_average`. None
            stands for ESYNC_WEIGHT_AVERAGE, which `esync launch --weight-average` sets, or for "none".

    Attributes:
        checkpoints: the checkpoints that were given, or those of the environment.
        folder: the folder of this worker's logs; None before the trainer has started.
        unrecognized_classes: warns on rank 0 where `evaluate` returns recalls, as `recall/CLASS`.

    Raises:
        LoggerError: a package that a logger needs is not installed.
        ValueError: an argument cannot be used; the message names it.
    """

    takes_phases = True
    checkpoints = SetOnce[Checkpoints | None]()

    def __init__(
        self,
        log_dir: str | Path | None = None,
        *,
        name: str | None = None,
        tensorboard: str | Path | None = None,
        loggers: Sequence[Logger] | None = None,
        evaluate: Callable[[], Any] | EvaluationProgram | None = None,
        background: bool = True,
        evaluation_timeout: float = config.EVALUATION_TIMEOUT,
        every: int = 1,
        metric: tuple[str, Goal] = ("accuracy", "max"),
        target: float | None = None,
        checkpoints: Checkpoints | None = None,
        net: Any = None,
        input_shape: tuple[int, ...] | None = None,
        before_export: Callable[[], None] | None = None,
        facts: dict[str, Any] | None = None,
        device: str | None = None,
        overwrite: bool = False,
        quiet: bool = False,
        state_server: str | None = None,
        job: str | None = None,
        weight_average: str | None = None,
    ) -> None:
        environment = WorkerEnvironment.read()
        weight_average = environment.weight_average if weight_average is None else weight_average
        if weight_average not in config.WEIGHT_AVERAGES:
            kinds = " or ".join(map(repr, config.WEIGHT_AVERAGES))
            raise ValueError(f"weight_average={weight_average!r}: it should be {kinds}")
        if every < 1:
            raise ValueError(f"every={every}: it should be 1 or more rounds")
        if not evaluation_timeout > 0:
            raise ValueError(f"evaluation_timeout={evaluation_timeout}: it should be a number of seconds above 0")
        if target is not None and evaluate is None:
            raise ValueError(f"target={target} needs evaluate, which computes the metric")
        if target is not None and not Metric(*metric).possible(target):
            raise ValueError(f"target={target}: {metric[0]} should be {Metric(*metric).expected()}")
        if checkpoints is None and environment.checkpoint_dir is not None:
            checkpoints = Checkpoints(
                environment.checkpoint_dir,
                environment.checkpoint_every,
                environment.keep_checkpoints,
                resume=environment.resume,
                overwrite=environment.overwrite,
            )
        if environment.preemption and checkpoints is None:
            raise ValueError("ESYNC_PREEMPTION=1 needs checkpoints, from which the run goes on")
        if name is not None and not log_dir and environment.log_dir is not None:
            raise ValueError(
                f"name={name!r}: ESYNC_LOG_DIR has the folder of the logs already, as esync launch sets it; leave the "
                "name out here, and give esync launch --name"
            )
        if device and environment.device_folder is None and not DEVICE.fullmatch(device):
            raise ValueError(f"device={device!r}: it should be cpu, gpu0, gpu1, …, as the log tools expect of folders")
        self._name = None if name is None else run_name(name)
        # Absolute, because the program may change its working directory while it trains.
        self._log_dir = expanded(log_dir or environment.log_dir or "logs").absolute()
        events_dir = tensorboard or environment.tensorboard
        self._events_dir = None if events_dir is None else expanded(events_dir).absolute()
        if self._events_dir is not None:
            require()
        chosen = chosen_loggers(environment.wandb, environment.mlflow) if loggers is None else loggers
        if len(names := [logger.name for logger in chosen]) > len(set(names)):
            raise ValueError(f"loggers: two of them have the same name: {', '.join(names)}; give one another name")
        self._loggers = [BackgroundLogger(logger) for logger in chosen]
        self._evaluate, self._every, self._metric, self._target = evaluate, every, Metric(*metric), target
        self.evaluates = self._metric.name if evaluate is not None else ""
        self._background, self._evaluation_timeout = background, evaluation_timeout
        self.checkpoints = checkpoints
        self._listens, self._notice = environment.preemption, PreemptionNotice()
        self._net, self._input_shape, self._before_export = net, input_shape, before_export
        seed = {} if environment.seed is None else {"seed": environment.seed}
        self._user_facts, self._overwrite = {**seed, **(facts or {})}, overwrite or environment.overwrite
        self._device, self._device_folder = device, environment.device_folder
        self._state_server, self._job = state_server or environment.state_server, job or environment.job
        self._default_job = environment.job
        self._reporter = ProgressReporter(quiet, machine=progress.to_launcher())
        self._reports: RoundReporter | None = None
        self._evaluations: PeriodicEvaluation | None = None  # on rank 0
        self._rounds: RoundCallbacks | None = None
        self._arrays: PlainArrays | None = None  # which the evaluating process has as they were at the start
        self._weight_average = weight_average
        self._closed = self._pausing = False
        self.unrecognized_classes = UnrecognizedClasses()
        self.folder: Path | None = None

    # --- called by the trainer --------------------------------------------------------------------

    def network_parameters(self) -> list[Any]:
        """Return the parameters of `net`: those that the trainer lacks are exchanged as statistics."""
        return [] if self._net is None else list(self._net.collect_params().values())

    def setup(self, trainer: Trainer) -> None:
        """Let a network whose shapes are inferred see an input of `input_shape`.

        Raises:
            UnsuitableParametersError: it does not take one.
        """
        parameters = trainer._params
        if (
            self._net is not None
            and self._input_shape is not None
            and any(parameter._deferred_init for parameter in parameters)
        ):
            first = next(
                parameter for parameter in parameters if parameter._deferred_init or parameter._data is not None
            )
            shape, context = (1, *self._input_shape), first.list_ctx()[0]
            try:
                self._net(array_module().zeros(shape, ctx=context, dtype=first.dtype))
            except Exception as error:
                raise UnsuitableParametersError(
                    f"net does not take one input of input_shape={self._input_shape} ({failure(error)}): correct it, "
                    "or leave it out and let one batch pass through the network before the trainer starts"
                ) from None

    def joined(self, trainer: Trainer) -> None:
        """Listen for a notice of preemption; try `evaluate` on rank 0, which the others wait for before they begin.

        Raises:
            EvaluationError: it does not work.
        """
        if self._listens:
            self._notice.listen()  # before launch hears that this worker has joined
        if trainer.rank != 0 or self._evaluate is None:
            return
        evaluator = self._evaluator(trainer, self._evaluate)
        self._evaluations = PeriodicEvaluation(evaluator, self._every, self._target, self._metric)
        if callable(self._evaluate):
            try:
                self._evaluations.try_out(trainer)
            except BaseException:
                self._evaluations.close()
                raise

    def train_begin(self, trainer: Trainer) -> None:
        """Begin the records, since the trainer has started.

        Raises:
            RuntimeError: this object has recorded another trainer.
        """
        if self._rounds is not None:
            raise RuntimeError("this esync.Run has the records of another Trainer: make a new one for each Trainer")
        device = self._device or _device_name(trainer)
        if trainer.rank == 0:
            average = trainer.replica.average = (
                average_of(trainer.algorithm) if self._weight_average != "none" else None
            )
            if average is not None and self.checkpoints is not None:
                self.checkpoints.track(AVERAGE, average)
                if not average.fits(*trainer.replica.common):
                    progress.warn("the average in the checkpoint is of other trained parameters: it begins anew")
                    average.reset()
            elif average is not None and trainer.replacement:
                progress.warn(
                    "the average of the weights was lost with the worker that this one replaces, and begins anew; "
                    "--checkpoint-dir keeps it"
                )
        resumed = self.checkpoints.resumed if self.checkpoints is not None else None
        # A replacement goes on with the logs of the dead worker, a resumed run with its own.
        logged = trainer.exchanges if trainer.replacement or resumed is not None else 0
        log_dir, events_dir = self._log_dir, self._events_dir
        if self._name is not None:
            log_dir = run_folder(log_dir, _program(), trainer.algorithm.name, self._name) / socket.gethostname()
            events_dir = events_dir and same_below(events_dir, log_dir, self._log_dir)
        logs = RoundLog(log_dir, self._device_folder or device, self._overwrite, logged, trainer.rank)
        self.folder = logs.folder
        loggers: list[Logger] = [] if events_dir is None else [EventFile(events_dir / logs.folder.name, logged > 0)]
        self._print_start(trainer, device, resumed)
        self._reports = self._make_reports(trainer, logs.folder.name)
        exchange = trainer.algorithm.exchange
        step = trainer.algorithm.result.step if logged else 0
        began = time.time() - trainer.elapsed
        optimizer = {"optimizer": type(trainer._optimizer).__name__.lower(), "learning_rate": trainer.learning_rate}
        self.unrecognized_classes.samples = lambda: trainer.dataset_size or 0
        facts = {
            "program": Path(sys.argv[0]).name,
            **optimizer,
            "learning_rate_multiplies": "mean",
            **facts_after_start(
                {"options": {**optimizer, "weight_average": self._weight_average}, **self._user_facts}, trainer
            ),
            "metric": {"name": self._metric.name, "goal": self._metric.goal},
            "target": self._target,
            "host": socket.gethostname(),
            "started": time.time(),
            "device": device,
            "resumed": resumed,
        }
        if trainer.rank == 0 and self._loggers:
            facts["loggers"] = self._begin_loggers(trainer, logs, facts, logged > 0)
            loggers += self._loggers
        callbacks = make_callbacks(
            trainer.algorithm, trainer.rank, self._reporter, logs, self._reports, began, step, loggers
        )
        self._rounds = RoundCallbacks(
            [*callbacks, PlateauDetection(trainer, self._reporter), self.unrecognized_classes],
            facts,
            LogClock(trainer.world.device.now, trainer.round, trainer.exchanges, trainer.elapsed),
            self._evaluations,
            exchange if isinstance(exchange, CollectiveExchange) else None,
        )
        if self.checkpoints is not None:
            self.checkpoints.before(self._rounds.flush)

    def batch_end(self, trainer: Trainer) -> None:
        """Record the step that has just been taken, and write a checkpoint where one is due."""
        assert self._rounds is not None
        if trainer.exchanged:
            self._check_arrays()
            trainer.replica.add_to_average()
            self._rounds.done(trainer)
            if self.checkpoints is not None:
                self.checkpoints.save_if_due()
        self._rounds.poll(trainer)
        if self._notice.arrived and not self._pausing:
            self._pausing = True
            trainer.stop()

    @property
    def preempted(self) -> bool:
        """Whether SIGUSR1 has ended the run, which goes on from its checkpoint (ESYNC_PREEMPTION)."""
        return self._notice.arrived

    def _pause(self, trainer: Trainer) -> None:
        """End the records of a run that goes on from a checkpoint later."""
        assert self.checkpoints is not None
        assert self._rounds is not None
        self.checkpoints.save()
        self._rounds.pause(trainer)
        self.close()
        text = f"preempted: checkpoint of round {trainer.round} in {self.checkpoints.directory}"
        self._reporter.print(text)
        if trainer.rank == 0:
            progress.report_event(progress.SETTINGS, text=text)
        super().train_end(trainer)
        self._leave(f"preempted after {trainer.round} rounds")

    def train_end(self, trainer: Trainer) -> None:
        """End the records of a worker that has done its part; wait for the last evaluation.

        Raises:
            FinalModelError, LogDirectoryError, CheckpointError: something cannot be written.
            EvaluationError: the run has a target, and evaluations have failed.
        """
        if self._rounds is None or self._closed:
            return
        try:
            # Another worker may have heard of it first, and ended the run.
            if self._listens and trainer.finished and self._notice.wait(config.PREEMPTION_NEWS):
                self._pause(trainer)
                return
            if self.checkpoints is not None and trainer.finished:
                self.checkpoints.save()  # the run can be made longer later
            self._rounds.end(trainer)
            self._rounds.flush()
            self._reporter.print(_done(trainer))
            super().train_end(trainer)
            if trainer.rank == 0 and self._net is not None:
                with trainer.mean_statistics():
                    self._export(trainer)
            self.close()
        except BaseException as error:
            self.train_failed(trainer, str(error))
            raise
        self._leave(f"done after {trainer.round} rounds")
        if self._target is not None and self._evaluations is not None and (reason := self._evaluations.failure):
            progress.report_event(progress.LEFT)  # nothing is left to do for another process in this one's place
            raise EvaluationError(f"the run has ended without its target: {reason}")

    def train_failed(self, trainer: Trainer, reason: str) -> None:
        """End the records of a run that has failed, here or on another worker, for that reason."""
        if self._rounds is not None and DIVERGED in reason:
            self._rounds.diverged()
        for logger in self._loggers:
            logger.close(reason)
        self.close()
        self._leave(reason)

    def close(self) -> None:
        """Write what has been recorded, and end evaluating; a replacement may go on from there."""
        if self._rounds is not None and not self._closed:
            self._closed = True
            self._rounds.close()

    # --- helpers ----------------------------------------------------------------------------------

    def _leave(self, reason: str) -> None:
        """Wait for the last reports to reach the state server."""
        if self._reports is not None:
            self._reports.close(reason)
            self._reports = None

    def _print_start(self, trainer: Trainer, device: str, resumed: int | None) -> None:
        report = self._reporter.print
        report(f"worker {trainer.rank} of {trainer.workers} on {device}, logs in {self.folder}")
        if trainer.replacement:
            report(f"takes the place of a worker that is gone, after round {trainer.round}")
        if self.checkpoints is None:
            return
        if resumed is not None:
            report(f"going on from the checkpoint of round {resumed} in {self.checkpoints.directory}")
        elif self.checkpoints.resume and not trainer.replacement:
            report(f"no checkpoint in {self.checkpoints.directory} yet: starting from the beginning")

    def _evaluator(self, trainer: Trainer, evaluate: Callable[[], Any] | EvaluationProgram) -> Evaluator:
        """Return what evaluates: a process, if that is possible."""
        if not callable(evaluate):
            return EvaluationProcess(evaluate, trainer.replica.size, self._evaluation_timeout)
        forked = ForkedEvaluation(evaluate, trainer.replica, self._metric)
        on_cpu = all(parameter.list_ctx()[0].device_type == "cpu" for parameter in trainer._params)
        if self._background and on_cpu and not rounds_weights(trainer._params):  # a fork is handed float32 values
            self._arrays = None if self._net is None else PlainArrays(self._net)
            return EvaluationProcess(forked, trainer.replica.size, self._evaluation_timeout)
        return InlineEvaluator(trainer, forked.result)

    def _check_arrays(self) -> None:
        """After the first exchange, warn of arrays that training changes, but not in the evaluating process."""
        if self._arrays is not None and (names := self._arrays.changed()):
            progress.warn(
                f"training changes arrays that are no Parameters ({enumeration(names, 3)}): `evaluate` sees their "
                "values of the start, and neither exchanges nor checkpoints have them. Make them Parameters with "
                "grad_req='null', or evaluate in the worker itself by esync.Run(…, background=False)"
            )
        self._arrays = None

    def _begin_loggers(self, trainer: Trainer, logs: RoundLog, facts: dict[str, Any], goes_on: bool) -> dict[str, Any]:
        """Begin to log the run, and return what identifies it with each logger, by the logger's name."""
        trained = str(facts.get("network") or _program())
        before = loggers_of(logs.folder) if goes_on else {}
        name, group = (f"{trained}/{text}" for text in names_of(logs.folder, trainer.algorithm.name))
        return {
            logger.name: logger.begin(LoggedRun(name, group, facts, before.get(logger.name)))
            for logger in self._loggers
        }

    def _make_reports(self, trainer: Trainer, device: str) -> RoundReporter | None:
        """Return the reporter to the state server's dashboard, or None if no server is known."""
        options = trainer.algorithm.options
        address = getattr(options, "state_server", None) or self._state_server
        if not address:
            return None
        # The same job as the algorithm's, or the dashboard would show two halves of it.
        job_name = getattr(options, "job", config.JOB)
        job = self._job if job_name == config.JOB else job_name
        if trainer.algorithm.asks_state_server and job_name == config.JOB and job != self._default_job:
            raise ValueError(
                f"job={job!r} is the run's, but the algorithm asks the state server about job {self._default_job!r}: "
                "give it to the algorithm, or set ESYNC_JOB"
            )
        host, port = state_server_address(address)
        first = trainer.rank == 0
        begins = first and not trainer.algorithm.asks_state_server and not trainer.replacement
        return RoundReporter(
            host, port, job, trainer.rank, device, trainer.workers if begins else None, first, self._metric
        )

    def _export(self, trainer: Trainer) -> None:
        """Write the final model beside the checkpoints, or beside the logs if there are none."""
        from ..models import export

        assert self.folder is not None
        folder = (self.checkpoints.directory if self.checkpoints is not None else self.folder) / MODEL_FOLDER
        shape = None if self._input_shape is None else (1, *self._input_shape)
        if self._before_export is not None:
            try:
                self._before_export()
            except Exception as error:
                log.warning("before_export has failed (%s): the final model is written without it", failure(error))
        export.save(self._net, folder, shape, log.warning)
        for logger in self._loggers:
            logger.add_files("model", [folder])
        self._reporter.print(f"final model in {folder}")


def _program() -> str:
    """Return the name of the running program."""
    return Path(sys.argv[0]).stem.strip(".") or "program"


def _done(trainer: Trainer) -> str:
    """Return the line of a worker whose run is over."""
    if not trainer.algorithm.counts_exchanges:
        return f"done after {trainer.round} rounds"
    return f"done after {trainer.exchanges} exchanges, round {trainer.round} of the run"


def _device_name(trainer: Trainer) -> str:
    """Return the name of the device that has the trainer's parameters, such as gpu0."""
    context = trainer._params[0].list_ctx()[0]
    return "cpu" if context.device_type == "cpu" else f"gpu{context.device_id}"
