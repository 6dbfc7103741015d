"""The logs of an earlier run in the place of a measurement; here the simulator has written them."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from esync.launch.description import read
from esync.planning.log_measurement import LogsError, measure_from_logs
from esync.planning.measured_description import write_measured
from esync.planning.measurement import Measurement
from esync.simulate.job import SimulationJob, run

from ..support.json_files import change_json


def logged(folder: Path, hosts: tuple[str, ...] = ("localhost", "localhost"), **fields: Any) -> Path:
    """Simulate a run that leaves logs; return the description without times."""
    content: dict[str, Any] = {
        "scheduler": {"host": hosts[0]},
        "servers": [{"host": hosts[0], "simulate": {"message_time": 0.004}}],
        "state_server": {"host": hosts[0], "simulate": {"answer_time": 0.002}},
        "workers": [
            {"host": host, "device": "cpu", "simulate": {"step_time": step, "jitter": 0.1}}
            for host, step in zip(hosts, (0.1, 0.3), strict=True)
        ],
        "train": {"mode": "esync", "network": "lenet", "batch_size": 8},
        **fields,
    }
    real, file = folder / "real.yaml", folder / "cluster.yaml"
    real.write_text(yaml.safe_dump(content))
    run(SimulationJob(real, "none", {"rounds": 40, "log_dir": str(folder / "logs")}, logs=True, quiet=True))
    for entry in (content["servers"][0], content["state_server"], *content["workers"]):
        entry.pop("simulate")
    content.pop("network", None)
    file.write_text(yaml.safe_dump(content))
    for path in (folder / "logs").rglob("run.json"):  # a simulation without gradients has a model of one weight
        change_json(path, parameters=61_706)
    return file


def measured(file: Path) -> Measurement:
    return measure_from_logs(read(file), file, file.parent / "logs", lambda text: None)


def test_logs_of_a_run_on_one_machine_give_the_costs_that_it_had(tmp_path: Path) -> None:
    measurement = measured(logged(tmp_path))
    assert measurement.missing == []
    for number, step in enumerate((0.1, 0.3)):
        assert measurement.devices[number].step_time == pytest.approx(step, rel=0.1)
        assert measurement.devices[number].jitter == pytest.approx(0.1, rel=0.5)
        assert measurement.devices[number].batch_size == 8
    assert measurement.answer_time == pytest.approx(0.002, rel=0.3)
    assert measurement.servers[0].message_time == pytest.approx(0.004, rel=0.3)
    assert measurement.network is None


def test_logs_of_a_run_on_several_machines_give_the_network(tmp_path: Path) -> None:
    file = logged(tmp_path, ("10.9.0.1", "10.9.0.2"), network={"bandwidth": "20Mbit"})
    measurement = measured(file)
    assert measurement.servers == {}
    assert measurement.network is not None
    (figures,) = (host for name, host in measurement.network.hosts().items() if name == "10.9.0.2")
    assert figures.rate * 8 / 0.94 == pytest.approx(20e6, rel=0.5)  # the server's messages are in it, too


def test_batch_of_the_run_is_written_down_with_its_times(tmp_path: Path) -> None:
    file = logged(tmp_path)
    file.write_text(file.read_text().replace("batch_size: 8", "batch_size: 64"))
    path, _ = write_measured(file, lambda text: None, from_logs=tmp_path / "logs")
    assert read(path).train["batch_size"] == 8


def test_device_without_rounds_is_named(tmp_path: Path) -> None:
    file = logged(tmp_path)
    shutil.rmtree(next((tmp_path / "logs").rglob("cpu-1")))
    measurement = measured(file)
    assert measurement.devices.keys() == {0}
    assert measurement.missing == [f"worker-1 (localhost/cpu-1): {tmp_path / 'logs'} has no rounds of it"]


def test_logs_of_another_cluster_are_refused_with_what_is_there(tmp_path: Path) -> None:
    file = logged(tmp_path)
    file.write_text(file.read_text().replace("localhost", "127.0.0.1"))
    with pytest.raises(LogsError, match=r"no rounds of any worker of cluster\.yaml; there are: localhost/cpu, "):
        measured(file)


def test_folder_of_several_runs_is_refused(tmp_path: Path) -> None:
    file = logged(tmp_path)
    shutil.copytree(tmp_path / "logs/lenet", tmp_path / "logs/again")
    with pytest.raises(LogsError, match="holds several runs"):
        measured(file)


def test_logs_that_are_none_are_refused(tmp_path: Path) -> None:
    file = logged(tmp_path)
    next((tmp_path / "logs").rglob("iter-3.txt")).write_text("{}")
    with pytest.raises(LogsError, match="expected the logs of a run"):
        measured(file)


def test_calibrated_description_from_logs_is_simulated_like_the_run(tmp_path: Path) -> None:
    file = logged(tmp_path)
    messages: list[str] = []
    path, missing = write_measured(file, messages.append, from_logs=tmp_path / "logs")
    assert (path, missing) == (tmp_path / "cluster.calibrated.yaml", [])
    assert messages[-1] == f"wrote {path}"
    rates = [
        run(SimulationJob(description, "none", {"rounds": 20}, logs=False, quiet=True)).result["throughput"]
        for description in (tmp_path / "real.yaml", path)
    ]
    assert rates[1] == pytest.approx(rates[0], rel=0.05)


@pytest.mark.parametrize("mode", ["dgs", "nonsense"])
def test_run_that_cannot_be_simulated_still_tells_the_times_of_its_devices(tmp_path: Path, mode: str) -> None:
    file = logged(tmp_path, ("10.9.0.1", "10.9.0.2"), network={"bandwidth": "20Mbit"})
    file.write_text(file.read_text() + "network: {bandwidth: 7Mbit}\n")
    for path in (tmp_path / "logs").rglob("run.json"):
        change_json(path, options={"mode": mode})
    path, missing = write_measured(file, lambda text: None, from_logs=tmp_path / "logs")
    assert [line.partition(":")[0] for line in missing] == ["servers and network"]
    content = yaml.safe_load(path.read_text())
    assert content["network"] == {"bandwidth": "7Mbit"}
    assert all(worker["simulate"]["step_time"] > 0 for worker in content["workers"])
