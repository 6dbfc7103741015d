"""benchmarks/soak.py: growth of memory and files; --long runs 200,000 rounds."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ..support.benchmark_programs import benchmark

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "soak.py"
soak = benchmark("soak")

LONG = [pytest.mark.long, pytest.mark.timeout(8 * 3600)]
ROUNDS = list(range(0, 200_001, 2000))


def judged(name: str, values: list[float]) -> dict:
    return soak.Series("KiB", ROUNDS, values).judged(name, ROUNDS[-1])


def test_soak_verdict_of_growth_that_stops_is_flat():
    values = [100_000 + min(round / 100, 200) + (round % 4000) / 100 for round in ROUNDS]
    assert judged("server: RSS", values)["verdict"] == "flat"


def test_soak_verdict_of_16_bytes_a_round_is_growth():
    result = judged("server: RSS", [100_000 + round * 16 / 1024 for round in ROUNDS])
    assert result["per_1000_rounds"] == pytest.approx(1000 * 16 / 1024, abs=0.001)
    assert result["verdict"] == "grows: not known"


def run(folder: Path, mode: str, rounds: int) -> dict:
    figures = folder / "figures.json"
    command = [sys.executable, str(PROGRAM), "--modes", mode, "--rounds", str(rounds), "--json", str(figures)]
    with subprocess.Popen(command) as process:
        try:
            assert process.wait() == 0
        finally:
            process.terminate()  # where the test's time is over: it then ends the job
    return json.loads(figures.read_text())[mode]


@pytest.mark.timeout(300)
def test_soak_run_measures_every_process_and_file(tmp_path):
    result = run(tmp_path, "esync", 40)
    assert (result["rounds"], result["exit_code"]) == (40, 0)
    processes = {"launch", "scheduler", "server", "state server", "worker 0", "worker 1"}
    kinds = {"RSS", "anonymous", "open files", "threads"}
    files = {"round logs: files", "checkpoints: files", "state server's database: size", "state server's journal: size"}
    assert result["series"].keys() >= {f"{name}: {kind}" for name in processes for kind in kinds} | files


@pytest.mark.parametrize("mode", [pytest.param(mode, marks=LONG) for mode in ("esync", "async", "sync")])
def test_soak_run_of_200000_rounds_has_no_unknown_growth(tmp_path, mode):
    result = run(tmp_path, mode, 200_000)
    assert result["exit_code"] == 0
    assert result["rounds"] > 150_000  # of rank 0: asynchronous workers share them as they are fast
    assert {
        name: series["verdict"] for name, series in result["series"].items() if "not known" in series["verdict"]
    } == {}
