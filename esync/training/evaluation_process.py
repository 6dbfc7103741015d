"""Evaluate in a process of its own: the training process's side, and the evaluating one's.

No worker waits for an evaluation.

The training process copies the weights to shared memory and goes on. The evaluating process, with
low priority and one thread, answers when it is done. There is at most one evaluation at a time.

An `EvaluationProgram` says which process evaluates: a fork of the worker that calls a user's
function (`ForkedEvaluation`), or a program of its own (`evaluate.NamedEvaluation`).
"""

import contextlib
import gc
import json
import logging
import math
import mmap
import os
import re
import select
import signal
import time
import traceback
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from subprocess import Popen
from typing import IO, Protocol

import numpy as np

from .. import config
from ..exchange import values_of
from ..gluon.flat_arrays import FlatArrays
from ..gluon.replica import Replica
from ..runtime.errors import EvaluationError, ExpectedError
from ..runtime.exit_hooks import failure
from ..runtime.files import memory_descriptor
from ..runtime.forked_process import ForkedProcess
from ..runtime.futures import Future
from ..runtime.metric import TEST_ACCURACY, Metric
from ..runtime.mxnet_import import mx
from ..runtime.processes import EVALUATING
from ..runtime.user_code import place_of, users_frame
from ..runtime.user_values import one_line, single_number
from ..runtime.watchdog import WatchedWait

log = logging.getLogger(__name__)

#: Questions of the training process to the evaluating one.
SOME_SAMPLES, EVERY_SAMPLE = "some samples", "every sample"
#: Seconds between two looks at the evaluating process while its answer is awaited.
LOOK_EVERY = 0.5
#: Equal values of the metric in a row, of weights that differ, after which a warning says so.
EQUAL_VALUES = 5


class EvaluationProgram(Protocol):
    """The program that evaluates in a process of its own.

    Attributes:
        without: how a user can do without evaluations, for messages.
        lighter: how evaluations take less memory, for messages.
        remedy: what may help where an evaluation hangs, for messages.
    """

    without: str
    lighter: str
    remedy: str

    def start(self, memory: int) -> "Popen[str] | ForkedProcess":
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
    times. One that is stopped (SIGSTOP) is killed first. One that hangs is not started again, as
    the next one would hang, too.

    Args:
        program: what evaluates.
        values: number of weights and statistics of the network.
        timeout: seconds that one evaluation may take.
    """

    _stall_detector: "StallDetector"
    _asked: float  # when the question was asked (time.monotonic)

    def __init__(self, program: EvaluationProgram, values: int, timeout: float = config.EVALUATION_TIMEOUT) -> None:
        self._memory = memory_descriptor("esync-evaluation")
        os.ftruncate(self._memory, 4 * values)
        self._shared = np.frombuffer(mmap.mmap(self._memory, 4 * values), np.float32)
        self._program, self._timeout = program, timeout
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
                self._question, answer = "", json.loads(line)
                if "error" in answer:
                    raise EvaluationError(f"{answer['error']}; correct that, or train {self._program.without}")
                return float(answer["value"])
            self._begin_again()
            return None
        still = self._stall_detector.stalled_for(self._process.pid) > config.EVALUATION_STILL
        state = _state_of(self._process.pid)
        if state == "Z":  # processes that it has forked keep its pipe open
            self._begin_again()
        elif still and state == "T":
            log.warning("%s has not computed for %.0f s: killing it", self.described(), config.EVALUATION_STILL)
            self._process.kill()  # one of the next looks finds that it has ended
            self._stall_detector = StallDetector()
        elif still:
            why = f"it has used no processor time for {config.EVALUATION_STILL:.0f} s. {self._program.remedy}"
            self._give_up("hangs", why)
        elif time.monotonic() - self._asked > self._timeout:
            why = f"it has taken longer than evaluation_timeout, {self._timeout:g} s"
            self._give_up("is too slow", f"{why}. {self._program.lighter.capitalize()}")
        return None

    def _give_up(self, what: str, why: str) -> None:
        """Kill a process that will not answer, and raise an EvaluationError that says where it is."""
        where = _where(self._process)
        self._process.kill()
        raise EvaluationError(f"evaluate {what}{where}: {why}, or train {self._program.without}")

    def described(self) -> str:
        """Return a description of the process for messages, which says whether it is stopped."""
        state = _state_of(self._process.pid)
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
        try:
            self._process = self._program.start(self._memory)
        except OSError as error:
            raise EvaluationError(f"cannot start the process that evaluates the model: {error.strerror}") from None

    def _begin_again(self) -> None:
        """Start another process in the place of one that was killed, with the same question.

        Raises:
            EvaluationError: the process has ended by itself, as another one would; or it has been
                killed too often.
        """
        code = self._process.wait()
        if code >= 0:
            raise EvaluationError(
                f"the process that evaluates the model has ended by itself, with exit code {code}: correct that, or "
                f"train {self._program.without}"
            )
        how = f"was killed by {signal.Signals(-code).name}{_where(self._process)}"
        if self._restarts >= config.EVALUATION_RESTARTS:
            memory = f"where memory is short, {self._program.lighter}, or " if code == -signal.SIGKILL else ""
            raise EvaluationError(
                f"the process that evaluates the model {how}, and was started again {self._restarts} times before; "
                f"{memory}train {self._program.without}"
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
        self._stall_detector, self._asked = StallDetector(), time.monotonic()

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()


class StallDetector:
    """Measures for how long a process that should compute has stood still.

    It stands still while neither it nor a process that it has started uses processor time, could
    use some, or waits for a disk. The time between two looks counts as `LOOK_EVERY` at most, so
    that the process that looks may itself be stopped for a while.
    """

    def __init__(self) -> None:
        self._seconds, self._ticks, self._looked = 0.0, -1, time.monotonic()

    def stalled_for(self, pid: int) -> float:
        """Look at the process, and return for how many seconds it has stood still."""
        now = time.monotonic()
        if now - self._looked >= LOOK_EVERY:
            ticks, able = _activity(pid)
            self._seconds = 0.0 if able or ticks != self._ticks else self._seconds + LOOK_EVERY
            self._ticks, self._looked = ticks, now
        return self._seconds


def _activity(pid: int) -> tuple[int, bool]:
    """Return what the threads of a process and of its descendants do.

    Returns:
        The processor time that they have used, in ticks of the kernel; and whether one of them
        could use more, or waits for a disk.
    """
    total, able = 0, False
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            fields = _stat(task)
            total, able = total + int(fields[11]) + int(fields[12]), able or fields[0] in "RD"
            for child in (task / "children").read_text().split():
                more, others = _activity(int(child))
                total, able = total + more, able or others
    return total, able


def _where(process: "Popen[str] | ForkedProcess") -> str:
    """Return at which line evaluate stands, or has crashed, as words that follow; "" if unknown."""
    stack = process.stack() if isinstance(process, ForkedProcess) else []
    calls = [number for number, frame in enumerate(stack) if Path(frame.filename).name == Path(__file__).name]
    inner = stack[calls[-1] + 1 :] if calls else []
    frame = users_frame(inner)
    if frame is None:
        return ""
    inside = ""
    for called in inner[inner.index(frame) + 1 :][:1]:
        file = re.sub(r".*/(site-packages|dist-packages|python3\.\d+)/", "", called.filename)
        inside = f", inside {called.name} of {file}"
    return f" in {place_of(frame)} ({frame.line}){inside}"


def _state_of(pid: int) -> str:
    """Return the state of a process (T: stopped); "" if it is not known."""
    try:
        return _stat(Path(f"/proc/{pid}"))[0]
    except OSError:
        return ""


def _stat(process: Path) -> list[str]:
    """Return the fields of a process's or thread's file `stat`, from its state on."""
    return (process / "stat").read_text(errors="replace").rpartition(")")[2].split()


# --- the evaluating process -----------------------------------------------------------------------


def answer_questions(
    questions: Iterable[str],
    answers: IO[str],
    memory: int,
    replica: Replica,
    evaluate: Callable[[bool], float],
) -> None:
    """Answer every question with the value of the metric for the weights in shared memory.

    Args:
        questions: lines with SOME_SAMPLES or EVERY_SAMPLE.
        answers: gets a line of JSON for each question.
        memory: file descriptor of the shared memory: weights, then statistics, in float32.
        replica: the network, whose vectors are laid out as the training process's.
        evaluate: computes the metric, on every sample if its argument is true.
    """
    shared = np.frombuffer(mmap.mmap(memory, 4 * replica.size), np.float32)
    for line in questions:
        replica.open()
        replica.weights.write(0, shared[: replica.weights.size])
        replica.statistics.write(0, shared[replica.weights.size :])
        replica.close()
        print(json.dumps({"value": evaluate(line.strip() == EVERY_SAMPLE)}), file=answers, flush=True)


@contextlib.contextmanager
def failure_reported(answers: IO[str]) -> Iterator[None]:
    """Report an error in the body of a with statement to the training process, as an answer."""
    try:
        yield
    except BrokenPipeError:  # the training process is going
        raise
    except (Exception, SystemExit) as error:
        if not isinstance(error, ExpectedError):
            traceback.print_exc()
        reason = failure(error) or "SystemExit"
        if not isinstance(error, EvaluationError):
            reason = f"the evaluation of the model has failed: {reason}"
        print(json.dumps({"error": reason}), file=answers, flush=True)


class ForkedEvaluation:
    """Evaluates by a user's function, in a fork of the worker.

    The fork has everything that the function refers to, data sets included, without copying it.
    MXNet's engine is made for that (its DataLoader forks, too), but only on the CPU. What it has
    not are threads: whatever needs those that were made before the run hangs. Gluon's DataLoaders
    go without their workers here, and are made to load in the fork itself.

    Args:
        function: returns the value of the metric for the network's present weights.
        replica: the network, which the fork has a copy of.
        metric: what the function computes.
    """

    without = "without evaluation: leave evaluate out"
    lighter = "evaluate on fewer samples"
    remedy = (
        "It is called in a fork of the worker, which lacks the threads that were started before the run: make "
        "what has some (ImageRecordIter, PrefetchingIter, a thread pool, an iterator of a DataLoader) in evaluate, or "
        "let the worker itself evaluate, and wait for it, by esync.Run(…, background=False)"
    )

    def __init__(self, function: Callable[[], float], replica: Replica, metric: Metric = TEST_ACCURACY) -> None:
        self._function, self._replica, self._metric = function, replica, metric
        self._newest, self._equal = (math.nan, 0), 1

    def start(self, memory: int) -> ForkedProcess:
        """See `EvaluationProgram.start`."""

        def serve(questions: IO[str], answers: IO[str]) -> None:
            _load_in_this_process()
            with failure_reported(answers):
                answer_questions(questions, answers, memory, self._replica, lambda every: self.watched_value())

        return ForkedProcess(serve, EVALUATING)

    def value(self) -> float:
        """Call the function, and return its value.

        Raises:
            EvaluationError: it fails, or its value is not a number, or not a share, as an accuracy
                should be.
        """
        name = getattr(self._function, "__qualname__", repr(self._function))
        try:
            value = self._function()
        except ExpectedError:
            raise
        except Exception as error:
            stack = traceback.extract_tb(error.__traceback__)[1:]
            traceback.print_exc()
            place = "".join(f" in {place_of(frame)}" for frame in [users_frame(stack)] if frame is not None)
            raise EvaluationError(f"evaluate has failed{place}: {failure(error)}") from None
        number = single_number(value)
        if number is None:
            hint = " (of what a metric's get() returns, the value is the second: get()[1])" * isinstance(value, tuple)
            shown = one_line(value)[:200]
            raise EvaluationError(f"evaluate should return a number, but {name} has returned {shown}{hint}")
        number = float(number)
        if self._metric.is_accuracy and not self._metric.possible(number):
            raise EvaluationError(
                f"evaluate should return the accuracy, {self._metric.expected()}, but {name} has returned {number:g}: "
                'if it is something else, say so by esync.Run(…, metric=("loss", "min"))'
            )
        return number

    def watched_value(self) -> float:
        """Do as `value`, and warn of a metric that stays the same although the weights change."""
        value = self.value()
        self._replica.open()
        weights = zlib.crc32(values_of(self._replica.weights).tobytes())
        self._replica.close()
        if value == self._newest[0] and weights != self._newest[1] and not (self._metric.is_accuracy and value == 1):
            self._equal += 1
        else:
            self._equal = 1
        self._newest = value, weights
        if self._equal == EQUAL_VALUES:
            log.warning(
                "evaluate has returned %g %d times in a row, although the weights have changed each time: if it "
                "computes that from something else that training changes, such as moving averages of the weights, "
                "that stands still in the fork in which evaluate is called; esync.Run(…, background=False) calls it "
                "in the worker itself",
                value,
                EQUAL_VALUES,
            )
        return value


def _load_in_this_process() -> None:
    """Let all of Gluon's DataLoaders load in this process, a fork that lacks their workers."""
    for each in gc.get_objects():
        if issubclass(type(each), mx.gluon.data.DataLoader) and each._num_workers > 0:
            each._num_workers = 0
            each.clean()  # of the batches that it has asked its workers for
