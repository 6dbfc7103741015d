"""A worker behind a narrow link (a token bucket filter), as in the published experiment.

It runs with --long only.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..support.network_namespaces import Neighbour, inside, missing, neighbour
from .harness import Cluster
from .test_worker_program import rounds

MEGABITS = 10
WORKER = [
    "-m",
    "esync.worker",
    "-c",
    "1",
    "-n",
    "lenet",
    "-b",
    "16",
    "-l",
    "0.0005",
    "--no-evaluation",
    "--rounds",
    "8",
]


@pytest.fixture
def narrow() -> Iterator[Neighbour]:
    """A machine behind a narrow link."""
    if why := missing("tc"):
        pytest.skip(why)
    limit = ["root", "tbf", "rate", f"{MEGABITS}mbit", "burst", "32kbit", "latency", "400ms"]
    with neighbour() as machine:
        try:
            for where, device in ([], machine.cable), (inside(machine.name), "eth0"):
                command = [*where, "tc", "qdisc", "add", "dev", device, *limit]
                subprocess.run(command, check=True, capture_output=True)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"this machine makes no narrow links: {error.stderr.decode().strip()}")
        yield machine


def train(folder: Path, machine: Neighbour, *arguments: str) -> list[dict]:
    """Return the rounds of one worker on that machine."""
    here, there = machine.here, machine.there
    folder.mkdir()
    cluster = Cluster(folder, 1)
    cluster.environment |= {"DMLC_PS_ROOT_URI": here, "DMLC_NODE_HOST": here}
    with cluster:
        logs = ["-ld", str(folder / "logs")]
        cluster.start("worker-0", [*WORKER, *logs, *arguments], inside(machine.name), DMLC_NODE_HOST=there)
        cluster.finish()
    return rounds(folder / "logs" / "cpu")


@pytest.mark.long
def test_worker_behind_narrow_link_sends_as_its_bytes_allow_and_dgs_sends_few(
    tmp_path: Path, narrow: Neighbour
) -> None:
    dense = train(tmp_path / "dense", narrow, "--mode", "async")
    sparse = train(tmp_path / "sparse", narrow, "--mode", "dgs", "--secondary-ratio", "0.01")
    for entry in dense[1:]:
        both = 8 * (entry["bytes_sent"] + entry["bytes_received"])
        assert both > 8 * 2 * 4 * 61_706
        assert entry["transfer"] > 0.7 * both / (MEGABITS * 1e6)  # one way after the other
    wires = [sum(each["bytes_sent"] + each["bytes_received"] for each in entries[1:]) for entries in (dense, sparse)]
    assert wires[1] < wires[0] / 6
