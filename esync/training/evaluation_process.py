"""Evaluate in a separate process, so that no worker waits for an evaluation.

The training process copies the weights to shared memory and continues. The evaluating process, with low
priority and one thread, answers when it is done (`evaluation_answers`). There is at most one evaluation
at a time.

An `EvaluationProgram` starts the process: a fork of the worker that calls a user's function
(`forked_evaluation`), or a separate program (`evaluate.NamedEvaluation`).
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
from subprocess import Popen
from typing import Protocol

import numpy as np

from .. import config
from ..gluon.flat_arrays import FlatArrays
from ..runtime.errors import EvaluationError
from ..runtime.evaluation_result import EvaluationResult
from ..runtime.files import memory_descriptor
from ..runtime.forked_process import ForkedProcess
from ..runtime.futures import Future
from ..runtime.watchdog import WatchedWait
from .evaluation_answers import EVERY_SAMPLE, SOME_SAMPLES
from .stall_detector import CHECK_EVERY, StallDetector, state_of

log = logging.getLogger(__name__)


class EvaluationProgram(Protocol):
    """The program that evaluates in a separate process.

    Attributes:
        without: how a user can do without evaluations, for messages.
        lighter: how evaluations take less memory, for messages.
        remedy: what may help if an evaluation hangs, for messages.
    """

    without: str
    lighter: str
    remedy: str

    def start(self, memory: int) -> "Popen[str] | ForkedProcess":
        """Start the process, which calls `answer_questions`.

        `memory` is the file descriptor of the shared memory.
        """


class Evaluation(Future[EvaluationResult]):
    """The handle of one evaluation."""

    def __init__(self, process: "EvaluationProcess") -> None:
        super().__init__()
        self._process = process

    def _poll(self) -> None:
        if not self._completed.is_set():
            self._check(0)

    def _await(self) -> None:
        wait = WatchedWait("the evaluation of the model", math.inf)
        while not self._completed.is_set():
            self._check(CHECK_EVERY)
            if not self._completed.is_set() and wait.due(config.ANNOUNCE_AFTER):
                log.warning("waiting for %s for %.0f s: %s", wait.what, wait.lasted, self._process.described())

    def _check(self, seconds: float) -> None:
        """Complete this handle if the answer arrives within `seconds`."""
        try:
            result = self._process.answer(seconds)
        except EvaluationError as error:
            self.fail(error)
        else:
            if result is not None:
                self.complete(result)


class EvaluationProcess:
    """The training process's side of an evaluating process.

    An evaluating process that was killed is restarted, up to `config.EVALUATION_RESTARTS` times. A
    stopped one (SIGSTOP) is killed and restarted. One that hangs is not restarted, because the next one
    would hang, too.

    Args:
        program: starts the process.
        values: number of weights and statistics of the network.
        timeout: seconds that one evaluation may take.
    """

    _stall_detector: "StallDetector"
    _asked: float  # time of the request (time.monotonic)

    def __init__(self, program: EvaluationProgram, values: int, timeout: float = config.EVALUATION_TIMEOUT) -> None:
        self._memory = memory_descriptor("esync-evaluation")
        os.ftruncate(self._memory, 4 * values)
        self._shared = np.frombuffer(mmap.mmap(self._memory, 4 * values), np.float32)
        self._program, self._timeout = program, timeout
        self._question = ""  # the unanswered request
        self._restarts = 0
        self._begin()

    def start(self, weights: FlatArrays, statistics: FlatArrays, every_sample: bool = False) -> Evaluation:
        """Start to evaluate the current values, once the previous evaluation is done.

        Args:
            weights: the network's weights, opened by the caller.
            statistics: its statistics, opened by the caller.
            every_sample: whether to use all test samples.

        Returns:
            The handle of the evaluation.
        """
        weights.read(0, weights.size, self._shared[: weights.size])
        statistics.read(0, statistics.size, self._shared[weights.size :])
        self._question = EVERY_SAMPLE if every_sample else SOME_SAMPLES
        self._request()
        return Evaluation(self)

    def answer(self, seconds: float) -> EvaluationResult | None:
        """Return the result if it arrives within `seconds`, otherwise None.

        Raises:
            EvaluationError: the process has ended or hangs, and is not restarted.
        """
        assert self._process.stdout is not None
        state = state_of(self._process.pid)  # before the pipe: what an ended process has written is there by then
        if select.select([self._process.stdout], [], [], seconds)[0]:
            if line := self._process.stdout.readline():
                self._question, answer = "", json.loads(line)
                if "error" in answer:
                    raise EvaluationError(f"{answer['error']}; correct that, or train {self._program.without}")
                return EvaluationResult(**answer)
            self._restart()
            return None
        still = self._stall_detector.stalled_for(self._process.pid) > config.EVALUATION_STILL
        if state == "Z":  # its forked processes keep its pipe open
            self._restart()
        elif still and state == "T":
            log.warning("%s has not computed for %.0f s: killing it", self.described(), config.EVALUATION_STILL)
            self._process.kill()  # its end is detected by a later check
            self._stall_detector = StallDetector()
        elif still:
            reason = f"it has used no processor time for {config.EVALUATION_STILL:.0f} s. {self._program.remedy}"
            self._give_up("hangs", reason)
        elif time.monotonic() - self._asked > self._timeout:
            reason = f"it has taken longer than evaluation_timeout, {self._timeout:g} s"
            self._give_up("is too slow", f"{reason}. {self._program.lighter.capitalize()}")
        return None

    def _give_up(self, problem: str, reason: str) -> None:
        """Kill a process that does not answer, and raise an EvaluationError."""
        if isinstance(self._process, ForkedProcess):
            self._process.print_stack()
            problem += ", as its stack above shows"
        self._process.kill()
        raise EvaluationError(f"evaluate {problem}: {reason}, or train {self._program.without}")

    def described(self) -> str:
        """Return a description of the process and its state for messages."""
        state = state_of(self._process.pid)
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
        try:
            self._process = self._program.start(self._memory)
        except OSError as error:
            raise EvaluationError(f"cannot start the process that evaluates the model: {error.strerror}") from None

    def _restart(self) -> None:
        """Restart a process that was killed, and repeat the request.

        Raises:
            EvaluationError: the process has ended by itself, or has been killed too often.
        """
        code = self._process.wait()
        if code >= 0:
            raise EvaluationError(
                f"the process that evaluates the model has ended by itself, with exit code {code}: correct that, or "
                f"train {self._program.without}"
            )
        ending = f"was killed by {signal.Signals(-code).name}"
        if self._restarts >= config.EVALUATION_RESTARTS:
            memory = f"where memory is short, {self._program.lighter}, or " if code == -signal.SIGKILL else ""
            raise EvaluationError(
                f"the process that evaluates the model {ending}, and was started again {self._restarts} times before; "
                f"{memory}train {self._program.without}"
            )
        self._restarts += 1
        log.warning(
            "the process that evaluates the model %s; starting it again (%d of at most %d)",
            ending,
            self._restarts,
            config.EVALUATION_RESTARTS,
        )
        self._close_pipes()
        self._begin()
        if self._question:
            self._request()

    def _request(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended, which `answer` detects
            self._process.stdin.write(f"{self._question}\n")
            self._process.stdin.flush()
        self._stall_detector, self._asked = StallDetector(), time.monotonic()

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
