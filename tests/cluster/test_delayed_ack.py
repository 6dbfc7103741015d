"""Workers that do not wait for the state server, behind a slow network, on a real cluster."""

import json
from pathlib import Path
from typing import Any

import pytest

from ..delaying_proxy import DelayingProxy
from .harness import Cluster

ROUNDS = 5
STEPS = (0.03, 0.5)
BATCH = 16


def rounds(folder: Path) -> list[dict[str, Any]]:
    return [json.loads((folder / f"iter-{number}.txt").read_text()) for number in range(1, ROUNDS + 1)]


@pytest.mark.parametrize("h", [1, 2])
def test_training_goes_on_while_answers_travel(tmp_path: Path, h: int) -> None:
    with Cluster(tmp_path, len(STEPS)) as cluster, DelayingProxy(cluster.start_state_server(), 0.2, 0.1) as proxy:
        for rank, step in enumerate(STEPS):
            words = ["-m", "esync.worker", "-c", "1", "-n", "lenet", "-b", str(BATCH), "-ll", "0.001"]
            words += ["--rounds", str(ROUNDS), "--no-evaluation", "--step-time", str(step)]
            words += ["-ip", "127.0.0.1", "-port", str(proxy.port), "--query-mode", "delayed-ack"]
            words += ["--job", "delayed", "--slowest-iterations", str(h), "-ld", str(tmp_path / f"logs-{rank}")]
            cluster.start_worker(rank, words)
        cluster.finish()
    fast, slow = (rounds(tmp_path / f"logs-{rank}" / "cpu") for rank in range(2))
    assert all(entry["num_samples"] % BATCH == 0 for entry in [*fast, *slow])
    # The slow one has no round behind it yet when it asks for the first time: READY finds it in another iteration.
    assert [entry["num_samples"] for entry in slow[1:]] == [h * BATCH] * (ROUNDS - 1)
    assert slow[0]["num_samples"] in (h * BATCH, (h + 1) * BATCH)
    for entry in fast[1:]:
        count = entry["num_samples"] // BATCH
        assert count > 2
        # No iteration has waited for an answer: what is done between two of them takes no time.
        asking = [phases.get("check ready", 0.0) for phases in entry["time"].values()]
        assert sorted(asking)[len(asking) // 2] < 0.05
    facts = json.loads((tmp_path / "logs-0" / "cpu" / "run.json").read_text())
    assert (facts["query_mode"], facts["slowest_iterations"]) == ("delayed-ack", h)
