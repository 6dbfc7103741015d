"""Compute test accuracy in a process of its own, so that no worker waits for it.

The training process copies the weights into shared memory and goes on; the evaluating process, with
low priority and one thread, answers when it is done. Never more than one evaluation is under way.

`python -m esync.evaluate` with the task as JSON is that process; the training process starts it.
With flags it is the evaluator, which follows a run's checkpoints (`follow`).
"""

import contextlib
import json
import logging
import math
import mmap
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from . import config
from .gluon.flat_arrays import FlatArrays
from .models.networks import MODELS, build
from .runtime import processes
from .runtime.errors import ExpectedError
from .runtime.futures import Future
from .runtime.mxnet_import import mx
from .runtime.processes import die_with_parent
from .runtime.watchdog import WatchedWait
from .training.accuracy import accuracy, spread

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EvaluationTask:
    """What to evaluate; the command line of the evaluating process, as JSON.

    Attributes:
        network: name in models.MODELS.
        dataset: name of the data set.
        data_dir: where it is.
        images: so many test images are evaluated, unless all are asked for; None: all.
        memory: file descriptor of the shared memory: weights, then statistics, float32.
        parent: process id of the training process.
    """

    network: str
    dataset: str
    data_dir: str
    images: int | None
    memory: int
    parent: int


#: What the training process writes to the evaluating one.
SOME_IMAGES, EVERY_IMAGE = "some images", "every image"
#: Seconds between two looks at the evaluating process while its answer is waited for.
LOOK_EVERY = 0.5


class EvaluationError(ExpectedError):
    """The evaluating process has ended and is not started again; its own message is in the log of this process."""


class Evaluation(Future[float]):
    """The handle of one evaluation, whose result is the share of test images that are classified correctly."""

    def __init__(self, process: "EvaluationProcess") -> None:
        super().__init__("the accuracy of the model")
        self._process = process

    def _look(self) -> None:
        if not self._completed.is_set():
            self._take(0)

    def _await(self) -> None:
        wait = WatchedWait("the accuracy of the model", math.inf)
        while not self._completed.is_set():
            self._take(LOOK_EVERY)
            if not self._completed.is_set() and wait.due(config.ANNOUNCE_AFTER):
                log.warning("waiting for %s for %.0f s: %s", wait.what, wait.lasted, self._process.described())

    def _take(self, seconds: float) -> None:
        """Complete this handle where the answer comes within so many seconds."""
        try:
            accuracy = self._process.answer(seconds)
        except EvaluationError as error:
            self.fail(error)
        else:
            if accuracy is not None:
                self.complete(accuracy)


class EvaluationProcess:
    """The training process's end.

    An evaluating process that was killed is started again, as often as `config.EVALUATION_RESTARTS`
    says; one that does not compute any more although it should, because it is stopped for instance,
    is killed before that.

    Args:
        network: name in models.MODELS.
        dataset: name of the data set.
        data_dir: where it is.
        values: how many weights and statistics the network has.
        images: so many test images are evaluated, unless all are asked for; None: all.
    """

    def __init__(self, network: str, dataset: str, data_dir: str, values: int, images: int | None = None) -> None:
        self._memory = os.memfd_create("esync-evaluation")
        os.ftruncate(self._memory, 4 * values)
        self._shared = np.frombuffer(mmap.mmap(self._memory, 4 * values), np.float32)
        self._task = EvaluationTask(network, dataset, data_dir, images, self._memory, os.getpid())
        self._question = ""  # that has not been answered yet
        self._restarts = 0
        self.current: Evaluation | None = None
        self._begin()

    def start(self, weights: FlatArrays, statistics: FlatArrays, every_image: bool = False) -> Evaluation | None:
        """Evaluate these values (opened by the caller) as they are now; None where the process is still busy."""
        if self.current is not None and not self.current.done():
            return None
        weights.read(0, weights.size, self._shared[: weights.size])
        statistics.read(0, statistics.size, self._shared[weights.size :])
        self._question = EVERY_IMAGE if every_image else SOME_IMAGES
        self._ask()
        self.current = Evaluation(self)
        return self.current

    def answer(self, seconds: float) -> float | None:
        """Return the accuracy that was asked for, where it comes within so many seconds; else None.

        Raises:
            EvaluationError: the process has ended, and is not started again.
        """
        assert self._process.stdout is not None
        if select.select([self._process.stdout], [], [], seconds)[0]:
            if line := self._process.stdout.readline():
                self._question = ""
                return float(json.loads(line)["accuracy"])
            self._begin_again()
        elif self._stillness.lasts(self._process.pid) > config.EVALUATION_STILL:
            log.warning("%s has not computed for %.0f s: killing it", self.described(), config.EVALUATION_STILL)
            self._process.kill()  # the next look finds that it has ended
        return None

    def described(self) -> str:
        """Return which process it is, and whether it is stopped."""
        state, _ = _state_of(self._process.pid)
        return f"the process that evaluates the model (process {self._process.pid}{', stopped' * (state == 'T')})"

    def close(self) -> None:
        """End the process, which may be stopped."""
        self._process.kill()
        self._process.wait()
        self._close_pipes()
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1

    def _begin(self) -> None:
        """Start the process."""
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        for name in ("DMLC_ROLE", "PORT"):
            environment.pop(name, None)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "esync.evaluate", json.dumps(asdict(self._task))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[self._memory],
            start_new_session=True,  # a Ctrl-C in the terminal is for the training process, which then ends this one
            env=environment,
            text=True,
        )
        # Now and not by itself: the imports with which it begins would disturb the first round.
        with contextlib.suppress(ProcessLookupError):
            processes.set_niceness(processes.EVALUATING, self._process.pid)
        self._stillness = Stillness()

    def _begin_again(self) -> None:
        """Start another process in the place of one that was killed, with the same question.

        Raises:
            EvaluationError: it has ended by itself, which another one would do, too; or there have
                been too many.
        """
        code = self._process.wait()
        if code >= 0:
            raise EvaluationError(
                f"the process that evaluates the model has ended with exit code {code}, and says why above; when that "
                "is mended, go on with --resume, or without evaluation: --no-evaluation"
            )
        how = f"was killed by {signal.Signals(-code).name}"
        if self._restarts >= config.EVALUATION_RESTARTS:
            raise EvaluationError(
                f"the process that evaluates the model {how}, and was started again {self._restarts} times before; "
                "where memory is short, evaluate on fewer images (--test-images) or not here (--no-evaluation), and go "
                "on with --resume"
            )
        self._restarts += 1
        log.warning(
            "the process that evaluates the model %s; starting it again (%d of at most %d)",
            how,
            self._restarts,
            config.EVALUATION_RESTARTS,
        )
        self._close_pipes()
        self._begin()
        if self._question:
            self._ask()

    def _ask(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended: whoever looks for the answer finds that
            self._process.stdin.write(f"{self._question}\n")
            self._process.stdin.flush()
        self._stillness = Stillness()

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()


class Stillness:
    """How long a process that should compute has not: its processor time stands still.

    Time between two looks counts as `LOOK_EVERY` at most, so that whoever looks may be stopped
    itself for a while.
    """

    def __init__(self) -> None:
        self._seconds, self._used, self._looked = 0.0, -1, time.monotonic()

    def lasts(self, pid: int) -> float:
        """Take a look at the process; seconds that it has stood still, 0 where that is not known."""
        now = time.monotonic()
        if now - self._looked >= LOOK_EVERY:
            _, used = _state_of(pid)
            self._seconds = self._seconds + LOOK_EVERY if used == self._used else 0.0
            self._used, self._looked = used, now
        return self._seconds if self._used >= 0 else 0.0


def _state_of(pid: int) -> tuple[str, int]:
    """Return the state of a process (T: stopped) and its processor time in the kernel's ticks; "", -1: not known."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "", -1
    return fields[0], int(fields[11]) + int(fields[12])


def main(arguments: list[str]) -> int:
    """Answer every line on standard input with the accuracy of what is in the shared memory."""
    task = EvaluationTask(**json.loads(arguments[0]))
    die_with_parent(task.parent)
    from .data import load

    dataset = load(task.dataset, task.data_dir)
    context = mx.cpu()
    net = build(task.network, dataset.classes, context, seed=0, channels=dataset.channels)
    # The same order as in esync.Trainer: by name.
    parameters = [parameter for _, parameter in sorted(net.collect_params().items())]
    weights = FlatArrays(lambda: [p.data() for p in parameters if p.grad_req != "null"])
    statistics = FlatArrays(lambda: [p.data() for p in parameters if p.grad_req == "null"])
    shared = np.frombuffer(mmap.mmap(task.memory, 4 * (weights.size + statistics.size)), np.float32)
    every = dataset.test_images, dataset.test_labels
    some = spread(*every, task.images)
    for line in sys.stdin:
        begun = time.perf_counter()
        for arrays, values in ((weights, shared[: weights.size]), (statistics, shared[weights.size :])):
            arrays.open()
            arrays.write(0, values)
            arrays.close()
        images, labels = every if line.strip() == EVERY_IMAGE else some
        share = accuracy(net, images, labels, MODELS[task.network].size, context)
        print(json.dumps({"accuracy": share, "seconds": time.perf_counter() - begun}), flush=True)
    return 0


def _follow(arguments: list[str]) -> int:
    """Evaluate the checkpoints of a run elsewhere."""
    from .runtime import program
    from .training.checkpoint_evaluator import run

    return program.run("evaluate", lambda watchdog: run(arguments, watchdog))


if __name__ == "__main__":
    if not "".join(sys.argv[1:2]).startswith("{"):
        sys.exit(_follow(sys.argv[1:]))
    try:
        sys.exit(main(sys.argv[1:]))
    except ExpectedError as error:
        sys.exit(f"evaluation: error: {error}")  # exit code 1
