"""From the time of real exchanges to the costs of a simulated server."""

import json
from pathlib import Path

import pytest
import yaml

from esync.exchange.protocol.store import LONGEST_PAUSE
from esync.planning.server_measurement import ServerFigures
from esync.simulate.job import SimulationJob, run
from esync.simulate.timing import SIZES

LENET = SIZES["lenet"]


def simulated_transfer(folder: Path, figures: ServerFigures) -> float:
    """The seconds of an exchange in the simulator, with a worker beside the server."""
    cost = {"message_time": figures.message_time}
    if figures.throughput is not None:
        cost["throughput"] = f"{figures.throughput / 1e6}MB"
    content = {
        "scheduler": {"host": "localhost"},
        "servers": [{"host": "localhost", "simulate": cost}],
        "workers": [{"host": "localhost", "device": "cpu", "simulate": {"step_time": 1.0}}],
        "train": {"mode": "sync", "network": "lenet", "rounds": 3},
    }
    (folder / "cluster.yaml").write_text(yaml.safe_dump(content))
    typed = {"log_dir": str(folder / "logs")}
    run(SimulationJob(folder / "cluster.yaml", numerics="none", typed=typed, logs=True, quiet=True))
    file = next((folder / "logs").rglob("iter-2.txt"))
    return float(json.loads(file.read_text())["transfer"])


@pytest.mark.parametrize(("poll", "transfer"), [(0.0005, 0.004), (0.002, 0.02), (0.0001, 0.0013)])
def test_simulated_exchange_takes_as_long_as_the_measured_one(tmp_path: Path, poll: float, transfer: float) -> None:
    figures = ServerFigures.of(poll, transfer, LENET)
    pause = min(LONGEST_PAUSE, transfer / 3)  # of the polls, which are the rarer the longer it takes
    assert simulated_transfer(tmp_path, figures) == pytest.approx(transfer, abs=pause)


def test_messages_never_cost_more_than_the_whole_exchange() -> None:
    figures = ServerFigures.of(0.01, 0.004, LENET)
    assert figures.message_time < 0.004 / 2
    assert figures.throughput is None


def test_larger_models_are_charged_by_the_byte() -> None:
    slow, fast = (ServerFigures.of(0.0005, transfer, SIZES["resnet18-v1"]) for transfer in (0.4, 0.1))
    assert slow.message_time == fast.message_time == 0.0005
    assert slow.throughput is not None
    assert fast.throughput is not None
    assert slow.throughput < fast.throughput
