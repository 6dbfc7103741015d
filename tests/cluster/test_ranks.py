"""Workers get the ranks that they want; two that want the same are refused by name; --long adds a given address."""

import re
from pathlib import Path

import pytest

from .harness import SCRIPTS, Cluster

RANKED = [str(SCRIPTS / "ranked_worker.py")]


@pytest.mark.parametrize(
    "address", [pytest.param("127.0.0.1", id="given", marks=pytest.mark.long), pytest.param("", id="found")]
)
def test_workers_that_request_ranks_get_them_and_others_the_rest(tmp_path: Path, address: str) -> None:
    with Cluster(tmp_path, workers=3) as cluster:
        for number, wanted in enumerate(("2", "", "0")):  # by their ports they would be 0, 1, 2
            cluster.start_worker(number, RANKED, ESYNC_SLOT=wanted, DMLC_NODE_HOST=address)
        cluster.finish()
        said = [cluster.output(f"worker-{number}") for number in range(3)]
        assert [re.findall(r"^rank (\d)", text, re.MULTILINE) for text in said] == [["2"], ["1"], ["0"]]


def test_worker_without_port_keeps_its_environment(tmp_path: Path) -> None:
    with Cluster(tmp_path, workers=2) as cluster:
        for number in range(2):
            cluster.start(f"worker-{number}", RANKED, ESYNC_SLOT=str(1 - number))
        cluster.finish()
        assert [cluster.output(f"worker-{number}").split()[-3:] for number in range(2)] == [
            ["rank", "1", "None"],
            ["rank", "0", "None"],
        ]


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


def test_worker_that_requests_a_rank_out_of_range_is_refused(tmp_path: Path) -> None:
    with Cluster(tmp_path, workers=2) as cluster:
        cluster.start_worker(0, RANKED, ESYNC_SLOT="2")
        assert cluster.wait("worker-0") == 1
        words = "ESYNC_SLOT is 2, but should be a rank of 0 to 1: DMLC_NUM_WORKER is 2"
        assert words in cluster.output("worker-0")
