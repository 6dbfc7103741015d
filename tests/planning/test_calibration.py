"""From a measurement to a description that launch and simulate read."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from esync.launch.description import Description, read
from esync.planning.calibration import (
    MARK,
    CalibratedFileError,
    NoDevicesError,
    calibrated,
    check_path,
    set_true,
    write_calibrated,
)
from esync.planning.device_measurement import DeviceFigures
from esync.planning.link_probe import LinkFigures
from esync.planning.measurement import Measurement
from esync.planning.network_measurement import NetworkFigures
from esync.planning.server_measurement import ServerFigures
from esync.simulate.cluster import model
from esync.simulate.network import Network
from esync.simulate.timing import SIZES

LENET = SIZES["lenet"]


def cluster(**fields: Any) -> dict[str, Any]:
    return {
        "scheduler": {"host": "a"},
        "servers": [{"host": "a"}],
        "state_server": {"host": "a", "port": 7},
        "workers": [{"host": "a", "device": "cpu"}, {"host": "b", "device": "gpu0", "threads": 2}],
        "train": {"network": "lenet", "batch_size": 8},
        **fields,
    }


def device(step_time: float, jitter: float = 0.05, **vectors: int) -> DeviceFigures:
    return DeviceFigures(step_time, jitter, 8.0, 100, vectors or LENET)


def measured(*step_times: float) -> Measurement:
    """That of devices; without any, of two equal ones."""
    return Measurement(dict(enumerate(map(device, step_times or (0.1, 0.1)))))


def link(rate: float, latency: float) -> LinkFigures:
    return LinkFigures(latency, rate, rate)


class Case:
    """A description's file, and what the calibrated one says."""

    def __init__(self, folder: Path, content: dict[str, Any]) -> None:
        self.file = folder / "cluster.yaml"
        self.file.write_text(yaml.safe_dump(content))
        self.calibrated = folder / "cluster.calibrated.yaml"

    def calibrate(self, measurement: Measurement, **options: Any) -> Description:
        content = calibrated(self.file, read(self.file), measurement, **options)
        write_calibrated(self.calibrated, self.file, content, measurement)
        return read(self.calibrated)


def test_measured_values_stand_where_the_simulator_reads_them(tmp_path: Path) -> None:
    measurement = Measurement(
        {0: device(0.1), 1: device(0.25, 0.5)}, {0: ServerFigures(0.0004, 5e8)}, 0.0003, missing=["something"]
    )
    case = Case(tmp_path, cluster())
    models = model(case.calibrate(measurement), tmp_path)
    assert [worker.device.step_time for worker in models.workers] == [0.1, 0.25]
    assert [worker.device.jitter for worker in models.workers] == [0.05, 0.5]
    assert [worker.device.distribution for worker in models.workers] == ["normal", "lognormal"]
    assert (models.servers[0].message_time, models.servers[0].throughput) == (0.0004, 5e8)
    assert models.state_server.answer_time == 0.0003
    lines = case.calibrated.read_text().splitlines()
    assert lines[0].startswith(MARK)
    assert lines[1] == "# Not measured: something"


def test_what_launch_reads_stays_as_it_is(tmp_path: Path) -> None:
    content = cluster(hosts={"b": {"address": "10.0.0.2", "user": "me"}})
    content["workers"][1] |= {"step_time": 0.2, "simulate": {"pauses": [{"at": 5.0, "lasting": 1.0}], "trace": "gone"}}
    case = Case(tmp_path, content)
    before = case.file.read_text()
    description = case.calibrate(measured(0.1, 0.25))
    assert case.file.read_text() == before
    worker = description.workers[1]
    assert (worker.step_time, worker.threads, worker.device) == (0.2, 2, "gpu0")
    assert worker.simulate.trace is None  # the measurement takes its place
    assert worker.simulate.pauses[0].at == 5.0
    assert description.hosts["b"].user == "me"
    assert description.state_server is not None
    assert description.state_server.port == 7


def test_device_without_figures_keeps_its_own_time_or_is_left_out(tmp_path: Path) -> None:
    content = cluster()
    content["workers"][1]["simulate"] = {"step_time": 0.7}
    measurement = measured(0.1)
    assert [worker.simulate.step_time for worker in Case(tmp_path, content).calibrate(measurement).workers] == [
        0.1,
        0.7,
    ]
    assert measurement.missing == []
    description = Case(tmp_path, cluster()).calibrate(measurement)
    assert [worker.host for worker in description.workers] == ["a"]
    assert measurement.missing == ["worker-1 (b/gpu0) is left out: the description has no step_time for it"]


def test_cluster_without_any_time_says_why(tmp_path: Path) -> None:
    with pytest.raises(NoDevicesError, match="no device could be measured:\nworker-0 has crashed\n"):
        Case(tmp_path, cluster()).calibrate(Measurement(missing=["worker-0 has crashed"]))


def test_hosts_that_are_equal_have_one_network_and_others_their_own(tmp_path: Path) -> None:
    content = cluster(network={"bandwidth": "1Mbit", "hosts": {"b": {"latency": "9ms"}}})
    content["workers"] += [{"host": "c", "device": "cpu"}, {"host": "d", "device": "cpu"}]
    rates = {"b": (1.00e7, 0.001), "c": (1.04e7, 0.00102), "d": (2e6, 0.03)}
    links = {(name, "a"): link(*figures) for name, figures in rates.items()}
    measurement = Measurement({number: device(0.1) for number in range(4)}, network=NetworkFigures(links, {"a": 2e7}))
    description = Case(tmp_path, content).calibrate(measurement)
    assert description.network.hosts.keys() == {"a", "d"}
    models = model(description, tmp_path)
    network = Network(None, models.link, ["a"])  # type: ignore[arg-type]
    assert models.link("a").bandwidth == pytest.approx(2e7, rel=1e-3)
    for name, (rate, latency) in rates.items():
        assert models.link(name).bandwidth == pytest.approx(rate, rel=0.1)
        assert network.latency(name, "a") == pytest.approx(latency, rel=0.1)


def test_nearest_host_has_no_less_than_half_of_the_ordinary_latency(tmp_path: Path) -> None:
    content = cluster()
    content["workers"] += [{"host": "c", "device": "cpu"}, {"host": "d", "device": "cpu"}]
    links = {("b", "a"): link(1e7, 0.00123449), ("c", "a"): link(1e7, 0.009), ("d", "a"): link(1e7, 0.009)}
    measurement = Measurement({number: device(0.1) for number in range(4)}, network=NetworkFigures(links))
    models = model(Case(tmp_path, content).calibrate(measurement), tmp_path)  # which refuses less
    network = Network(None, models.link, ["a"])  # type: ignore[arg-type]
    assert network.latency("c", "a") > network.latency("b", "a") > 0


def test_network_is_left_out_where_all_is_on_one_machine(tmp_path: Path) -> None:
    description = Case(tmp_path, cluster(network={"bandwidth": "1Mbit"})).calibrate(measured())
    assert description.network.bandwidth is None


def test_size_of_the_model_is_written_where_no_table_has_it(tmp_path: Path) -> None:
    description = Case(tmp_path, cluster()).calibrate(measured(0.1))
    assert description.simulate.model_bytes is None
    other = {0: device(0.1, weights=1000, statistics=24)}
    assert Case(tmp_path, cluster()).calibrate(Measurement(other)).simulate.model_bytes == 4096


def test_program_is_described_with_its_size_and_batch(tmp_path: Path) -> None:
    program = ("python", "train.py", "--fast")
    description = Case(tmp_path, cluster(train={})).calibrate(measured(), program=program)
    assert description.program == program
    assert description.simulate.model_bytes == 4 * LENET["weights"]
    assert description.simulate.batch_size == 8


def test_typed_program_takes_the_place_of_the_described_training(tmp_path: Path) -> None:
    content = cluster(train={"mode": "esync", "network": "lenet", "batch_size": 16, "log_dir": "here"})
    description = Case(tmp_path, content).calibrate(measured(), program=("python", "train.py"))
    assert description.train == {"mode": "esync", "log_dir": "here"}


def test_recommended_exchange_per_host_is_added_to_the_calibrated_file(tmp_path: Path) -> None:
    path = tmp_path / "cluster.calibrated.yaml"
    content = cluster(per_host=False)
    write_calibrated(path, Path("cluster.yaml"), content, Measurement(missing=["the network"]))
    before = path.read_text().splitlines()
    set_true(path, "per_host")
    after = path.read_text().splitlines()
    assert yaml.safe_load(path.read_text()) == {**content, "per_host": True}
    assert after[:2] == before[:2]
    assert before[1] == "# Not measured: the network"
    check_path(path)  # it is known as a calibrated description


def test_file_of_the_users_is_never_replaced(tmp_path: Path) -> None:
    case = Case(tmp_path, cluster())
    case.calibrated.write_text("workers: []\n")
    with pytest.raises(CalibratedFileError, match="has not written it"):
        case.calibrate(measured())
    assert case.calibrated.read_text() == "workers: []\n"
    case.calibrated.unlink()
    case.calibrate(measured())
    check_path(case.calibrated)
    assert case.calibrate(measured(0.2, 0.1)).workers[0].simulate.step_time == 0.2


def test_file_that_could_not_be_written_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CalibratedFileError, match="has not written it"):
        check_path(tmp_path / "pipe")
    (tmp_path / "file").touch()
    for place in (tmp_path / "file/x.yaml", Path("/proc/x.yaml")):
        with pytest.raises(CalibratedFileError, match=r"x\.yaml cannot be written: .*; name another file with --write"):
            check_path(place)
    check_path(tmp_path / "new/x.yaml")
    assert list((tmp_path / "new").iterdir()) == []
