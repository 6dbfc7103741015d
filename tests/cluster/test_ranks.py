"""Workers get the ranks that they want; two that want the same are refused by name."""

import re
from pathlib import Path

from .harness import SCRIPTS, Cluster

RANKED = [str(SCRIPTS / "ranked_worker.py")]


def test_workers_that_request_ranks_get_them_and_others_the_rest(tmp_path: Path) -> None:
    """Their environment stays as it is: without a port."""
    with Cluster(tmp_path, workers=3) as cluster:
        for number, slot in enumerate(("2", "", "0")):
            cluster.start(f"worker-{number}", RANKED, ESYNC_SLOT=slot, DMLC_NODE_HOST="")
        cluster.finish()
        texts = [cluster.output(f"worker-{number}") for number in range(3)]
        assert [re.findall(r"^rank (.*)", text, re.MULTILINE) for text in texts] == [["2 None"], ["1 None"], ["0 None"]]


def test_workers_that_request_the_same_rank_are_refused_and_named(tmp_path: Path) -> None:
    with Cluster(tmp_path, workers=2) as cluster:
        for number in range(2):
            cluster.start_worker(number, RANKED, ESYNC_SLOT="1")
        for name in ("worker-0", "worker-1", "server-0", "scheduler"):
            assert cluster.wait(name) == 1, cluster.output(name)
            assert re.search(
                r"the workers at 127\.0\.0\.1:\d+ and 127\.0\.0\.1:\d+ both want rank 1 \(ESYNC_SLOT\): give each "
                "worker a rank of its own, or none, and start all processes again",
                cluster.output(name),
            ), cluster.output(name)
