"""Test accuracy, computed by a process of its own so that no worker waits for it.

The training process copies the weights into shared memory and goes on; the evaluating process, with low priority and
one thread, answers when it is done. Never more than one evaluation is under way.

`python -m esync.evaluate` with the task as JSON is that process; the training process starts it. With flags it is the
evaluator, which follows a run's checkpoints (`follow`).
"""

import contextlib
import json
import logging
import mmap
import os
import select
import subprocess
import sys
import time
from dataclasses import asdict, dataclass

import numpy as np

from . import priority
from .accuracy import accuracy, spread
from .engine import mx
from .errors import ExpectedError
from .flat_arrays import FlatArrays
from .handles import Future
from .models import MODELS, build
from .parenthood import die_with_parent

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Task:
    """What is evaluated; the command line of the evaluating process, as JSON.

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


class EvaluationError(ExpectedError):
    """The evaluating process has failed; its own message is in the log of this process."""


class Evaluation(Future[float]):
    """The handle of one evaluation, whose result is the share of test images that are classified correctly."""

    def __init__(self, process: "EvaluationProcess") -> None:
        super().__init__("the accuracy of the model")
        self._process = process

    def _look(self) -> None:
        if not self._completed.is_set() and select.select([self._process.answers], [], [], 0)[0]:
            self._await()

    def _await(self) -> None:
        if self._completed.is_set():
            return
        line = self._process.answers.readline()
        if line:
            self.complete(float(json.loads(line)["accuracy"]))
        else:
            self.fail(EvaluationError("the process that evaluates the model has ended"))


class EvaluationProcess:
    """The training process's side.

    Args:
        network: name in models.MODELS.
        dataset: name of the data set.
        data_dir: where it is.
        values: how many weights and statistics the network has.
        images: so many test images are evaluated, unless all are asked for; None: all.
    """

    def __init__(self, network: str, dataset: str, data_dir: str, values: int, images: int | None = None) -> None:
        memory = os.memfd_create("esync-evaluation")
        os.ftruncate(memory, 4 * values)
        self._shared = np.frombuffer(mmap.mmap(memory, 4 * values), np.float32)
        task = Task(network, dataset, data_dir, images, memory, os.getpid())
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        for name in ("DMLC_ROLE", "PORT"):
            environment.pop(name, None)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "esync.evaluate", json.dumps(asdict(task))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[memory],
            start_new_session=True,  # a Ctrl-C in the terminal is for the training process, which then ends this one
            env=environment,
            text=True,
        )
        # Now and not by itself: the imports with which it begins would disturb the first round.
        with contextlib.suppress(ProcessLookupError):
            priority.stand_back(priority.EVALUATING, self._process.pid)
        os.close(memory)
        assert self._process.stdout is not None
        self.answers = self._process.stdout
        self.current: Evaluation | None = None

    def start(self, weights: FlatArrays, statistics: FlatArrays, every_image: bool = False) -> Evaluation | None:
        """Evaluate these values (opened by the caller) as they are now; None where the process is still busy."""
        if self.current is not None and not self.current.done():
            return None
        weights.read(0, weights.size, self._shared[: weights.size])
        statistics.read(0, statistics.size, self._shared[weights.size :])
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{EVERY_IMAGE if every_image else SOME_IMAGES}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise EvaluationError("the process that evaluates the model has ended") from None
        self.current = Evaluation(self)
        return self.current

    def close(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()


def main(arguments: list[str]) -> int:
    """Answer every line on standard input with the accuracy of what is in the shared memory."""
    task = Task(**json.loads(arguments[0]))
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
    """Be the evaluator of a run that goes on elsewhere."""
    from . import program
    from .follow import run

    return program.run("evaluate", lambda watchdog: run(arguments, watchdog))


if __name__ == "__main__":
    if not "".join(sys.argv[1:2]).startswith("{"):
        sys.exit(_follow(sys.argv[1:]))
    try:
        sys.exit(main(sys.argv[1:]))
    except ExpectedError as error:
        sys.exit(f"evaluation: error: {error}")  # exit code 1
