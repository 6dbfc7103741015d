"""benchmarks/strangers.py with small numbers: attacks on every port of a training cluster."""

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "strangers.py"
TIME_LIMIT = 240.0  # seconds


def test_strangers_attacking_all_ports_end_nobody_and_cost_no_round(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    sizes = ["--messages", "500", "--connections", "120"]
    ended = subprocess.run(
        [sys.executable, str(PROGRAM), *sizes, "--json", str(figures)],
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    told = json.loads(figures.read_text())
    assert (told["ended"], told["rounds lost"]) == (0, 0)
    assert told["targets"]["scheduler"]["messages"] == 500
    assert {target: figures["connections"] for target, figures in told["targets"].items() if target != "scheduler"} == {
        "scheduler's port": 120,
        "server's port": 120,
        "worker's port": 120,
    }
