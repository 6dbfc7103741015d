"""The program that evaluates checkpoints as they appear."""

import json
import shutil
from pathlib import Path

import pytest

from esync.checkpoints.store import CheckpointStore
from esync.data import load
from esync.models.networks import build
from esync.runtime.mxnet_import import mx
from esync.runtime.watchdog import Watchdog
from esync.training import checkpoint_evaluator
from esync.training.accuracy import predictions

from ..support import child

#: A file with networks of a user's.
OWN = Path(__file__).parents[1] / "support/user_networks.py"
AGREEMENT = {"network": "lenet", "data set": "fashion-mnist"}


def write(folder: Path, round_: int, seed: int, prefix: str = "", network: str = "lenet", **facts):
    """Rank 0's part of a checkpoint; the network whose model it has."""
    net = build(network, 10, mx.cpu(), seed)
    values = {prefix + name: parameter.data() for name, parameter in sorted(net.collect_params().items())}
    store = CheckpointStore(folder, 0)
    store.prepare()
    books = {"round": round_, "version": round_, "samples": 16 * round_, "elapsed": 0.5 * round_, "step": round_}
    store.write(
        round_,
        {"model.params": lambda path: mx.nd.save(str(path), values)},
        {"agreement": AGREEMENT, "books": books, "job": 1, **facts},
    )
    return net


def run(*words) -> int:
    return checkpoint_evaluator.run([str(word) for word in words], Watchdog())


def rows(folder: Path) -> list[list[str]]:
    heading, *lines = (folder / checkpoint_evaluator.FILE).read_text().splitlines()
    assert heading == checkpoint_evaluator.HEADING
    return [line.split(",") for line in lines]


def test_checkpoint_evaluator_evaluates_each_checkpoint_once_in_order(tmp_path, data_dir):
    checkpoints, out = tmp_path / "checkpoints", tmp_path / "out"
    flags = ["--checkpoint-dir", checkpoints, "-dd", data_dir, "--out", out, "--once"]
    nets = [write(checkpoints, 10, seed=1), write(checkpoints, 20, seed=2, prefix="another_")]
    before = sorted(path for path in checkpoints.rglob("*"))
    assert run(*flags) == 0
    assert sorted(path for path in checkpoints.rglob("*")) == before  # it only reads
    dataset = load("fashion-mnist", data_dir)
    predicted = [predictions(net, dataset.test_images, 28, mx.cpu()) for net in nets]
    expected = [(classes == dataset.test_labels).mean() for classes in predicted]
    assert [float(row[4]) for row in rows(out)] == pytest.approx(expected)
    assert [[float(row[1]), *map(int, row[2:4]), int(row[5])] for row in rows(out)] == [
        [5.0, 10, 160, 10],
        [10.0, 20, 320, 20],
    ]
    nets.append(write(checkpoints, 30, seed=3))
    assert run(*flags) == run(*flags) == 0  # goes on where it was
    assert [int(row[5]) for row in rows(out)] == [10, 20, 30]


def test_checkpoint_evaluator_evaluates_the_average(tmp_path, data_dir, capsys):
    """That of a run of the worker program, whose last evaluation is of the same model."""
    checkpoints, logs = tmp_path / "kept", tmp_path / "logs"
    words = (
        f"-m local -n mlp -l 0.02 --rounds 20 -e 20 -c 1 -b 8 -dd {data_dir} -ld {logs} --checkpoint-dir {checkpoints}"
    )
    done = child.run("-m", "esync.worker", *words.split(), "--weight-average=polynomial")
    assert done.returncode == 0, done.stderr
    assert run("--checkpoint-dir", checkpoints, "-dd", data_dir, "--out", tmp_path / "out", "--once") == 0
    (final,) = logs.rglob("iter-20.txt")
    expected = json.loads(final.read_text())
    assert float(rows(tmp_path / "out")[-1][4]) == pytest.approx(expected["accuracy"])
    assert f"lowest recall {min(expected['parts'].values()):.3f} (class " in capsys.readouterr().out


def test_checkpoint_evaluator_waits_for_incomplete_checkpoint(tmp_path, data_dir):
    complete, copy, out = tmp_path / "whole", tmp_path / "copy", tmp_path / "out"
    write(complete, 7, seed=1)
    flags = ["--checkpoint-dir", copy, "-dd", data_dir, "--out", out]
    shutil.copytree(complete, copy)
    model = copy / "round-7/model.params"
    content = model.read_bytes()
    model.write_bytes(content[:1000])  # is being copied
    with pytest.raises(checkpoint_evaluator.EvaluatorError, match="no whole checkpoint"):
        run(*flags, "--once")
    with pytest.raises(checkpoint_evaluator.EvaluatorError, match=r"within 0\.1 s"):
        run(*flags, "--patience", 0.1)
    model.write_bytes(content)
    assert run(*flags, "--until-round", 7) == 0
    assert len(rows(out)) == 1


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"agreement": {}}, "network None"),
        ({"agreement": {**AGREEMENT, "network": "mobilenet-v2"}}, "is not a model of"),
    ],
)
def test_checkpoint_evaluator_with_unknown_model_names_it(tmp_path, data_dir, facts, text):
    write(tmp_path / "c", 1, seed=1, **facts)
    with pytest.raises(checkpoint_evaluator.EvaluatorError, match=text):
        run("--checkpoint-dir", tmp_path / "c", "-dd", data_dir, "--out", tmp_path / "out", "--once")


def test_checkpoint_evaluator_imports_own_network_only_if_the_user_names_it(tmp_path, data_dir):
    """Nothing is imported because a checkpoint names it."""
    agreement = {"agreement": {**AGREEMENT, "network": "user_networks.small"}}
    write(tmp_path / "c", 1, seed=1, network=f"{OWN}:small", **agreement)
    flags = ["--checkpoint-dir", tmp_path / "c", "-dd", data_dir, "--out", tmp_path / "out", "--once"]
    with pytest.raises(
        checkpoint_evaluator.EvaluatorError, match=r"user_networks\.small, which is none of this package"
    ):
        run(*flags)
    with pytest.raises(checkpoint_evaluator.EvaluatorError, match=r"of network user_networks\.small, not of --network"):
        run(*flags, "-n", f"{OWN}:dense")
    assert run(*flags, "-n", f"{OWN}:small") == 0
    assert len(rows(tmp_path / "out")) == 1


def test_checkpoint_evaluator_does_not_overwrite_a_file_of_others(tmp_path):
    (tmp_path / checkpoint_evaluator.FILE).write_text(json.dumps({}))
    with pytest.raises(checkpoint_evaluator.EvaluatorError, match="--out"):
        run("--checkpoint-dir", tmp_path, "--out", tmp_path, "--once")
