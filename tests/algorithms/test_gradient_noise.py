"""The gradient noise scale, from known gradients and from simulated rounds."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from esync.algorithms.gradient_noise import GradientNoise, noise_share
from esync.exchange import Flat
from esync.runtime.logged_values import NOISE_SCALE
from esync.simulate.job import SimulationJob, run

ROUNDS = 150
DESCRIPTION = """
scheduler: {host: s0}
servers: [{host: s0}, {host: s1}]
state_server: {host: s0}
per_host: PER_HOST
workers:
  - {host: a, device: gpu0, simulate: {step_time: 0.1}}
  - {host: a, device: gpu1, simulate: {step_time: 0.1}}
  - {host: b, device: cpu, simulate: {step_time: 0.25}}
train: {network: mlp, batch_size: 16, rounds: 5, eval_duration: 100, test_images: 16}
"""


def measured(samples: list[int], size: int, scales: list[float]) -> float | None:
    """Return the noise scale of workers that send multiples of their mean gradients; the true one is 2,000 samples."""
    generator = np.random.default_rng(3)
    direction = generator.normal(size=size) / np.sqrt(size)
    noise, scale = GradientNoise(), None
    for number in range(ROUNDS):
        total: Counter[str] = Counter()
        for count, factor in zip(samples, scales, strict=True):
            gradient = direction + generator.normal(size=size) * np.sqrt(2000 / size / count)
            source = Flat((factor * gradient).astype(np.float32))
            total.update(GradientNoise.scalars(source, size, number, count, factor, 1.0))
        scale = noise.follow(total)
    return scale


@pytest.mark.parametrize("size", [10_001, 300_000])  # read as a whole, and in part
def test_noise_scale_of_unequal_workers_is_that_of_their_samples(size: int) -> None:
    assert measured([600, 600, 100, 1200], size, [0.5, 0.5, 2.0, 0.1]) == pytest.approx(2000, rel=0.15)


def test_noise_scale_of_one_worker_or_of_infinite_gradients_is_unknown() -> None:
    assert measured([600], 5_000, [1.0]) is None
    assert GradientNoise.scalars(Flat(np.full(8, np.inf, np.float32)), 8, 1, 4, 1.0, 1.0) == {}


@pytest.mark.parametrize(("iterations", "momentum"), [(1, 0.9), (8, 0.9), (30, 0.5), (5, 0.0)])
def test_noise_of_steps_with_momentum_is_less_than_that_of_independent_ones(iterations: int, momentum: float) -> None:
    generator, velocity, sums = np.random.default_rng(5), np.zeros(4000), np.zeros(4000)
    for number in range(200 + iterations):
        velocity = momentum * velocity + generator.normal(size=4000)
        sums += velocity * (number >= 200)
    assert sums.var() * (1 - momentum) ** 2 / iterations == pytest.approx(noise_share(iterations, momentum), rel=0.1)


@pytest.mark.parametrize(
    ("flags", "per_host"),
    [
        ({"mode": "sync", "compression": "2bit"}, True),
        ({"mode": "esync", "overlap": True, "momentum": 0.9, "weighting": "samples"}, False),
        ({"mode": "async"}, False),
        ({"mode": "local"}, False),
    ],
)
def test_rounds_of_several_workers_log_the_noise_scale(
    tmp_path: Path, flags: dict[str, object], per_host: bool
) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(DESCRIPTION.replace("PER_HOST", str(per_host).lower()))
    job = SimulationJob(file, "real", {**flags, "log_dir": str(tmp_path / "logs")}, logs=True, quiet=True)
    run(job)
    logged = [
        json.loads(path.read_text()).get("logged", {}).get(NOISE_SCALE)
        for path in sorted((tmp_path / "logs").rglob("iter-5.txt"))
    ]
    if flags["mode"] in ("async", "local"):
        assert set(logged) == {None}
    else:
        assert len(logged) == 3
        assert len(set(logged)) == 1
        assert logged[0] is not None
        assert 1 < logged[0] < 1e5
