"""Compute the test accuracy in a separate process, so that no worker waits for it.

The training process starts `python -m esync.evaluate` with the task as JSON
(`training/evaluation_process.py`). With flags, this program follows a run's checkpoints.
"""

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass

from .runtime import processes


@dataclass(frozen=True)
class NamedEvaluation:
    """Evaluates a network and a data set by their names, in a newly started process.

    Attributes:
        network: name in models.MODELS, or of a function.
        dataset: name of the data set.
        data_dir: its directory; None for those of `data.load`.
        images: number of test images to evaluate, unless all are requested; None for all.
        estimated: training images from which batch norm's statistics are estimated; None keeps them.
    """

    network: str
    dataset: str
    data_dir: str | None
    images: int | None = None
    estimated: int | None = None

    without = "without evaluation: --no-evaluation"
    lighter = "evaluate on fewer images (--test-images)"
    remedy = "Start the same command again"

    def start(self, memory: int) -> "subprocess.Popen[str]":
        """See `evaluation_process.EvaluationProgram`."""
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        for name in ("DMLC_ROLE", "PORT"):
            environment.pop(name, None)
        task = {"evaluation": asdict(self), "memory": memory, "parent": os.getpid()}
        process = subprocess.Popen(
            [sys.executable, "-m", "esync.evaluate", json.dumps(task)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[memory],
            start_new_session=True,  # a Ctrl-C in the terminal is for the training process, which then ends this one
            env=environment,
            text=True,
        )
        # Not left to the process itself, whose imports at its start would disturb the first round.
        with contextlib.suppress(ProcessLookupError):
            processes.set_niceness(processes.EVALUATING, process.pid)
        return process


def main(arguments: list[str]) -> int:
    """Answer every line on standard input with the accuracy of the model in the shared memory."""
    task = json.loads(arguments[0])
    evaluation = NamedEvaluation(**task["evaluation"])
    processes.die_with_parent(task["parent"])
    from .data import load
    from .gluon.replica import Replica
    from .models.networks import build, input_size
    from .runtime.mxnet_import import mx
    from .training.accuracy import AccuracyEvaluator
    from .training.evaluation_answers import answer_questions, failure_reported

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of a user's network must not be mixed with answers
    with failure_reported(answers):
        dataset = load(evaluation.dataset, evaluation.data_dir)
        context = mx.cpu()
        net = build(evaluation.network, dataset.classes, context, seed=0, shape=dataset.shape)
        # The same order as in esync.Trainer: by name.
        parameters = [parameter for _, parameter in sorted(net.collect_params().items())]
        evaluate = AccuracyEvaluator(
            net, dataset, input_size(evaluation.network), context, evaluation.images, evaluation.estimated
        )
        replica = Replica(parameters, lambda batch_size: 0.0)
        answer_questions(sys.stdin, answers, task["memory"], replica, evaluate)
    return 0


def _follow(arguments: list[str]) -> int:
    """Evaluate the checkpoints of a run elsewhere."""
    from .runtime import program
    from .training.checkpoint_evaluator import run

    return program.run("evaluate", lambda watchdog: run(arguments, watchdog))


if __name__ == "__main__":
    if not "".join(sys.argv[1:2]).startswith("{"):
        sys.exit(_follow(sys.argv[1:]))
    sys.exit(main(sys.argv[1:]))
