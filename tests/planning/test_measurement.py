"""A real cluster of small workers on this machine, measured as a whole."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from launching import description

from esync.launch.description import Description
from esync.launch.resources import HostResources
from esync.planning.measurement import measure

pytestmark = pytest.mark.timeout(300)

CORES = HostResources((), len(os.sched_getaffinity(0)))


@pytest.fixture(autouse=True)
def short_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("esync.config.MEASURE_DEVICES", 1.0)
    monkeypatch.setattr("esync.config.MEASURE_DEVICES_MAX", 60.0)
    monkeypatch.setattr("esync.config.MEASURE_START", 200.0)


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    import tiny_dataset

    tiny_dataset.write(tmp_path / "data")
    return tmp_path / "data"


def cluster(data: Path, *steps: float) -> Description:
    return Description.model_validate(description(list(steps), ["localhost"], data_dir=str(data)))


def test_cluster_on_this_machine_is_measured_and_nothing_is_left(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second device does not exist: it is named, and the other one is measured."""
    monkeypatch.chdir(tiny.parent)
    described = cluster(tiny, 0.1)
    broken = described.workers[0].model_copy(update={"device": "gpu9", "step_time": None})
    described = described.model_copy(update={"workers": [*described.workers, broken]})
    messages: list[str] = []
    before = children()  # of other tests, such as a browser's
    measurement = measure(described, CORES, messages.append)
    (device,) = measurement.devices.values()
    assert device.step_time >= 0.1  # padded to it; a busy machine may need longer
    assert device.vectors == {"weights": 61_706, "statistics": 0}
    assert device.batch_size == 8
    assert measurement.servers[0].message_time > 0
    assert measurement.answer_time is not None
    assert measurement.answer_time > 0
    assert measurement.network is None
    (missing,) = measurement.missing
    assert missing.startswith("worker-1 (localhost/gpu9) ended with exit code ")
    assert "GPU" in missing
    for what in ("network:", "devices: starting", "servers: measuring the parameter server", "the state server"):
        assert any(what in line for line in messages), messages
    assert [path.name for path in tiny.parent.iterdir()] == ["data"]  # no logs
    assert children() <= before


def test_program_is_measured_in_the_place_of_the_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its batch and its model's size come from its Trainer; a program that crashes is named."""
    (tmp_path / "train.py").write_text(
        "import os, sys, esync\n"
        "from esync import mx\n"
        "if os.environ['ESYNC_DEVICE_FOLDER'] == 'cpu-1': sys.exit('no such file: pictures')\n"
        "net = mx.gluon.nn.Dense(3, in_units=4)\n"
        "net.initialize()\n"
        "trainer = esync.Trainer(net.collect_params(), 'sgd', {'learning_rate': 0.1})\n"
        "for data in trainer.batches([mx.nd.ones((16, 4))]):\n"
        "    with mx.autograd.record():\n"
        "        loss = net(data).sum()\n"
        "    loss.backward()\n"
        "    trainer.step(16)\n"
    )
    described = cluster(tmp_path, 0.05, 0.05).model_copy(update={"train": {}, "state_server": None})
    monkeypatch.chdir(tmp_path)
    measurement = measure(described, CORES, lambda text: None, ("python", "train.py"))
    assert measurement.devices.keys() == {0}
    assert measurement.devices[0].vectors == {"weights": 15, "statistics": 0}
    assert measurement.devices[0].batch_size == 16
    assert measurement.servers.keys() == {0}
    assert measurement.missing == ["worker-1 (localhost/cpu-1) ended with exit code 1: no such file: pictures"]


def test_measuring_needs_no_mxnet_where_it_is_asked_for(tmp_path: Path) -> None:
    code = "import sys; sys.modules['mxnet'] = None; import esync.planning.measurement, esync.planning.calibration"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


def children() -> set[int]:
    """The children of this process, zombies included."""
    return {int(word) for word in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}
