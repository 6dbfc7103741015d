"""A worker behind a narrow link, as in the published experiment: network namespaces, with tc's token buckets."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

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


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def narrow() -> Iterator[tuple[str, str, str]]:
    """A namespace behind a narrow link: its name, this side's address, that side's."""
    if os.geteuid() or not shutil.which("ip") or not shutil.which("tc"):
        pytest.skip("network namespaces need root, ip and tc")
    number = os.getpid() % 60_000
    name, outer, inner = f"esync-{number}", f"es{number}o", f"es{number}i"
    here, there = (f"10.{100 + number // 256 % 128}.{number % 256}.{last}" for last in (1, 2))
    limit = ["root", "tbf", "rate", f"{MEGABITS}mbit", "burst", "32kbit", "latency", "400ms"]
    try:
        ip("netns", "add", name)
        ip("link", "add", outer, "type", "veth", "peer", "name", inner, "netns", name)
        ip("addr", "add", f"{here}/24", "dev", outer)
        ip("link", "set", outer, "up")
        ip("-n", name, "addr", "add", f"{there}/24", "dev", inner)
        ip("-n", name, "link", "set", inner, "up")
        ip("-n", name, "link", "set", "lo", "up")
        subprocess.run(["tc", "qdisc", "add", "dev", outer, *limit], check=True, capture_output=True)
        ip("netns", "exec", name, "tc", "qdisc", "add", "dev", inner, *limit)
        yield name, here, there
    except subprocess.CalledProcessError as error:
        pytest.skip(f"this machine makes no narrow links: {error.stderr.decode().strip()}")
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True)  # takes the link with it
        subprocess.run(["ip", "link", "del", outer], capture_output=True)


def train(folder: Path, link: tuple[str, str, str], *arguments: str) -> list[dict]:
    """The rounds of one worker at the far end."""
    name, here, there = link
    folder.mkdir()
    cluster = Cluster(folder, 1)
    cluster.environment |= {"DMLC_PS_ROOT_URI": here, "DMLC_NODE_HOST": here}
    with cluster:
        logs = ["-ld", str(folder / "logs")]
        inside = ["ip", "netns", "exec", name]
        cluster.start("worker-0", [*WORKER, *logs, *arguments], inside, DMLC_NODE_HOST=there)
        cluster.finish()
    return rounds(folder / "logs" / "cpu")


def test_a_dense_exchange_takes_as_long_as_its_bytes_and_a_sparse_one_has_few(
    tmp_path: Path, narrow: tuple[str, str, str]
) -> None:
    dense = train(tmp_path / "dense", narrow, "--mode", "async")
    sparse = train(tmp_path / "sparse", narrow, "--mode", "dgs", "--secondary-ratio", "0.01")
    for entry in dense[1:]:
        both = 8 * (entry["bytes_sent"] + entry["bytes_received"])
        assert both > 8 * 2 * 4 * 61_706
        assert entry["transfer"] > 0.7 * both / (MEGABITS * 1e6)  # one way after the other
    wires = [sum(each["bytes_sent"] + each["bytes_received"] for each in entries[1:]) for entries in (dense, sparse)]
    assert wires[1] < wires[0] / 6
