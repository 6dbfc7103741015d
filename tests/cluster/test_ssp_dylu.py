"""SSP and DyLU on a real cluster: two devices, one eight times slower than the other."""

from pathlib import Path

import pytest

from .harness import Cluster
from .test_worker_program import rounds

COMMON = ["-m", "esync.worker", "-c", "1", "-n", "lenet", "-b", "8", "--no-export", "--no-evaluation"]


@pytest.mark.parametrize(
    ("words", "commits"), [(["-m", "ssp", "--staleness", "1"], 6), (["-m", "dylu", "--local-iterations", "4"], 6)]
)
def test_ssp_waits_at_the_staleness_and_dylu_never_waits(tmp_path: Path, words: list[str], commits: int) -> None:
    logs = [tmp_path / f"logs-{rank}" for rank in range(2)]
    with Cluster(tmp_path, 2, 2) as cluster:
        for rank, seconds in enumerate(("0.1", "0.8")):
            more = ["--rounds", str(commits), "--step-time", seconds, "-ld", str(logs[rank])]
            cluster.start_worker(rank, [*COMMON, *words, *more])
        cluster.finish()
    fast, slow = (rounds(log / "cpu") for log in logs)
    if "ssp" in words:
        assert abs(len(fast) - len(slow)) <= 3  # asynchronous workers would be eight to one
        assert max(entry["wait"] for entry in fast) > 0.2
    else:
        assert {entry["num_samples"] for entry in slow} == {8}  # the slow one does one iteration at a time …
        assert fast[-1]["num_samples"] > 8  # … while the fast one does several
        assert max(entry["wait"] for entry in fast + slow) == 0
