"""Gluon's Estimator on a real cluster of two unequal workers, with a DataLoader's processes."""

import json
import re
from pathlib import Path

from esync.runtime.phase_timer import COMPUTE

from .estimator_program import ROUNDS, SAMPLES
from .harness import SCRIPTS, Cluster

STEPS = (0.02, 0.3)  # seconds


def test_estimator_over_shard_and_data_loader_with_processes_trains(tmp_path: Path) -> None:
    with Cluster(tmp_path, len(STEPS)) as cluster:
        address = f"127.0.0.1:{cluster.start_state_server()}"
        for rank, step in enumerate(STEPS):
            variables = {"ESYNC_STATE_SERVER": address, "ESYNC_STEP_TIME": str(step)}
            program = [str(SCRIPTS / "estimator_program.py")]
            cluster.start_worker(rank, program, **variables, ESYNC_LOG_DIR=str(tmp_path / f"logs-{rank}"))
        cluster.finish()
    outputs = [cluster.output(f"worker-{rank}") for rank in range(len(STEPS))]
    shards = [json.loads(re.search(r"^shard (.*)$", output, re.MULTILINE)[1]) for output in outputs]
    assert sorted(sample for shard in shards for sample in shard) == list(range(SAMPLES))
    assert all(f"finished True {ROUNDS}" in output for output in outputs)
    assert len({re.search(r"^weights (\w+)$", output, re.MULTILINE)[1] for output in outputs}) == 1
    for rank in range(len(STEPS)):
        folder = tmp_path / f"logs-{rank}" / "cpu"
        rounds = [json.loads((folder / f"iter-{number}.txt").read_text()) for number in range(1, ROUNDS + 1)]
        # More samples than its share has: the loader has been started anew.
        assert sum(entry["num_samples"] for entry in rounds) > len(shards[rank])
        computed = [phases for entry in rounds for phases in entry["time"].values() if COMPUTE in phases]
        assert len(computed) >= ROUNDS
