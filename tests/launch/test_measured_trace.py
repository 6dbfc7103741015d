"""Logs of a real cluster as traces for the simulator.

--long adds a mode.
"""

import json
from pathlib import Path

import pytest
from launching import description, write

from esync.runtime.phase_timer import CHECK_READY, GLOBAL_AGGREGATE, GLOBAL_UPDATE, iteration_times
from esync.simulate.__main__ import main as simulate

STEPS = {"left/cpu": 0.12, "right/cpu": 0.3}


def pace(folder: Path) -> float:
    """Return the seconds of an iteration, by the clock of the whole run.

    They are all the time after the first round, without exchanges.
    """
    files = sorted(folder.glob("iter-*.txt"), key=lambda file: int(file.stem.split("-")[1]))
    first, *rounds = [json.loads(file.read_text()) for file in files]
    phases = [each for entry in rounds for each in entry["time"].values()]
    elsewhere = (CHECK_READY, GLOBAL_UPDATE, GLOBAL_AGGREGATE)
    seconds = rounds[-1]["total_time"] - first["total_time"]
    seconds -= sum(phase.get(name, 0.0) for phase in phases for name in elsewhere)
    return seconds / sum("forward and backward" in phase for phase in phases)


@pytest.mark.timeout(150)
@pytest.mark.parametrize(
    "words",
    [
        ["--mode=local-sgd", "--local-iterations=3", "--rounds=5"],
        pytest.param(["--mode=sync", "--rounds=8"], marks=pytest.mark.long),
    ],
)
def test_trace_of_a_real_run_simulates_devices_of_the_measured_speed(tmp_path, data_dir, launch, words):
    content = description(list(STEPS.values()), data_dir=str(data_dir), batch_size=8)
    job = launch(write(tmp_path / "real.yaml", content), *words, "--no-evaluation", "--log-dir=real")
    assert job.wait(100) == 0, job.output
    mode = words[0].removeprefix("--mode=")
    real = {device: tmp_path / "real" / "lenet" / mode / device for device in STEPS}
    for worker, folder in zip(content["workers"], real.values(), strict=True):
        del worker["step_time"]
        worker["simulate"] = {"trace": str(folder)}
    file = write(tmp_path / "traced.yaml", content)
    base = [str(file), *words, "--numerics=none", "--quiet", f"--log-dir={tmp_path / 'simulated'}"]
    assert simulate(base) == 0
    for device, folder in real.items():
        simulated = pace(tmp_path / "simulated" / "lenet" / mode / device)
        assert simulated == pytest.approx(pace(folder), rel=0.03)
        assert simulated >= STEPS[device] * 0.999  # loading and the local update are part of it
        entry = json.loads((folder / "iter-2.txt").read_text())
        assert len(iteration_times(entry)) == len([p for p in entry["time"].values() if "forward and backward" in p])
