"""`esync plan` and `--preset fast` say the same of nine clusters, and the page on modes sends readers to them."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from esync.planning import ranking
from esync.planning.candidates import Candidate, PlanClass, candidates
from esync.planning.report import method
from esync.simulate.job import SimulationJob, run

from ..support.benchmark_programs import ROOT, benchmark

BENCHMARKED = benchmark("fastest_device").CLUSTERS

pytestmark = pytest.mark.usefixtures("same_process")
#: Seconds of an iteration of each device, devices of a host, bandwidth.
CLUSTERS: dict[str, tuple[tuple[float, ...], int, str]] = {
    **{name: (c.steps, c.devices, c.bandwidth) for name, c in BENCHMARKED.items() if name != "generations"},
    "three workers at 200 Mbit/s": ((0.3, 0.72, 3.05), 1, "200Mbit"),
    "newcomer": ((0.05, 0.05, 1.2), 1, "1Gbit"),
}
FILES = {"generations": "gpu-generations.yaml", "demonstration": "demo.yaml"}
#: Where the plan recommends the fastest device alone.
ALONE = {"pair"}


def described(folder: Path, name: str) -> Path:
    """Write the description of a cluster, and return its file."""
    file = folder / "cluster.yaml"
    if name in FILES:
        content = yaml.safe_load((ROOT / "clusters" / FILES[name]).read_text())
        content["train"] = {key: content["train"][key] for key in ("network", "batch_size")}
    else:
        steps, devices, bandwidth = CLUSTERS[name]
        content = {
            "workers": [
                {"host": f"host{rank // devices}", "device": f"gpu{rank % devices}", "simulate": {"step_time": step}}
                for rank, step in enumerate(steps)
            ],
            "network": {"bandwidth": bandwidth, "latency": "0.2ms"},
            "train": {"network": "resnet18-v1", "batch_size": 64},
            "scheduler": {"host": "server"},
            "servers": [{"host": "server"}],
            "state_server": {"host": "server"},
        }
    file.write_text(yaml.safe_dump(content))
    return file


def settings_of_preset(folder: Path, file: Path) -> dict[str, Any]:
    """Return the last settings in run.json of a simulated run with the preset."""
    content = yaml.safe_load(file.read_text())
    content["train"] |= {"preset": "fast", "rounds": 30}
    preset = folder / "preset.yaml"
    preset.write_text(yaml.safe_dump(content))
    done = run(SimulationJob(preset, "none", {"log_dir": str(folder / "logs")}, logs=True, quiet=True))
    assert done.logs is not None
    infos = [json.loads(path.read_text()) for path in done.logs.rglob("run.json")]
    return next(facts["chosen_settings"][-1] for facts in infos if facts["rank"] == 0)


def is_rival(candidate: Candidate) -> bool:
    """Return whether a candidate is the preset, or comes close to it."""
    return candidate.preset or candidate.mode == "local" or candidate.variation.keys() == {"overlap", "compression"}


@pytest.mark.parametrize("all_modes", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", [*CLUSTERS, *FILES])
def test_plan_recommends_the_preset_and_says_what_it_will_choose(
    tmp_path: Path, name: str, all_modes: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if not all_modes:
        monkeypatch.setattr(ranking, "candidates", lambda *of: list(filter(is_rival, candidates(*of))))
    file = described(tmp_path, name)
    result = ranking.plan(file, modes=() if all_modes else ("local", "tiered"))
    preset = next(forecast for forecast in result.ranking.every if forecast.candidate.preset)
    assert result.ranking.best(PlanClass.AVERAGING) is preset
    recommended = method(result, result.ranking.recommended.candidate)
    assert recommended == ("local on host0/gpu0" if name in ALONE else "--preset fast")

    caplog.set_level("INFO")
    chosen = settings_of_preset(tmp_path, file)
    differences = {
        key for key in ("iterations", "compression", "aside", "left_out") if preset.settings[key] != chosen[key]
    }
    assert not differences, (preset.settings, chosen)
    assert ("the fastest worker alone may be as fast" in caplog.text) == (name in ALONE)


def test_pages_send_readers_to_the_preset_and_the_plan() -> None:
    for page in ("README.md", "docs/how-to/choose_mode.md"):
        rows = [line for line in (ROOT / page).read_text().splitlines() if line.startswith("| ")]
        assert any("--preset fast" in row for row in rows), page
        assert "esync plan" in (ROOT / page).read_text(), page
