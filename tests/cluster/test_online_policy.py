"""Sync-Switch's elastic policy on a real cluster with a straggler."""

import json
import sqlite3
import time
from pathlib import Path

from .harness import Cluster
from .test_worker_program import rounds

FLAGS = [
    "-m",
    "sync-switch",
    "-c",
    "1",
    "-n",
    "lenet",
    "-b",
    "8",
    "-l",
    "0.0005",
    "--step-time",
    "0.05",
    "--no-evaluation",
    "--no-export",
]
POLICY = [
    "--straggler-window",
    "4",
    "--straggler-stride",
    "2",
    "--straggler-raise-after",
    "2",
    "--straggler-clear-after",
    "1",
]
STEPS = 45
EVENT = "compute:0.4@1+4"


def test_elastic_policy_excludes_a_straggler_and_includes_it_again(tmp_path: Path) -> None:
    with Cluster(tmp_path, 3, servers=2) as cluster:
        place = ["-ip", "127.0.0.1", "-port", str(cluster.start_state_server())]
        for rank in range(3):
            words = [*FLAGS, *POLICY, *place, "--switch-order", "10", "--train-steps", str(STEPS), str(STEPS + 30)]
            if rank == 1:
                words += ["--straggle", EVENT]
            cluster.start_worker(rank, ["-m", "esync.worker", *words, "-ld", str(tmp_path / f"logs-{rank}")])
        cluster.finish()
        with sqlite3.connect(tmp_path / "state" / "history.sqlite3") as history:
            until, events = time.monotonic() + 20, []
            while ("straggler", 1) not in events and time.monotonic() < until:
                events = history.execute("SELECT kind, rank FROM server_event ORDER BY id").fetchall()
                time.sleep(0.1)
    assert ("straggler", 1) in events
    logs = [rounds(tmp_path / f"logs-{rank}" / "cpu") for rank in range(3)]
    assert len(logs[1]) < len(logs[0])  # what it did apart is not counted
    facts = json.loads((tmp_path / "logs-0" / "cpu" / "run.json").read_text())
    assert facts["finished"]
    counted = sum(entry["num_samples"] for log in logs for entry in log)
    planned = 8 * (3 * STEPS + 30)
    assert planned <= counted < planned + 3 * 8  # rounds of two workers and rounds of three, none of them lost
