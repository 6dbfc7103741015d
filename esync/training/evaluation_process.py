"""Evaluate in a process of its own: the training process's side, and the evaluating one's.

No worker waits for an evaluation.

The training process copies the weights to shared memory and goes on. The evaluating process, with
low priority and one thread, answers when it is done. There is at most one evaluation at a time.

An `EvaluationProgram` says which process evaluates: a fork of the worker that calls a user's
function (`ForkedEvaluation`), or a program of its own (`evaluate.NamedEvaluation`).
"""

import contextlib
import json
import logging
import math
import mmap
import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from .. import config
from ..gluon.flat_arrays import FlatArrays, stored_values
from ..runtime.errors import ExpectedError
from ..runtime.files import memory_descriptor
from ..runtime.forked_process import ForkedProcess
from ..runtime.futures import Future
from ..runtime.metric import TEST_ACCURACY, Metric
from ..runtime.processes import EVALUATING
from ..runtime.watchdog import WatchedWait

log = logging.getLogger(__name__)

#: Questions of the training process to the evaluating one.
SOME_SAMPLES, EVERY_SAMPLE = "some samples", "every sample"
#: Seconds between two looks at the evaluating process while its answer is awaited.
LOOK_EVERY = 0.5


class EvaluationError(ExpectedError):
    """Raised when the evaluating process has ended and is not started again.

    Its own message is in the log of this process.
    """


class PipedProcess(Protocol):
    """A child process with two pipes, such as `subprocess.Popen`."""

    pid: int
    stdin: IO[str] | None
    stdout: IO[str] | None

    def kill(self) -> None:
        """Kill the process."""

    def wait(self) -> int:
        """Wait until it has ended; return its exit code, or the negated signal that killed it."""


class EvaluationProgram(Protocol):
    """The program that evaluates in a process of its own.

    Attributes:
        without: how a user can do without evaluations, for messages.
        lighter: how evaluations take less memory, for messages.
    """

    without: str
    lighter: str

    def start(self, memory: int) -> PipedProcess:
        """Start the process, which calls `answer_questions`.

        `memory` is the file descriptor of the shared memory.
        """


class Evaluation(Future[float]):
    """The handle of one evaluation, whose result is the value of the metric."""

    def __init__(self, process: "EvaluationProcess") -> None:
        super().__init__("the evaluation of the model")
        self._process = process

    def _look(self) -> None:
        if not self._completed.is_set():
            self._take(0)

    def _await(self) -> None:
        wait = WatchedWait("the evaluation of the model", math.inf)
        while not self._completed.is_set():
            self._take(LOOK_EVERY)
            if not self._completed.is_set() and wait.due(config.ANNOUNCE_AFTER):
                log.warning("waiting for %s for %.0f s: %s", wait.what, wait.lasted, self._process.described())

    def _take(self, seconds: float) -> None:
        """Complete this handle if the answer comes within that many seconds."""
        try:
            value = self._process.answer(seconds)
        except EvaluationError as error:
            self.fail(error)
        else:
            if value is not None:
                self.complete(value)


class EvaluationProcess:
    """The training process's side of an evaluating process.

    An evaluating process that was killed is started again, up to `config.EVALUATION_RESTARTS`
    times. One that should compute but does not, because it is stopped for instance, is killed
    first.

    Args:
        program: what evaluates.
        values: number of weights and statistics of the network.
    """

    def __init__(self, program: EvaluationProgram, values: int) -> None:
        self._memory = memory_descriptor("esync-evaluation")
        os.ftruncate(self._memory, 4 * values)
        self._shared = np.frombuffer(mmap.mmap(self._memory, 4 * values), np.float32)
        self._program = program
        self._question = ""  # that has not been answered yet
        self._restarts = 0
        self.current: Evaluation | None = None
        self._begin()

    def start(self, weights: FlatArrays, statistics: FlatArrays, every_sample: bool = False) -> Evaluation | None:
        """Start to evaluate these values as they are now.

        Args:
            weights: the network's weights, opened by the caller.
            statistics: its statistics, opened by the caller.
            every_sample: whether to use all test samples.

        Returns:
            The handle of the evaluation; None if the process is still busy with the one before.
        """
        if self.current is not None and not self.current.done():
            return None
        weights.read(0, weights.size, self._shared[: weights.size])
        statistics.read(0, statistics.size, self._shared[weights.size :])
        self._question = EVERY_SAMPLE if every_sample else SOME_SAMPLES
        self._ask()
        self.current = Evaluation(self)
        return self.current

    def answer(self, seconds: float) -> float | None:
        """Return the awaited value if it comes within that many seconds, else None.

        Raises:
            EvaluationError: the process has ended, and is not started again.
        """
        assert self._process.stdout is not None
        if select.select([self._process.stdout], [], [], seconds)[0]:
            if line := self._process.stdout.readline():
                self._question = ""
                return float(json.loads(line)["value"])
            self._begin_again()
        elif _state_of(self._process.pid)[0] == "Z":  # processes that it has forked keep its pipe open
            self._begin_again()
        elif self._stall_detector.stalled_for(self._process.pid) > config.EVALUATION_STILL:
            log.warning("%s has not computed for %.0f s: killing it", self.described(), config.EVALUATION_STILL)
            self._process.kill()  # the next look finds that it has ended
        return None

    def described(self) -> str:
        """Return a description of the process for messages, which says whether it is stopped."""
        state, _ = _state_of(self._process.pid)
        return f"the process that evaluates the model (process {self._process.pid}{', stopped' * (state == 'T')})"

    def close(self) -> None:
        """End the process, even if it is stopped."""
        self._process.kill()
        self._process.wait()
        self._close_pipes()
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1

    def _begin(self) -> None:
        """Start the process."""
        self._process = self._program.start(self._memory)
        self._stall_detector = StallDetector()

    def _begin_again(self) -> None:
        """Start another process in the place of one that was killed, with the same question.

        Raises:
            EvaluationError: the process has ended by itself, as another one would; or it has been
                killed too often.
        """
        code = self._process.wait()
        if code >= 0:
            raise EvaluationError(
                f"the process that evaluates the model has ended with exit code {code}, and says why above; when that "
                f"is fixed, go on with --resume, or {self._program.without}"
            )
        how = f"was killed by {signal.Signals(-code).name}"
        if self._restarts >= config.EVALUATION_RESTARTS:
            raise EvaluationError(
                f"the process that evaluates the model {how}, and was started again {self._restarts} times before; "
                f"where memory is short, {self._program.lighter}, or {self._program.without}, and go on with --resume"
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
        self._stall_detector = StallDetector()

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()


class StallDetector:
    """Measures for how long a process that should compute has used no processor time.

    The time between two looks counts as `LOOK_EVERY` at most, so that the process that looks may
    itself be stopped for a while.
    """

    def __init__(self) -> None:
        self._seconds, self._used, self._looked = 0.0, -1, time.monotonic()

    def stalled_for(self, pid: int) -> float:
        """Look at the process, and return for how many seconds it has stood still; 0 if unknown."""
        now = time.monotonic()
        if now - self._looked >= LOOK_EVERY:
            _, used = _state_of(pid)
            self._seconds = self._seconds + LOOK_EVERY if used == self._used else 0.0
            self._used, self._looked = used, now
        return self._seconds if self._used >= 0 else 0.0


def _state_of(pid: int) -> tuple[str, int]:
    """Return the state of a process (T: stopped) and its processor time in ticks of the kernel.

    If they are not known, return "" and -1.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return "", -1
    return fields[0].decode(), int(fields[11]) + int(fields[12])


# --- the evaluating process -----------------------------------------------------------------------


def answer_questions(
    questions: Iterable[str],
    answers: IO[str],
    memory: int,
    trained: Sequence[Any],
    others: Sequence[Any],
    evaluate: Callable[[bool], float],
) -> None:
    """Answer every question with the value of the metric for the weights in shared memory.

    Args:
        questions: lines with SOME_SAMPLES or EVERY_SAMPLE.
        answers: gets a line of JSON for each question.
        memory: file descriptor of the shared memory: weights, then statistics, in float32.
        trained: the network's parameters that are trained, in the order of the trainer's.
        others: its other parameters, likewise.
        evaluate: computes the metric, on every sample if its argument is true.
    """
    weights = FlatArrays(lambda: [stored_values(parameter) for parameter in trained])
    statistics = FlatArrays(lambda: [stored_values(parameter) for parameter in others])
    shared = np.frombuffer(mmap.mmap(memory, 4 * (weights.size + statistics.size)), np.float32)
    for line in questions:
        begun = time.perf_counter()
        for arrays, values in ((weights, shared[: weights.size]), (statistics, shared[weights.size :])):
            arrays.open()
            arrays.write(0, values)
            arrays.close()
        value = evaluate(line.strip() == EVERY_SAMPLE)
        print(json.dumps({"value": value, "seconds": time.perf_counter() - begun}), file=answers, flush=True)


class ForkedEvaluation:
    """Evaluates by a user's function, in a fork of the worker.

    The fork has everything that the function refers to, data sets included, without copying it.
    MXNet's engine is made for that (its DataLoader forks, too), but only on the CPU.

    Args:
        function: returns the value of the metric for the network's present weights.
        trained: the network's parameters that are trained, in the order of the trainer's.
        others: its other parameters, likewise.
        metric: what the function computes.
    """

    without = "without evaluation: leave evaluate out"
    lighter = "evaluate on fewer samples"

    def __init__(
        self,
        function: Callable[[], float],
        trained: Sequence[Any],
        others: Sequence[Any],
        metric: Metric = TEST_ACCURACY,
    ) -> None:
        self._function, self._metric = function, metric
        self._trained, self._others = trained, others

    def start(self, memory: int) -> ForkedProcess:
        """See `EvaluationProgram.start`."""

        def serve(questions: IO[str], answers: IO[str]) -> None:
            answer_questions(questions, answers, memory, self._trained, self._others, lambda every: self.value())

        return ForkedProcess(serve, EVALUATING)

    def value(self) -> float:
        """Call the function, and return its value.

        Raises:
            TypeError: it is not a number.
            ValueError: it is not a share, as an accuracy should be.
        """
        value = self._function()
        name = getattr(self._function, "__qualname__", repr(self._function))
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise TypeError(f"evaluate should return a number, but {name} has returned {value!r}") from None
        if self._metric.is_accuracy and not self._metric.possible(number):
            raise ValueError(
                f"evaluate should return the accuracy, {self._metric.expected()}, but {name} has returned {number:g}; "
                'if it is something else, say so: esync.Run(…, metric=("loss", "min"))'
            )
        return number
