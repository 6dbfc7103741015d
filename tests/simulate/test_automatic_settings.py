"""`--preset fast` on modelled clusters: the state server's settings follow from what it measures."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from esync.simulate.job import SimulationJob, run


def settings_of(folder: Path, steps: dict[str, list[Any]], bandwidth: str, seconds: float = 60) -> list[dict[str, Any]]:
    """Return the settings of a simulated run, by the first round; `steps` are the devices' seconds by host."""
    workers = [
        {"host": host, "device": f"gpu{number}", "simulate": step if isinstance(step, dict) else {"step_time": step}}
        for host, devices in steps.items()
        for number, step in enumerate(devices)
    ]
    server = {"host": "server"}
    file = folder / "cluster.yaml"
    description = {
        "scheduler": server,
        "servers": [server],
        "state_server": server,
        "workers": workers,
        "network": {"bandwidth": bandwidth, "latency": "0.1ms"},
        "train": {"network": "resnet18-v1", "preset": "fast", "max_time": seconds},
    }
    file.write_text(yaml.safe_dump(description))
    done = run(SimulationJob(file, "none", {"log_dir": str(folder / "logs")}, logs=True, quiet=True))
    assert done.logs is not None
    first = next(iter(steps))
    return json.loads((done.logs / first / "gpu0" / "run.json").read_text())["chosen_settings"]


@pytest.mark.parametrize(
    ("bandwidth", "compression"),
    [("100Gbit", "fp16"), ("10Gbit", "fp16"), ("1Gbit", "2bit"), ("100Mbit", "2bit")],
)
def test_preset_compresses_as_the_network_asks(tmp_path, bandwidth, compression):
    last = settings_of(tmp_path, {"a": [0.03, 0.03], "b": [0.03, 0.03]}, bandwidth)[-1]
    assert last["compression"] == compression
    assert (last["iterations"] > 8) == (bandwidth == "100Mbit")


def test_preset_waits_for_nobody_who_is_slow_and_leaves_out_who_brings_nothing(tmp_path):
    last = settings_of(tmp_path, {"a": [0.03, 0.03], "b": [0.06, 0.5], "c": [9.0, 0.03]}, "10Gbit", 120)[-1]
    assert (last["aside"], last["left_out"]) == ([3, 4], [4])
    assert last["iterations"] == 4


def test_preset_takes_fewer_of_the_fastest_workers_on_a_slow_network(tmp_path):
    """The others would lengthen the exchanges, though they do an iteration in a round."""
    steps = {f"host{number}": [0.03 * number] for number in range(1, 9)}
    last = settings_of(tmp_path, steps, "1Gbit")[-1]
    assert last["aside"] == last["left_out"] == list(range(8 - len(last["aside"]), 8))
    assert 3 <= len(last["aside"]) <= 5


def test_preset_decides_again_when_a_device_slows_down(tmp_path):
    slowing = {"step_time": 0.03, "speed": [[20, 0.02]]}  # a fiftieth of its speed from second 20 on
    chosen = settings_of(tmp_path, {"a": [0.03, 0.03], "b": [0.03, slowing]}, "10Gbit")
    assert chosen[1]["aside"] == []
    assert chosen[-1]["aside"] == [3]
    assert chosen[-1]["iterations"] == 8
