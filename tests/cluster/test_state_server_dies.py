"""A state server that is killed while a real job trains."""

import json
import random
import signal
import sqlite3
import time
from pathlib import Path

import pytest

from ..support.ports import free_port
from .harness import Cluster

ROUNDS = 25
STEP_TIMES = ("0.02", "0.06", "0.2")
WORKER = ["-m", "esync.worker", "-c", "1", "-m", "esync", "-n", "lenet", "-b", "16", "-ll", "0.002", "-e", "1000"]


@pytest.mark.timeout(400)
def samples(folder: Path) -> int:
    """Samples of all rounds in a worker's logs."""
    return sum(json.loads(file.read_text())["num_samples"] for file in folder.glob("iter-*.txt"))


@pytest.mark.parametrize("kills", [2, pytest.param(10, marks=pytest.mark.long)])
def test_state_server_killed_during_a_job_is_waited_for_and_loses_nothing(tmp_path: Path, kills: int) -> None:
    total, port, draw = ROUNDS * max(1, kills // 4), free_port(), random.Random(kills)
    with Cluster(tmp_path, len(STEP_TIMES), seconds=120 + 20 * kills) as cluster:
        cluster.start_state_server(port)
        for rank, step_time in enumerate(STEP_TIMES):
            place = ["-ip", "127.0.0.1", "-port", str(port), "--step-time", step_time, "--rounds", str(total)]
            cluster.start_worker(rank, [*WORKER, *place, "-ld", str(tmp_path / f"logs-{rank}")])
        logs = tmp_path / "logs-0" / "cpu"
        for number in range(kills):
            while not (logs / f"iter-{number * total // kills // 2 + 1}.txt").exists():
                assert cluster.processes["worker-0"].poll() is None, cluster.output("worker-0")
                time.sleep(0.05)
            time.sleep(draw.uniform(0, 0.4))
            cluster.processes["state-server"].send_signal(signal.SIGKILL)
            cluster.processes["state-server"].wait()
            time.sleep(draw.uniform(0, 0.5))
            cluster.start_state_server(port)
        cluster.finish()
        time.sleep(1.5)  # the history's last batch
        cluster.processes["state-server"].send_signal(signal.SIGTERM)
        assert cluster.processes["state-server"].wait(20) == 0
    for rank in range(len(STEP_TIMES)):
        folder = tmp_path / f"logs-{rank}" / "cpu"
        assert len(list(folder.glob("iter-*.txt"))) == total
        assert json.loads((folder / "run.json").read_text())["finished"]
    with sqlite3.connect(tmp_path / "state" / "history.sqlite3") as history:
        runs = history.execute("SELECT job, num_workers, reason FROM server_run").fetchall()
        assert runs == [("default", len(STEP_TIMES), f"done after {total} rounds")]
        # Rounds that end faster than reports go out are added up, so samples are counted instead of
        # reports.
        counted = "SELECT rank, max(round), sum(samples) FROM server_round GROUP BY rank ORDER BY rank"
        assert history.execute(counted).fetchall() == [
            (rank, total, samples(tmp_path / f"logs-{rank}" / "cpu")) for rank in range(len(STEP_TIMES))
        ]
        sound = "compute > 0 AND seconds >= compute AND samples = 16 * local_iterations AND bytes_sent > 0"
        assert history.execute(f"SELECT count(*) FROM server_round WHERE NOT ({sound})").fetchone() == (0,)
        accuracies = history.execute("SELECT max(accuracy_round) FROM server_round").fetchone()
        assert accuracies == (total,)
        restarts = history.execute("SELECT count(*) FROM server_event WHERE kind = 'restart'").fetchone()
        assert restarts[0] <= kills
