"""SCAFFOLD on real clusters, against a calculation from the same gradients."""

import json
from pathlib import Path

import numpy as np

from .harness import Cluster
from .test_equivalences import RATE, WORKERS, Gradient, batches, train

OPTIMIZER = {"learning_rate": RATE}


def calculated(control: bool = True) -> np.ndarray:
    """Compute two rounds of two local iterations.

    Without `control` there are no control variates, as in local SGD.
    """
    gradient = Gradient()
    common, c = gradient.initial, np.zeros_like(gradient.initial)
    own = [c] * WORKERS
    for first in (0, 2):
        ends, fresh = [], []
        for rank in range(WORKERS):
            weights, mean = common, np.zeros_like(common)
            for iteration in (first, first + 1):
                step = gradient(weights, batches(rank)[iteration])
                mean = mean + step / 2
                weights = weights - np.float32(RATE) * (step + (c - own[rank] if control else 0))
            ends.append(weights)
            fresh.append(mean)  # what c_i − c + (x − y)/(K·η) is
        common = common + sum(end - common for end in ends) / np.float32(WORKERS)
        c, own = np.mean(fresh, 0), fresh
    return common


def test_scaffold_on_a_cluster_equals_the_calculation(tmp_path: Path) -> None:
    weights = train(
        tmp_path, 2, algorithm="scaffold", options={"local_iterations": 2}, optimizer=OPTIMIZER
    )  # fmt: skip
    expected = calculated()
    for weight in weights:
        np.testing.assert_array_equal(weight, weights[0])
    np.testing.assert_allclose(weights[0], expected, rtol=1e-3, atol=1e-5)  # (x − y)/(K·η) magnifies rounding
    assert np.abs(expected - calculated(control=False)).max() > 1e-4


def test_scaffold_worker_program_trains_on_data_partitioned_by_class(tmp_path: Path) -> None:
    flags = "-m scaffold -c 1 -n lenet -b 8 --rounds 3 --local-iterations 2 --partition class --no-evaluation"
    with Cluster(tmp_path, 2) as cluster:
        for rank in range(2):
            words = ["-m", "esync.worker", *flags.split(), "--no-export", "-ld", str(tmp_path / f"logs-{rank}")]
            cluster.start_worker(rank, words)
        cluster.finish()
    for rank in range(2):
        assert "random numbers" not in cluster.output(f"worker-{rank}")  # its iterations are seeded by rank
        facts = json.loads(next(tmp_path.glob(f"logs-{rank}/**/run.json")).read_text())
        assert facts["finished"]
        assert facts["algorithm"]["name"] == "scaffold"
        logged = json.loads(next(tmp_path.glob(f"logs-{rank}/**/iter-3.txt")).read_text())
        assert 2 * facts["model_bytes"] <= logged["bytes_sent"] <= 2.1 * facts["model_bytes"] + 10_000
