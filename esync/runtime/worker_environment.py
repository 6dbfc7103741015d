"""The ESYNC_* variables that configure a worker's program: launch writes them, `esync.Trainer` reads them.

Arguments in a program's code override variables, and variables override defaults;
docs/reference/environment.md lists them, and three exceptions.
"""

import dataclasses
import json
import math
import multiprocessing
import os
import re
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from .. import config
from .batch_sizes import StepTime
from .environment import SLOT_VARIABLE, EnvironmentProblemError
from .errors import ExpectedError
from .files import expanded
from .straggler_injection import StragglerEvent, parse_straggler_event

#: Variable with the name of this worker's log folder, if the launcher has chosen one.
FOLDER_VARIABLE = "ESYNC_DEVICE_FOLDER"
ALGORITHM_VARIABLE = "ESYNC_ALGORITHM"
DEVICE_VARIABLE = "ESYNC_DEVICE"
#: Names that a training may have on the state server.
JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
DEVICE = re.compile(r"cpu|gpu(0|[1-9][0-9]*)")
PER_HOST_VARIABLE = "ESYNC_PER_HOST"
HOST_GROUP_VARIABLE = "ESYNC_HOST_GROUP"
#: Variable with the process that is a worker, and the port of its cluster's scheduler, for its children.
WORKER_VARIABLE = "ESYNC_WORKER_PROCESS"
_HOST_GROUP = re.compile(r"([A-Za-z0-9_-]{1,64}):((?:0|[1-9][0-9]*)(?:,[1-9][0-9]*)*)")


class WorkerChildError(ExpectedError):
    """A process that a worker has started would become a worker of the same cluster, in another's place."""


@dataclass(frozen=True)
class HostGroupName:
    """The workers of one host that exchange as one.

    Attributes:
        token: by which they find each other: no other job and no other host has the same.
        ranks: of them, in ascending order.
    """

    token: str
    ranks: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> "HostGroupName":
        """Read what `str` returns; ValueError where it is something else."""
        match = _HOST_GROUP.fullmatch(text)
        ranks = tuple(map(int, match[2].split(","))) if match else ()
        if not match or list(ranks) != sorted(set(ranks)):
            raise ValueError(text)
        return cls(match[1], ranks)

    def __str__(self) -> str:
        return f"{self.token}:{','.join(map(str, self.ranks))}"


@dataclass(frozen=True)
class _Kind:
    """How a value is written in a variable.

    Attributes:
        parse: returns the value of a text; raises ValueError if it has none.
        expected: what the text should be, for the error message.
        write: returns the text of a value.
    """

    parse: Callable[[str], Any]
    expected: str
    write: Callable[[Any], str] = str


def _number(minimum: float, above: bool = False) -> Callable[[str], float]:
    def parse(text: str) -> float:
        value = float(text)
        if not (value > minimum if above else value >= minimum) or math.isinf(value):
            raise ValueError(text)
        return value

    return parse


def _integer(minimum: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch("[0-9]{1,18}", text) or int(text) < minimum:
            raise ValueError(text)
        return int(text)

    return parse


def _matching(pattern: re.Pattern[str]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if not pattern.fullmatch(text):
            raise ValueError(text)
        return text

    return parse


def _events(text: str) -> tuple[StragglerEvent, ...]:
    return tuple(parse_straggler_event(word) for word in text.split())


def _options(text: str) -> Mapping[str, Any]:
    options = json.loads(text)
    if not isinstance(options, dict):
        raise ValueError(text)
    return options


TEXT = _Kind(str, "a text")
FOLDER = _Kind(lambda text: str(expanded(text)), "a folder")
SECONDS = _Kind(_number(0, above=True), "a number of seconds above 0")
NON_NEGATIVE_SECONDS = _Kind(_number(0), "a number of seconds, 0 or more")
COUNT = _Kind(_integer(1), "a whole number of 1 or more")
INDEX = _Kind(_integer(0), "a whole number of 0 or more")
SWITCH = _Kind({"0": False, "1": True}.__getitem__, "0 or 1", lambda value: str(int(value)))
GROUP = _Kind(HostGroupName.parse, "a name and ascending ranks, 5f3a0c:0,1,2 for instance")
JOB_NAME = _Kind(_matching(JOB), "a name of up to 64 letters, digits, '.', '_' and '-'")
DEVICE_NAME = _Kind(_matching(DEVICE), "cpu, gpu0, gpu1, …")
STEP_TIMES = _Kind(
    lambda text: tuple(map(StepTime.parse, text.split())),
    "the seconds of an iteration on each device, 0.1+0.02 0.3+0 for instance, with the part that does not depend on "
    "the batch size behind +",
    lambda times: " ".join(map(str, times)),
)
OPTIONS = _Kind(
    _options,
    'options by name in JSON, {"compression": "4bit"} for instance',
    lambda options: json.dumps(options),
)
EVENTS = _Kind(
    _events,
    "events KIND:DELAY@AT+LASTING in seconds, network:0.03@60+100 for instance, with spaces between them",
    lambda events: " ".join(map(str, events)),
)


def _variable(name: str, kind: _Kind, default: Any = None) -> Any:
    return field(default=default, metadata={"name": name, "kind": kind})


@dataclass(frozen=True)
class WorkerEnvironment:
    """What a worker's environment says about it, with defaults for the rest.

    Attributes:
        algorithm: a mode's name, or another text that `esync.Trainer(algorithm=…)` takes.
        algorithm_options: its options by name; None: the defaults.
        weight_average: kind of the average of the weights, where it is chosen outside.
        rank: the rank that this worker takes; None stands for any that is free.
        seed: the seed that the program should use, one of those of `esync launch --repeat`; None if
            it chooses one.
        device: cpu, gpu0, gpu1 …; None stands for the first GPU, or the CPU if there is none.
        step_time: seconds that an iteration is padded to, to emulate a slower device.
        straggler_events: when the worker is slowed down on purpose.
        state_server: the state server's address, host:port.
        job: name of the training on the state server.
        collective: "ps", or the collective that sums vectors without servers.
        start_timeout: seconds to wait for the other processes to appear.
        round_timeout: seconds to wait for the other workers in one exchange.
        lease: seconds of silence after which the others go on without a worker (--elastic);
            infinite if they do not.
        wait_for_replacement: seconds that the place of a dead worker stays free.
        log_dir: folder of this host's logs, in which each worker has a folder.
        tensorboard: folder of this host's event files for TensorBoard, in which each worker has a
            folder; None if none are written.
        wandb: project of Weights & Biases; None if nothing is logged there.
        mlflow: URI of an MLflow server; None if nothing is logged there.
        device_folder: name of this worker's folder.
        checkpoint_dir: folder of the checkpoints; None if none are written.
        checkpoint_every: rounds between two checkpoints.
        keep_checkpoints: number of checkpoints that are kept.
        resume: whether to go on from the newest checkpoint.
        overwrite: whether an earlier run's logs and checkpoints are deleted.
        preemption: whether SIGUSR1 has the worker write a checkpoint and end the run after the round under way.
        measure: whether the Trainer reports how long iterations take, in the place of all records,
            until the program is told to end (`esync plan`).
        per_host: the most workers of one host that exchange as one; 1: each does so by itself.
        host_group: those of this host; None: this worker exchanges by itself.
        step_times: step times of all devices, by rank, by which batches are divided; empty: all
            batches are equal.
    """

    algorithm: str | None = _variable(ALGORITHM_VARIABLE, TEXT)
    algorithm_options: Mapping[str, Any] | None = _variable("ESYNC_ALGORITHM_OPTIONS", OPTIONS)
    weight_average: str = _variable("ESYNC_WEIGHT_AVERAGE", TEXT, config.WEIGHT_AVERAGE)
    rank: int | None = _variable(SLOT_VARIABLE, INDEX)
    seed: int | None = _variable("ESYNC_SEED", INDEX)
    device: str | None = _variable(DEVICE_VARIABLE, DEVICE_NAME)
    step_time: float | None = _variable("ESYNC_STEP_TIME", SECONDS)
    straggler_events: tuple[StragglerEvent, ...] = _variable("ESYNC_STRAGGLE", EVENTS, ())
    state_server: str | None = _variable("ESYNC_STATE_SERVER", TEXT)
    job: str = _variable("ESYNC_JOB", JOB_NAME, config.JOB)
    collective: str = _variable("ESYNC_COLLECTIVE", TEXT, config.COLLECTIVE)
    start_timeout: float = _variable("ESYNC_START_TIMEOUT", SECONDS, config.START_TIMEOUT)
    round_timeout: float = _variable("ESYNC_ROUND_TIMEOUT", SECONDS, config.ROUND_TIMEOUT)
    lease: float = _variable("ESYNC_LEASE", SECONDS, math.inf)
    wait_for_replacement: float = _variable(
        "ESYNC_WAIT_FOR_REPLACEMENT", NON_NEGATIVE_SECONDS, config.WAIT_FOR_REPLACEMENT
    )
    log_dir: str | None = _variable("ESYNC_LOG_DIR", FOLDER)
    tensorboard: str | None = _variable("ESYNC_TENSORBOARD", FOLDER)
    wandb: str | None = _variable("ESYNC_WANDB", TEXT)
    mlflow: str | None = _variable("ESYNC_MLFLOW", TEXT)
    device_folder: str | None = _variable(FOLDER_VARIABLE, TEXT)
    checkpoint_dir: str | None = _variable("ESYNC_CHECKPOINT_DIR", FOLDER)
    checkpoint_every: int = _variable("ESYNC_CHECKPOINT_EVERY", COUNT, config.CHECKPOINT_EVERY)
    keep_checkpoints: int = _variable("ESYNC_KEEP_CHECKPOINTS", COUNT, config.KEEP_CHECKPOINTS)
    resume: bool = _variable("ESYNC_RESUME", SWITCH, False)
    overwrite: bool = _variable("ESYNC_OVERWRITE", SWITCH, False)
    preemption: bool = _variable("ESYNC_PREEMPTION", SWITCH, False)
    measure: bool = _variable("ESYNC_MEASURE", SWITCH, False)
    per_host: int = _variable(PER_HOST_VARIABLE, COUNT, 1)
    host_group: HostGroupName | None = _variable(HOST_GROUP_VARIABLE, GROUP)  # noqa: RUF009
    step_times: tuple[StepTime, ...] = _variable("ESYNC_BATCH_BY_SPEED", STEP_TIMES, ())

    @classmethod
    def read(cls, environment: Mapping[str, str] = os.environ) -> "WorkerEnvironment":
        """Read and check the variables; empty ones count as not set.

        Raises:
            NoHomeError: a folder begins with a home directory that this machine does not have.
            EnvironmentProblemError: a variable is wrong; the message has its name, its value, and
                what it should be.
        """
        values = {}
        for variable in dataclasses.fields(cls):
            name, kind = variable.metadata["name"], variable.metadata["kind"]
            text = environment.get(name, "")
            if text.strip():
                text = text if kind in (TEXT, FOLDER) else text.strip()
                try:
                    values[variable.name] = kind.parse(text)
                except (ValueError, KeyError):
                    raise EnvironmentProblemError(f"{name} is {text!r}, but should be {kind.expected}") from None
        return cls(**values)

    def variables(self) -> dict[str, str]:
        """Return the variables that have these values, without those at their defaults."""
        return {
            variable.metadata["name"]: variable.metadata["kind"].write(value)
            for variable in dataclasses.fields(self)
            if (value := getattr(self, variable.name)) != variable.default
        }


def is_alone(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether the environment describes no cluster: no DMLC_* variable, no collective.

    With a cluster that is described in part, the worker does not train alone: an error says what is
    missing when it connects.

    Raises:
        EnvironmentProblemError: a variable is wrong.
    """
    collective = WorkerEnvironment.read(environment).collective
    return collective == "ps" and not any(name.startswith("DMLC_") for name in environment)


def claim_worker(environment: MutableMapping[str, str] = os.environ) -> None:
    """Make this process a worker, and those that it starts none.

    Raises:
        WorkerChildError: a worker of this cluster has started this process, whose program would
            take the place of another worker.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # as Python itself knows it
        raise WorkerChildError(
            "multiprocessing (spawn or forkserver) imports this program anew in every process that it starts, which "
            "would become a worker, too: put all that trains into a function, and call it under "
            "if __name__ == '__main__':"
        )
    scheduler = environment.get("DMLC_PS_ROOT_PORT") or environment.get("PMI_PORT", "")
    process, _, port = environment.get(WORKER_VARIABLE, "").partition(":")
    if port == scheduler != "" and process != str(os.getpid()):
        raise WorkerChildError(
            f"the worker with process id {process} has started this process, which would become a worker of the same "
            "cluster, too: start a program that trains alone, or evaluates, without the variables DMLC_*, PMI_* and "
            "ESYNC_*"
        )
    environment[WORKER_VARIABLE] = f"{os.getpid()}:{scheduler}"
