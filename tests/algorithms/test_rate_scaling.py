"""The learning rate that fits the number of workers: `algorithms.rate_scaling`."""

from types import SimpleNamespace

import pytest

from esync import Limits
from esync.algorithms import ASGD, SSGD, DiLoCo, LocalSGD
from esync.algorithms.rate_scaling import effective_workers
from esync.algorithms.registry import ALGORITHMS, flags_of


def test_rate_factor_is_the_number_of_workers_or_its_root() -> None:
    scalings = ("none", "linear", "sqrt")
    assert [LocalSGD(lr_scaling=scaling).options.rate_factor(9, 0) for scaling in scalings] == [1, 9, 3]


def test_rate_factor_in_warm_up_rises_evenly_from_one() -> None:
    options = LocalSGD(lr_scaling="linear", warmup_samples=100).options
    assert [options.rate_factor(5, samples) for samples in (0, 25, 50, 100, 1000)] == [1, 2, 3, 5, 5]


def test_effective_workers_are_all_samples_over_those_of_the_busiest() -> None:
    assert effective_workers({"round_samples": 64 * (116 * 4 + 2), "most_samples": 64 * 116}) == pytest.approx(
        4.017, abs=1e-3
    )
    assert effective_workers({}) is None


def test_warm_up_without_scaling_is_refused() -> None:
    with pytest.raises(ValueError, match="--warmup-samples needs --lr-scaling"):
        LocalSGD(warmup_samples=100)


def test_lr_scaling_belongs_to_the_methods_that_take_a_mean() -> None:
    modes = {name for name, algorithm in ALGORITHMS.items() if "lr_scaling" in flags_of(algorithm)}

    assert {"sync", "esync", "local-sgd", "fedprox", "scaffold", "diloco"} <= modes
    assert not {"async", "ssp", "dcasgd", "sync-switch", "dylu", "dgs", "local"} & modes
    assert DiLoCo(lr_scaling="sqrt").rate_factor == 1  # nobody has told how much all do
    assert ASGD().rate_factor == 1


def test_lr_decay_multiplies_the_scaled_rate_by_the_share_of_samples() -> None:
    algorithm = SSGD(lr_scaling="linear", lr_decay="0.5:0.1")
    algorithm.context = SimpleNamespace(limits=Limits(samples=1000))
    algorithm.exchange = SimpleNamespace(workers=4)

    factors = []
    for samples in (0, 499, 500, 1000):
        algorithm.result = SimpleNamespace(samples=samples)
        factors.append(algorithm.rate_factor)

    assert factors == pytest.approx([4, 4, 0.4, 0.4])
    assert algorithm.facts == {"learning_rate_factor": algorithm.rate_factor}


def test_every_mode_has_lr_decay() -> None:
    assert [name for name, algorithm in ALGORITHMS.items() if "lr_decay" not in flags_of(algorithm)] == []
