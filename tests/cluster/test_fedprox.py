"""FedProx on real clusters, against a calculation from the same gradients; --long adds flags and overlap."""

from pathlib import Path

import numpy as np
import pytest

from .test_equivalences import RATE, TOLERANCE, WORKERS, Gradient, batches, train

MU = 5.0  # so large that the proximal term stands out from rounding


class ProximalStep(Gradient):
    """A step of SGD from given weights, with the proximal term for given common weights."""

    def __call__(self, weights: np.ndarray, indices: list[int], common: np.ndarray, mu: float = MU) -> np.ndarray:
        gradient = super().__call__(weights, indices) + np.float32(mu) * (weights - common)
        return weights - np.float32(RATE) * gradient


def calculated(mu: float) -> np.ndarray:
    """Two rounds of two local iterations."""
    step = ProximalStep()
    common = step.initial
    for first in (0, 2):
        ends = []
        for rank in range(WORKERS):
            weights = step(common, batches(rank)[first], common, mu)
            ends.append(step(weights, batches(rank)[first + 1], common, mu))
        common = common + sum(end - common for end in ends) / np.float32(WORKERS)
    return common


def test_fedprox_on_a_cluster_equals_the_calculation(tmp_path: Path) -> None:
    options = {"local_iterations": 2, "prox_mu": MU}
    weights = train(tmp_path, 2, algorithm="fedprox", options=options, optimizer={"learning_rate": RATE})
    expected = calculated(MU)
    for weight in weights:
        np.testing.assert_array_equal(weight, weights[0])
    np.testing.assert_allclose(weights[0], expected, **TOLERANCE)
    assert np.abs(expected - calculated(0.0)).max() > 1e-4


@pytest.mark.long
def test_fedprox_by_flags_takes_mu_relative_to_the_mean_gradient(tmp_path: Path) -> None:
    """The command line's learning rates multiply the sum over the batch of eight."""
    flags = ["-m", "fedprox", "--local-iterations", "2", "--prox-mu", str(MU), "-b", "8", "-ll", str(RATE / 8)]
    weights = train(tmp_path, algorithm="", flags=[*flags, "-n", "lenet"])
    np.testing.assert_allclose(weights[0], calculated(MU), **TOLERANCE)


@pytest.mark.long
def test_fedprox_with_overlap_takes_the_last_received_model_as_anchor(tmp_path: Path) -> None:
    # Two iterations, then the push; a worker that may be one iteration ahead has the mean after
    # exactly one more.
    options = {"local_iterations": 2, "run_ahead": 1, "prox_mu": MU}
    weights = train(tmp_path, 2, algorithm="fedprox", options=options, optimizer={"learning_rate": RATE})
    step = ProximalStep()
    begin, pushed = step.initial, []
    for rank in range(WORKERS):
        after_one = step(begin, batches(rank)[0], begin)
        pushed.append(step(after_one, batches(rank)[1], begin))
    common = begin + sum(each - begin for each in pushed) / np.float32(WORKERS)
    for rank in range(WORKERS):
        progress = step(pushed[rank], batches(rank)[2], begin) - pushed[rank]
        expected = step(common + progress, batches(rank)[3], common)
        np.testing.assert_allclose(weights[rank], expected, **TOLERANCE)
