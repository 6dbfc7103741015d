"""`python -m esync.worker` in every mode, on real clusters with real data.

There are one and two servers. --long adds modes, and the other number of servers to each.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ..support import child
from ..support.forked import ForkedProgram
from ..support.variants import variants
from .harness import Cluster

ROUNDS = 6
WORKER = ["-m", "esync.worker", "-c", "1", "-n", "lenet", "-b", "16", "--rounds", str(ROUNDS), "-e", "2"]
#: Images of the data set `few`; evaluating Fashion-MNIST's 10,000 would take longer than all the rest.
SAMPLES = 600
STEP_TIMES = ("0.02", "0.15")
#: In mode esync, so that the fast worker is the faster one on a busy machine, too.
ESYNC_STEP_TIMES = ("0.02", "0.4")
#: Half of the samples of a whole run with three local iterations lie behind its third round.
DECAY = ["--lr-decay", "0.5:0.1", "--epochs", str(ROUNDS * 2 * 3 * 16 / SAMPLES)]
MODES = {
    "esync": ["-m", "esync", "-ll", "0.002"],
    "esync with fixed local iterations": ["-m", "esync", "-ll", "0.002", "--local-iterations", "3"],
    "local-sgd with a decaying rate": ["-m", "local-sgd", "-ll", "0.002", "--local-iterations", "3", *DECAY],
    "sync": ["-m", "sync", "-l", "0.002", "--momentum", "0.5"],
    "async": ["-m", "async", "-l", "0.002"],
    "dcasgd": ["-m", "async", "-l", "0.002", "--use-dcasgd", "1", "--dcasgd-adaptive"],
}


@pytest.fixture(scope="session")
def few(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Flags for a data set of few images."""
    rng, file = np.random.default_rng(0), tmp_path_factory.mktemp("data") / "few.npz"
    images, labels = rng.integers(0, 256, (SAMPLES, 28, 28)).astype(np.uint8), np.arange(SAMPLES) % 10
    np.savez(file, x_train=images, y_train=labels, x_test=images[:50], y_test=labels[:50])
    return ["-d", f"npz:{file}"]


def rounds(folder: Path) -> list[dict[str, Any]]:
    """The logs of one device in order."""
    files = sorted(folder.glob("iter-*.txt"), key=lambda path: int(path.stem.split("-")[1]))
    return [json.loads(path.read_text()) for path in files]


@pytest.mark.parametrize(
    ("mode", "servers"),
    [
        *variants(((mode, 1) for mode in MODES), quick=["local-sgd with a decaying rate"]),
        *variants(((mode, 2) for mode in MODES), quick=["esync", "async"]),
    ],
)
def test_worker_program_runs_in_every_mode(tmp_path: Path, few: list[str], mode: str, servers: int) -> None:
    step_times = ESYNC_STEP_TIMES if mode == "esync" else STEP_TIMES
    with Cluster(tmp_path, len(step_times), servers) as cluster:
        address = ["-ip", "127.0.0.1", "-port", str(cluster.start_state_server())] if mode == "esync" else []
        for rank, step_time in enumerate(step_times):
            logs = ["-ld", str(tmp_path / f"logs-{rank}"), "--step-time", step_time]
            cluster.start_worker(rank, [*WORKER, *few, *MODES[mode], *address, *logs])
        cluster.finish()
    fast, slow = (rounds(tmp_path / f"logs-{rank}" / "cpu") for rank in range(2))
    facts = [json.loads((tmp_path / f"logs-{rank}" / "cpu" / "run.json").read_text()) for rank in range(2)]
    assert [fact["rank"] for fact in facts] == [0, 1]
    assert all(fact["finished"] for fact in facts)
    if "async" in MODES[mode]:
        assert len(fast) + len(slow) == ROUNDS * 2  # commits, whoever has made them
        assert len(fast) > len(slow)
    else:
        assert len(fast) == len(slow) == ROUNDS
    assert [entry["num_iters"] for entry in fast] == list(range(1, len(fast) + 1))
    assert sum("accuracy" in entry for entry in fast) >= 1
    assert "accuracy" in fast[-1] or len(fast) < ROUNDS
    assert not any("accuracy" in entry for entry in slow)
    last = fast[-1]
    exchanged = "global update" if mode.startswith(("esync", "local")) else "global aggregate"
    assert exchanged in last["time"][max(last["time"], key=int)]
    model = facts[0]["model_bytes"]
    for entry in fast[1:]:
        assert model < entry["bytes_sent"] < 2 * model
        assert model < entry["bytes_received"] < 2 * model
    iterations = [entry["num_samples"] // 16 for entry in fast]
    if mode == "esync":
        assert max(iterations) > 1
        assert all(entry["num_samples"] == 16 for entry in slow)
    else:
        assert set(iterations) == {3 if "--local-iterations" in MODES[mode] else 1}
    if "decaying" in mode:
        assert [fact["learning_rate_factor"] for fact in facts] == [0.1, 0.1]


def test_worker_program_in_local_mode_needs_no_cluster(tmp_path: Path, few: list[str]) -> None:
    command = [*WORKER, *few, "-m", "local", "-l", "0.002", "-ld", str(tmp_path / "logs")]
    log = tmp_path / "log"
    assert ForkedProgram(command, child.environment(), log).wait(60) == 0, log.read_text()
    entries = rounds(tmp_path / "logs" / "cpu")
    assert len(entries) == ROUNDS
    assert "accuracy" in entries[-1]
    assert entries[0]["bytes_sent"] == 0
