"""ESync with delayed queries on a real cluster, with the state server behind a slow network.

--long adds another number of questions under way.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from ..support.delaying_proxy import DelayingProxy
from ..support.variants import variants
from .harness import Cluster

ROUNDS = 4
STEPS = (0.03, 0.5)
BATCH = 16


def rounds(folder: Path) -> list[dict[str, Any]]:
    return [json.loads((folder / f"iter-{number}.txt").read_text()) for number in range(1, ROUNDS + 1)]


@pytest.mark.parametrize("h", variants([1, 2], quick=[2]))
def test_delayed_ack_trains_on_while_answers_are_under_way(tmp_path: Path, h: int) -> None:
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
    # READY finds the slow one in another iteration as long as no round has taught it to expect
    # that, or where answers take longer than its iterations (a busy machine).
    assert all(entry["num_samples"] in (h * BATCH, (h + 1) * BATCH) for entry in slow)
    for entry in fast[1:]:
        assert entry["num_samples"] > BATCH
        # No iteration has waited for an answer, which takes 0.1 s at least.
        asking = [phases.get("check ready", 0.0) for phases in entry["time"].values()]
        assert sorted(asking)[len(asking) // 2] < 0.1
    facts = json.loads((tmp_path / "logs-0" / "cpu" / "run.json").read_text())
    assert (facts["query_mode"], facts["slowest_iterations"]) == ("delayed-ack", h)
