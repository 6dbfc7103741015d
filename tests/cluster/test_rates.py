"""Workers with different learning rates, momentum or weight decay, on real clusters."""

import json
import re
from pathlib import Path

from .harness import Cluster
from .schedule_worker import Plan
from .test_worker_program import WORKER


def test_workers_with_different_networks_or_common_rates_are_refused_at_the_start(tmp_path: Path) -> None:
    flags = (
        ["-l", "0.001", "--momentum", "0"],
        ["-l", "0.5", "--momentum", "0.9", "--weight-decay", "0.1", "-n", "mobilenet-v2"],
    )
    differences = (
        r"learning rate 0\.\d+ instead of 0\.\d+; momentum 0\.\d+ instead of 0\.\d+; network \S+ instead of .*; "
        r"weight decay 0\.\d+ instead of 0\.\d+; weights \d+ instead of \d+"
    )
    with Cluster(tmp_path, 2) as cluster:
        for rank in range(2):
            cluster.start_worker(rank, [*WORKER, "-m", "sync", *flags[rank], "-ld", str(tmp_path / f"logs-{rank}")])
        cluster.finish(expected=1)
        for rank in range(2):
            output = cluster.output(f"worker-{rank}")
            assert re.search(rf"error: worker \d does not match worker \d: {differences}", output), output
            assert "Traceback" not in output
            assert not list(tmp_path.glob("logs-*/cpu/iter-*"))
        assert cluster.processes["server-0"].returncode == 1


def test_workers_with_different_own_rates_say_so_in_output_and_run_json(tmp_path: Path) -> None:
    mode = ["-m", "esync", "--local-iterations", "2", "-ll"]
    with Cluster(tmp_path, 2) as cluster:
        for rank, rate in enumerate(("0.001", "0.002")):
            logs = str(tmp_path / f"logs-{rank}")
            cluster.start_worker(rank, [*WORKER[:-2], "--no-evaluation", *mode, rate, "-ld", logs])
        cluster.finish()
        facts = [json.loads((tmp_path / f"logs-{rank}" / "cpu" / "run.json").read_text()) for rank in range(2)]
        outputs = [cluster.output(f"worker-{rank}") for rank in range(2)]
    assert [(fact["learning_rate"], fact["per_worker_rates"]) for fact in facts] == [(0.001, True), (0.002, True)]
    for output in outputs:
        assert re.search(r"worker \d trains with learning rate 0\.00\d instead of 0\.00\d of worker \d", output), output


def test_worker_that_fails_before_its_handshake_leaves_servers_running(tmp_path: Path) -> None:
    """MXNet's server exits at a message that arrives before its updater is set."""
    with Cluster(tmp_path, 2) as cluster:
        for rank in range(2):
            cluster.start_worker(rank, Plan("sync-switch", "epochs", length=1).arguments())
        for rank in range(2):
            assert cluster.wait(f"worker-{rank}") == 1
            assert "needs to know how long the run is" in cluster.output(f"worker-{rank}")
        assert "Updater needs to be set" not in cluster.output("server-0")
