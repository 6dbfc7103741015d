import os
import re
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from esync import config
from esync.data import as_floats, load
from esync.evaluate import NamedEvaluation
from esync.exchange import WEIGHTS
from esync.gluon.replica import Replica
from esync.models.networks import build
from esync.runtime.errors import EvaluationError
from esync.runtime.mxnet_import import mx
from esync.runtime.processes import EVALUATING
from esync.training import evaluation_process
from esync.training.accuracy import predictions, recall_by_class, spread
from esync.training.evaluation_process import EvaluationProcess

from ..support import child
from ..support.child import alive, ends

#: Weights of LeNet-5 for ten classes and 28×28 pixels: 6·(25+1) + 16·(150+1) + 120·(400+1) + 84·121
#: + 10·85.
LENET_VALUES = 61_706


def replica_of(net) -> Replica:
    return Replica([parameter for _, parameter in sorted(net.collect_params().items())], lambda batch_size: None)


def lenet(seed: int, images: np.ndarray):
    """A lenet whose answers differ from image to image."""
    net = build("lenet", 10, mx.cpu(), seed)
    answers = net(mx.nd.array(as_floats(images))).asnumpy().argmax(axis=1)
    assert len(set(answers.tolist())) > 1
    return net, answers


# --- the number itself ----------------------------------------------------------------------------


class Table:
    """A "network" that answers with what stands in a table for the first pixel of the image."""

    def __init__(self, answers: list[int], auxiliary: bool = False) -> None:
        self.answers, self.auxiliary, self.batches = answers, auxiliary, []

    def __call__(self, inputs):
        self.batches.append(inputs.shape)
        values = np.rint(inputs.asnumpy()[:, 0, 0, 0] * 255).astype(int)
        scores = mx.nd.one_hot(mx.nd.array([self.answers[value] for value in values]), 10)
        return [scores, scores * 0] if self.auxiliary else scores


def numbered_images(count: int, size: int = 28) -> np.ndarray:
    """Images that are all of one grey: that of their number, up to 200."""
    return np.broadcast_to((np.arange(count) % 200).astype(np.uint8)[:, None, None], (count, size, size)).copy()


@pytest.mark.parametrize("auxiliary", [False, True])
def test_accuracy_and_recalls_are_shares_of_right_answers(auxiliary):
    answers = [number % 10 for number in range(200)]
    labels = np.uint8([0, 1, 2, 3, 0, 0, 0, 0])  # the first four are right
    predicted = predictions(Table(answers, auxiliary), numbered_images(8), 28, mx.cpu())
    assert np.mean(predicted == labels) == 0.5
    # Class 4 is predicted, but has no test image, and so no recall.
    assert recall_by_class(predicted, labels, list("abcde")) == {
        "recall/a": 0.2,
        "recall/b": 1.0,
        "recall/c": 1.0,
        "recall/d": 1.0,
    }


def test_accuracy_counts_every_image_where_batches_do_not_fit():
    count = 1003
    answers = [number % 10 for number in range(200)]
    images = numbered_images(count)
    labels = np.uint8([answers[number % 200] for number in range(count)])
    labels[-1] += 1
    table = Table(answers)
    assert (predictions(table, images, 28, mx.cpu()) == labels).sum() == count - 1
    assert sum(shape[0] for shape in table.batches) == count
    assert len(table.batches) > 1


def test_accuracy_with_enlarged_images_uses_smaller_batches():
    answers = [number % 10 for number in range(200)]
    small, large = Table(answers), Table(answers)
    images, labels = numbered_images(60), np.uint8([number % 10 for number in range(60)])
    assert (predictions(small, images, 28, mx.cpu()) == labels).all()
    assert (predictions(large, images, 224, mx.cpu()) == labels).all()
    assert {shape[1:] for shape in large.batches} == {(1, 224, 224)}
    assert max(shape[0] for shape in large.batches) < max(shape[0] for shape in small.batches)


# --- the process ----------------------------------------------------------------------------------


def test_spread_chooses_images_evenly():
    images, labels = np.arange(10), np.arange(10) * 2
    for count, chosen in (
        (1, [0]),
        (2, [0, 5]),
        (4, [0, 2, 5, 7]),
        (10, range(10)),
        (99, range(10)),
        (None, range(10)),
    ):
        some, their = spread(images, count), spread(labels, count)
        assert some.tolist() == list(chosen)
        assert (their == 2 * some).all()


@pytest.fixture(scope="module")
def images(data_dir) -> np.ndarray:
    return load("fashion-mnist", data_dir).test_images


def start(data_dir: Path, **options: Any) -> "closing[EvaluationProcess]":
    """A process that evaluates a lenet, and is closed at the end of a with statement."""
    return closing(EvaluationProcess(NamedEvaluation("lenet", "fashion-mnist", str(data_dir), **options), LENET_VALUES))


@pytest.fixture
def process(data_dir):
    with start(data_dir) as started:
        yield started


def ask(process: EvaluationProcess, replica: Replica, **options: bool):
    replica.open()
    evaluation = process.start(replica.weights, replica.statistics, **options)
    replica.close()
    return evaluation


def test_evaluation_process_returns_the_accuracies_of_the_given_weights(data_dir, images, monkeypatch, caplog):
    """It takes some images, or every one."""
    labels = load("fashion-mnist", data_dir).test_labels
    monkeypatch.setattr(config, "ANNOUNCE_AFTER", 0.0)
    with start(data_dir, images=50) as process:
        assert os.getpgid(process._process.pid) != os.getpgid(0)  # a Ctrl-C in the terminal is not for it
        net, answers = lenet(1, images)
        replica = replica_of(net)
        first = ask(process, replica)
        # It works on a copy: what happens to the weights from now on does not matter.
        replica.open()
        replica.write(WEIGHTS, 0, np.zeros(replica.weights.size, np.float32))
        replica.close()
        assert not first.done()  # the process is still importing
        right = spread(answers, 50) == spread(labels, 50)
        assert first.wait().value == float(np.mean(right))
        assert first.wait().parts == {f"recall/{c}": round(right[spread(labels, 50) == c].mean(), 6) for c in range(10)}
        assert first.done()
        name = rf"the process that evaluates the model \(process {process._process.pid}\)"
        assert re.search(rf"waiting for the evaluation of the model for \d+ s: {name}", caplog.text)

        net, answers = lenet(2, images)
        assert ask(process, replica_of(net), every_sample=True).wait().value == float(np.mean(answers == labels))


def test_evaluation_process_that_fails_is_reported(tmp_path, images, capfd):
    """Its data set is missing."""
    replica = replica_of(lenet(1, images)[0])
    with start(tmp_path) as process:
        evaluation = ask(process, replica)
        with pytest.raises(EvaluationError, match=r"the evaluation of the model has failed: .*no such folder"):
            evaluation.wait()
        with pytest.raises(EvaluationError):  # at once, or where it has closed its input a moment later
            ask(process, replica).wait()
    assert "Traceback" not in capfd.readouterr().err


def test_error_of_an_evaluation_process_that_ends_between_two_checks_is_reported(tmp_path, images, monkeypatch):
    """It writes its error and ends while its state is read."""
    replica = replica_of(lenet(1, images)[0])

    def state_at_its_end(process_id: int) -> str:
        assert ends(process_id)
        return "Z"

    with start(tmp_path) as process, monkeypatch.context() as patch:
        patch.setattr(evaluation_process, "state_of", state_at_its_end)
        with pytest.raises(EvaluationError, match=r"has failed: .*no such folder"):
            ask(process, replica).wait()


def test_evaluation_process_that_is_killed_between_two_evaluations_is_restarted(process, data_dir, images, caplog):
    net, answers = lenet(1, images)
    first = process._process
    first.kill()
    first.wait()
    assert ask(process, replica_of(net)).wait().value == float(
        np.mean(answers == load("fashion-mnist", data_dir).test_labels)
    )
    assert process._process.pid != first.pid
    assert (
        "the process that evaluates the model was killed by SIGKILL; starting it again (1 of at most 3)" in caplog.text
    )


def test_evaluation_process_killed_too_often_is_reported(process, images, monkeypatch):
    monkeypatch.setattr(config, "EVALUATION_RESTARTS", 1)
    evaluation = ask(process, replica_of(lenet(1, images)[0]))
    for _ in range(2):
        current = process._process
        current.kill()
        current.wait()
        evaluation.done()  # looks, and starts another one
    with pytest.raises(
        EvaluationError, match="was killed by SIGKILL, and was started again 1 times before; where memory"
    ):
        evaluation.wait()


def test_evaluation_process_has_low_priority_from_its_start_and_ends_with_close_though_suspended(data_dir):
    with start(data_dir) as process:  # its imports are still to come
        number = process._process.pid
        assert os.getpriority(os.PRIO_PROCESS, number) >= EVALUATING
        group = Path(f"/proc/{number}/autogroup")
        if group.exists() and Path("/proc/sys/kernel/sched_autogroup_enabled").read_text().strip() == "1":
            # Otherwise the group of its session would get as large a share of the processor as a
            # worker's.
            assert group.read_text().split()[-1] == str(EVALUATING)
        process._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, number, os.WSTOPPED | os.WNOWAIT)
    assert process._process.poll() is not None


def test_evaluation_process_dies_with_the_training_process(data_dir):
    """Even while it is busy importing."""
    program = (
        "import sys, time\n"
        "from esync.evaluate import NamedEvaluation\n"
        "from esync.training.evaluation_process import EvaluationProcess\n"
        f"process = EvaluationProcess(NamedEvaluation('lenet', 'fashion-mnist', sys.argv[1]), {LENET_VALUES})\n"
        "print('ready')\n"
        "print(process._process.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with child.started("-c", program, str(data_dir)) as parent:
        pid = int(parent.stdout.readline())
        assert alive(pid)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        assert ends(pid)
