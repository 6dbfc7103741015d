"""Evaluation by a user's function, in a fork of the worker."""

import gc
import logging
import math
import traceback
import zlib
from collections.abc import Callable
from typing import IO, Any

from ..exchange import values_of
from ..gluon.replica import Replica
from ..runtime.errors import EvaluationError, ExpectedError
from ..runtime.evaluation_result import EvaluationResult, user_result
from ..runtime.exit_hooks import failure
from ..runtime.forked_process import ForkedProcess
from ..runtime.metric import TEST_ACCURACY, Metric
from ..runtime.mxnet_import import mx
from ..runtime.processes import EVALUATING
from ..runtime.user_code import place_of, users_frame
from .evaluation_answers import answer_questions, failure_reported

log = logging.getLogger(__name__)

#: Number of consecutive equal values of the metric, for different weights, that cause a warning.
EQUAL_VALUES = 5


class ForkedEvaluation:
    """Evaluates by a user's function, in a fork of the worker.

    The fork shares everything that the function refers to, including data sets, without a copy. MXNet's
    engine supports forks (its DataLoader uses them, too), but only on the CPU. A fork has no threads, so
    that objects which need threads from before the run hang. Gluon's DataLoaders are configured to load
    in the fork itself, without workers.

    Args:
        function: returns the metric of the network's current weights; see `user_result`.
        replica: the network.
        metric: the metric that the function computes.
    """

    without = "without evaluation: leave evaluate out"
    lighter = "evaluate on fewer samples"
    remedy = (
        "It is called in a fork of the worker, which lacks the threads that were started before the run: make "
        "what has some (ImageRecordIter, PrefetchingIter, a thread pool, an iterator of a DataLoader) in evaluate, or "
        "let the worker itself evaluate, and wait for it, by esync.Run(…, background=False)"
    )

    def __init__(self, function: Callable[[], Any], replica: Replica, metric: Metric = TEST_ACCURACY) -> None:
        self._function, self._replica, self._metric = function, replica, metric
        self._newest, self._equal = (math.nan, 0), 1

    def start(self, memory: int) -> ForkedProcess:
        """See `EvaluationProgram.start`."""

        def serve(questions: IO[str], answers: IO[str]) -> None:
            _load_in_this_process()
            with failure_reported(answers):
                answer_questions(questions, answers, memory, self._replica, lambda every_sample: self.watched_result())

        return ForkedProcess(serve, EVALUATING)

    def result(self) -> EvaluationResult:
        """Call the function, and return its result.

        Raises:
            EvaluationError: it fails, or returns what `user_result` refuses.
        """
        name = getattr(self._function, "__qualname__", repr(self._function))
        try:
            returned = self._function()
        except ExpectedError:
            raise
        except Exception as error:
            stack = traceback.extract_tb(error.__traceback__)[1:]
            traceback.print_exc()
            line = "".join(f" in {place_of(frame)}" for frame in [users_frame(stack)] if frame is not None)
            raise EvaluationError(f"evaluate has failed{line}: {failure(error)}") from None
        return user_result(returned, self._metric, name)

    def watched_result(self) -> EvaluationResult:
        """Return `result`, and warn of a metric that stays the same although the weights change."""
        result = self.result()
        value = result.value
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
        return result


def _load_in_this_process() -> None:
    """Let all of Gluon's DataLoaders load in this process, a fork that lacks their workers."""
    for item in gc.get_objects():
        if issubclass(type(item), mx.gluon.data.DataLoader) and item._num_workers > 0:
            item._num_workers = 0
            item.clean()  # drops the batches requested from its workers
