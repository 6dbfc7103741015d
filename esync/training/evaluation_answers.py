"""The evaluating process's side of the protocol with the training process.

The training process writes the weights to shared memory and sends a line, SOME_SAMPLES or EVERY_SAMPLE.
The evaluating process answers with a line of JSON, {"value": …, "parts": {…}, "seconds": …} or {"error": …}.
"""

import contextlib
import json
import mmap
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from typing import IO

import numpy as np

from ..gluon.replica import Replica
from ..runtime.errors import EvaluationError, ExpectedError
from ..runtime.evaluation_result import EvaluationResult
from ..runtime.exit_hooks import failure

#: Requests of the training process.
SOME_SAMPLES, EVERY_SAMPLE = "some samples", "every sample"


def answer_questions(
    questions: Iterable[str],
    answers: IO[str],
    memory: int,
    replica: Replica,
    evaluate: Callable[[bool], EvaluationResult],
) -> None:
    """Answer every request with the result for the weights in shared memory.

    Args:
        questions: lines with SOME_SAMPLES or EVERY_SAMPLE.
        answers: stream for a line of JSON per request.
        memory: file descriptor of the shared memory: weights, then statistics, in float32.
        replica: the network, with the same layout of vectors as the training process's.
        evaluate: evaluates the network, on every sample if its argument is true.
    """
    shared = np.frombuffer(mmap.mmap(memory, 4 * replica.size), np.float32)
    for line in questions:
        begin = time.monotonic()
        replica.open()
        replica.weights.write(0, shared[: replica.weights.size])
        replica.statistics.write(0, shared[replica.weights.size :])
        replica.close()
        result = evaluate(line.strip() == EVERY_SAMPLE)
        print(json.dumps(asdict(replace(result, seconds=time.monotonic() - begin))), file=answers, flush=True)


@contextlib.contextmanager
def failure_reported(answers: IO[str]) -> Iterator[None]:
    """Report an error in the body of a `with` statement to the training process, as an answer."""
    try:
        yield
    except BrokenPipeError:  # the training process is ending
        raise
    except (Exception, SystemExit) as error:
        if not isinstance(error, ExpectedError):
            traceback.print_exc()
        reason = failure(error) or "SystemExit"
        if not isinstance(error, EvaluationError):
            reason = f"the evaluation of the model has failed: {reason}"
        print(json.dumps({"error": reason}), file=answers, flush=True)
