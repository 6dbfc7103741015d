"""Workers with different learning rates, momentum or weight decay, on real clusters.

--long adds modes and further settings.
"""

import json
import math
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from ..support.variants import variants
from .harness import Cluster
from .rates_worker import Plan
from .test_worker_program import WORKER


def finished(folder: Path, servers: int, plans: list[Plan], expected: int = 0) -> list[str]:
    """Train; what the workers have said."""
    with Cluster(folder, len(plans), servers) as cluster:
        for rank, plan in enumerate(plans):
            cluster.start_worker(rank, plan.arguments())
        cluster.finish(expected)
        return [cluster.output(f"worker-{rank}") for rank in range(len(plans))]


def rates(output: str) -> dict[int, str]:
    """Round → learning rate that a worker has printed."""
    return {int(number): rate for number, rate in re.findall(r"round (\d+) rate (\S+)", output)}


@pytest.mark.parametrize(
    ("mode", "own", "said"),
    [
        (
            ["-m", "sync"],
            (
                ["-l", "0.001", "--momentum", "0"],
                ["-l", "0.5", "--momentum", "0.9", "--weight-decay", "0.1", "-n", "mobilenet-v2"],
            ),
            r"learning rate 0\.\d+ instead of 0\.\d+; momentum 0\.\d+ instead of 0\.\d+; network \S+ instead of .*; "
            r"weight decay 0\.\d+ instead of 0\.\d+; weights \d+ instead of \d+",
        ),
        pytest.param(
            ["-m", "sync-switch", "--train-steps", "10", "20"],
            (["-l", "0.001"], ["-l", "0.002"]),
            r"learning rate 0\.00\d instead of 0\.00\d",
            marks=pytest.mark.long,
        ),
    ],
)
def test_workers_with_different_networks_or_common_rates_are_refused_at_the_start(
    tmp_path: Path, mode: list[str], own: tuple[list[str], list[str]], said: str
) -> None:
    with Cluster(tmp_path, 2) as cluster:
        for rank in range(2):
            cluster.start_worker(rank, [*WORKER, *mode, *own[rank], "-ld", str(tmp_path / f"logs-{rank}")])
        cluster.finish(expected=1)
        for rank in range(2):
            output = cluster.output(f"worker-{rank}")
            assert re.search(rf"error: worker \d does not match worker \d: {said}", output), output
            assert "Traceback" not in output
            assert not list(tmp_path.glob("logs-*/cpu/iter-*"))
        assert cluster.processes["server-0"].returncode == 1


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param(["-m", "async", "-l"], marks=pytest.mark.long),
        ["-m", "esync", "--local-iterations", "2", "-ll"],
    ],
)
def test_workers_with_different_own_rates_say_so_in_output_and_run_json(tmp_path: Path, mode: list[str]) -> None:
    with Cluster(tmp_path, 2) as cluster:
        for rank, rate in enumerate(("0.001", "0.002")):
            logs = str(tmp_path / f"logs-{rank}")
            cluster.start_worker(rank, [*WORKER[:-2], "--no-evaluation", *mode, rate, "-ld", logs])
        cluster.finish()
        facts = [json.loads((tmp_path / f"logs-{rank}" / "cpu" / "run.json").read_text()) for rank in range(2)]
        said = [cluster.output(f"worker-{rank}") for rank in range(2)]
    assert [(fact["learning_rate"], fact["own_rates"]) for fact in facts] == [(0.001, True), (0.002, True)]
    for output in said:
        assert re.search(r"worker \d trains with learning rate 0\.00\d instead of 0\.00\d of worker \d", output), output


@pytest.mark.parametrize(("algorithm", "servers"), variants([("sync", 2), ("sync-switch", 1)], quick=["sync"]))
def test_worker_that_changes_its_rate_alone_ends_the_run_and_is_named(
    tmp_path: Path, algorithm: str, servers: int
) -> None:
    plan: dict[str, Any] = {"algorithm": algorithm}
    outputs = finished(tmp_path, servers, [Plan(**plan), Plan(**plan, changed={"3": 0.02})], expected=1)
    for output in outputs:
        assert re.search(r"worker \d committed learning rate \S+, but worker \d \S+ to round 4", output), output
        assert max(rates(output)) == 3


def test_replacement_continues_the_lr_schedule(tmp_path: Path) -> None:
    with Cluster(tmp_path, 2, replaced=True) as cluster:
        cluster.start_worker(0, Plan("sync", rounds=9, halved_every=2).arguments())
        cluster.start_worker(1, Plan("sync", rounds=9, halved_every=2, killed=5).arguments())
        assert cluster.wait("worker-1") == -signal.SIGKILL
        cluster.start("worker-1", Plan("sync", rounds=9, halved_every=2).arguments())
        cluster.finish()
        outputs = [rates(cluster.output(f"worker-{rank}")) for rank in range(2)]
    assert list(outputs[1]) == [6, 7, 8, 9]
    assert outputs[1].items() <= outputs[0].items()
    assert outputs[0][1] == "0.05"
    assert outputs[0][9] == "0.003125"


def test_worker_that_fails_before_its_handshake_leaves_servers_running(tmp_path: Path) -> None:
    """MXNet's server exits at a message that arrives before its updater is set."""
    with Cluster(tmp_path, 2) as cluster:
        for rank in range(2):
            cluster.start_worker(rank, Plan("sync-switch", samples=math.inf).arguments())
        for rank in range(2):
            assert cluster.wait(f"worker-{rank}") == 1
            assert "needs to know how long the run is" in cluster.output(f"worker-{rank}")
        assert "Updater needs to be set" not in cluster.output("server-0")


@pytest.mark.parametrize("option", variants(["global_lr", "outer_momentum"], quick=["global_lr"]))
def test_workers_with_different_global_lr_or_outer_momentum_are_refused(tmp_path: Path, option: str) -> None:
    plans = [Plan("esync", options={"local_iterations": 2, option: value}) for value in (0.5, 0.25)]
    name = "global learning rate" if option == "global_lr" else "outer momentum"
    for output in finished(tmp_path, 1, plans, expected=1):
        assert re.search(rf"does not match worker \d: {name} 0\.\d+ instead of 0\.\d+", output), output
