"""A network in a user's file, launched."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import user_datasets
from launching import Start, description, write
from test_ssh import LONG

from esync.launch.description import DescriptionError, read
from tests.support import child
from tests.support.json_files import read_json

pytestmark = pytest.mark.timeout(400)

FILE = Path(__file__).parents[1] / "support/user_networks.py"
TRAIN: dict[str, Any] = {"network": "user_networks.py:small", "local_lr": 0.01, "rounds": 2}


def test_own_network_and_images_work_in_launch_simulate_and_evaluate(tmp_path, launch: Start):
    """Nothing of the package is changed for them."""
    user_datasets.write_folder(tmp_path / "pets", train=12, test=4)
    shutil.copy(FILE, tmp_path)
    train = {**TRAIN, "dataset": "folder:pets", "rounds": 8, "local_lr": 0.005, "partition": "dirichlet:0.5"}
    content = description([0.05, 0.11], **train, log_dir="logs", checkpoint_dir="kept")
    file = write(tmp_path / "cluster.yaml", content)
    job = launch(file)
    job.finish()
    folder = tmp_path / "logs/user_networks.small/esync-niid"
    facts = [read_json(folder / device / "run.json") for device in ("left/cpu", "right/cpu")]
    assert len({fact["sources"]["dataset"]["digest"] for fact in facts}) == 1
    assert [fact["dataset"] for fact in facts] == ["folder:pets"] * 2
    assert facts[0]["class_names"] == list(user_datasets.CLASSES)
    assert read_json(folder / "left/cpu/iter-8.txt")["accuracy"] > 0.8
    assert classifies(tmp_path / "kept/model", tmp_path / "pets") > 0.8

    def ended_well(module: str, *words: str) -> str:
        done = child.run("-m", module, *words, timeout=LONG, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    ended_well("esync.simulate", str(file), "--log-dir", "modelled", "--json", "modelled.json")
    ended_well("esync.simulate", str(file), "--log-dir", "timed", "--numerics", "none", "--json", "timed.json")
    modelled, timed = (read_json(tmp_path / f"{name}.json") for name in ("modelled", "timed"))
    assert modelled["final_accuracy"] > 0.8
    assert modelled["devices"][0]["bytes_sent"] == timed["devices"][0]["bytes_sent"]
    flags = ["--checkpoint-dir", "kept", "--once", "-n", TRAIN["network"], "-d", "folder:pets"]
    assert "round 8" in ended_well("esync.evaluate", *flags)


def classifies(model: Path, folder: Path) -> float:
    """The share of test images that the exported model classifies right, without this package."""
    import mxnet as mx

    files = [str(model / name) for name in ("model-symbol.json", "model-0000.params")]
    net = mx.gluon.SymbolBlock.imports(files[0], ["data"], files[1])
    names = sorted(path.name for path in (folder / "train").iterdir())
    right = []
    for path in sorted((folder / "test").rglob("*.png")):
        image = mx.image.imread(str(path)).astype("float32").transpose((2, 0, 1)).expand_dims(0) / 255
        right.append(names[int(net(image).asnumpy().argmax())] == path.parent.name)
    return sum(right) / len(right)


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ({"network": "user_networks.py:smal"}, r"18: train.network: .*no function smal \(did you mean small"),
        ({"mode": "halfwy.py:Halfway"}, r"\d+: train.mode: .*halfwy.py is not there"),
    ],
)
def test_launch_with_missing_function_or_file_names_it(tmp_path, monkeypatch, train, message):
    monkeypatch.chdir(tmp_path)
    shutil.copy(FILE, tmp_path)
    with pytest.raises(DescriptionError, match=f"cluster.yaml:{message}"):
        read(write(tmp_path / "cluster.yaml", description([0.05], **{**TRAIN, **train})))
