"""The algorithms on real clusters with LeNet and real images, against calculations without a
cluster.
"""

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from esync.runtime.mxnet_import import mx

from .harness import Cluster, outputs_of
from .lenet_worker import Plan, backward, flat_weights

WORKERS = 3
BATCH = 8
ITERATIONS = 4
SGD = {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01}
#: float32 sums in another order.
TOLERANCE = {"rtol": 1e-4, "atol": 1e-6}


def batches(rank: int) -> list[list[int]]:
    """The images of one worker's iterations; no two workers share any."""
    first = rank * BATCH * ITERATIONS
    return [list(range(first + BATCH * i, first + BATCH * (i + 1))) for i in range(ITERATIONS)]


def train(
    folder: Path,
    servers: int = 1,
    turns: list[list[int]] | None = None,
    environments: Sequence[Mapping[str, str]] = (),
    **plan: Any,
) -> list[np.ndarray]:
    """Train on a cluster, with further environments of the workers; the final weights of every worker."""
    files = [str(folder / f"weights-{rank}.npy") for rank in range(WORKERS)]
    plans = [
        Plan(rank=rank, batches=batches(rank), weights=file, turns=turns[rank] if turns else [], **plan)
        for rank, file in enumerate(files)
    ]
    outputs_of(folder, [plan.arguments() for plan in plans], servers=servers, environments=environments)
    return [np.load(file) for file in files]


def one_device(optimizer: dict[str, Any], name: str = "sgd") -> np.ndarray:
    """Plain Gluon on one device with the batches of all workers together."""
    import esync  # noqa: F401 - before mxnet
    from esync.models.networks import build

    net = build("lenet", 10, mx.cpu(), seed=0)
    trainer = mx.gluon.Trainer(net.collect_params(), name, dict(optimizer), kvstore=None)
    for iteration in range(ITERATIONS):
        together = [index for rank in range(WORKERS) for index in batches(rank)[iteration]]
        trainer.step(backward(net, together))
    return flat_weights(net)


@pytest.mark.parametrize("per_host", [False, True])
def test_ssgd_equals_one_device_with_all_batches_together(tmp_path: Path, per_host: bool) -> None:
    """Where workers exchange per host, 0 and 2 are on one, and exchange as one."""
    group = {"ESYNC_PER_HOST": "2", "ESYNC_HOST_GROUP": f"{uuid.uuid4().hex}:0,2"}
    environments = [group, {"ESYNC_PER_HOST": "2"}, group] if per_host else []
    weights = train(tmp_path, 2, algorithm="sync", optimizer=SGD, environments=environments)
    for other in weights[1:]:
        np.testing.assert_array_equal(other, weights[0])
    np.testing.assert_allclose(weights[0], one_device(SGD), **TOLERANCE)


# --- asynchronous: commits in a prescribed order --------------------------------------------------

#: Which worker commits first, second, …; every worker does ITERATIONS of them, with delays of 0 to
#: 5 commits.
ORDER = [0, 1, 2, 1, 0, 2, 2, 2, 1, 0, 0, 1]
RATE = 0.05


def turns() -> list[list[int]]:
    """For every worker, the places of its exchanges in the order."""
    return [[turn for turn, rank in enumerate(ORDER) if rank == mine] for mine in range(WORKERS)]


class Gradient:
    """Gradients at given weights, from Gluon; flat arrays."""

    def __init__(self) -> None:
        from esync.models.networks import build

        self._net = build("lenet", 10, mx.cpu(), seed=0)
        self._parameters = [parameter for _, parameter in sorted(self._net.collect_params().items())]
        self.initial = flat_weights(self._net)

    def __call__(self, weights: np.ndarray, indices: list[int]) -> np.ndarray:

        start = 0
        for parameter in self._parameters:
            stop = start + parameter.data().size
            parameter.set_data(mx.nd.array(weights[start:stop].reshape(parameter.shape)))
            start = stop
        backward(self._net, indices)
        return np.concatenate([parameter.grad().asnumpy().reshape(-1) for parameter in self._parameters]) / BATCH


def replay(strength: float) -> list[np.ndarray]:
    """Compute ASGD (strength 0) or DC-ASGD by hand; return the weights of the workers.

    Gradients are Gluon's, everything else is written out.
    """
    gradient = Gradient()
    server = gradient.initial
    sent = [server.copy() for _ in range(WORKERS)]
    done = [0] * WORKERS
    for rank in ORDER:
        g = gradient(sent[rank], batches(rank)[done[rank]])
        server = server - np.float32(RATE) * (g + np.float32(strength) * g * g * (server - sent[rank]))
        sent[rank] = server.copy()
        done[rank] += 1
    return sent


# --- the command line -----------------------------------------------------------------------------

#: The rate on the sum over the batch that is RATE on the mean, as the command line has it.
ON_THE_SUM = repr(RATE / BATCH)


def test_dcasgd_by_flags_in_a_given_order_equals_the_calculation(tmp_path: Path) -> None:
    """Its strength is that on the sum over the batch."""
    strength = 50.0  # so large that the compensation stands out from rounding
    words = ["-m", "async", "-l", ON_THE_SUM, "-b", str(BATCH), "--use-dcasgd", "1", "--dcasgd-lambda-on", "sum"]
    words += ["--dcasgd-lambda", repr(strength / BATCH)]
    weights = train(tmp_path, 2, algorithm="dcasgd", flags=words, turns=turns())
    for weight, expected, plain in zip(weights, replay(strength), replay(0.0), strict=True):
        np.testing.assert_allclose(weight, expected, **TOLERANCE)
        assert np.abs(expected - plain).max() > 1e-4


def test_ssgd_with_unequal_batches_counts_every_sample_the_same(tmp_path: Path) -> None:
    """Workers with unequal `-b`: the command line's rates on the sum over each batch, and its weight decay."""
    sizes, weights = (2, 6, 16), [str(tmp_path / f"weights-{rank}.npy") for rank in range(WORKERS)]
    assert sum(sizes) == WORKERS * BATCH
    dealt = [
        [image for rank in range(WORKERS) for image in batches(rank)[iteration]] for iteration in range(ITERATIONS)
    ]
    with Cluster(tmp_path, WORKERS, 1) as cluster:
        for rank, size in enumerate(sizes):
            first = sum(sizes[:rank])
            mine = [images[first : first + size] for images in dealt]
            words = ["-m", "sync", "-l", ON_THE_SUM, "-b", str(size), "--momentum", "0.9", "--weight-decay", "0.1"]
            cluster.start_worker(rank, Plan(rank, "sync", mine, weights[rank], flags=words).arguments())
        cluster.finish()
    expected = one_device({"learning_rate": RATE, "momentum": 0.9, "wd": 0.1})
    np.testing.assert_allclose(np.load(weights[0]), expected, **TOLERANCE)
    assert np.abs(expected - one_device({"learning_rate": RATE, "momentum": 0.9, "wd": 0.1 / BATCH})).max() > 1e-4
