"""The learning rate that fits the number of workers: `algorithms.rate_scaling`."""

import math

import pytest

from esync.algorithms import ASGD, DiLoCo, LocalSGD
from esync.algorithms.rate_scaling import effective_workers, rate_factor
from esync.algorithms.registry import ALGORITHMS, flags_of


def test_rate_factor_is_the_number_of_workers_or_its_root() -> None:
    assert [rate_factor(scaling, 9) for scaling in ("none", "linear", "sqrt")] == [1, 9, 3]


def test_rate_factor_in_warm_up_rises_evenly_from_one() -> None:
    factors = [rate_factor("linear", 5, samples, warmup_samples=100) for samples in (0, 25, 50, 100, 1000)]

    assert factors == [1, 2, 3, 5, 5]


@pytest.mark.parametrize("workers", [0.5, 0, math.nan])
def test_rate_factor_of_less_than_one_worker_is_refused(workers: float) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        rate_factor("linear", workers)


def test_effective_workers_are_all_samples_over_those_of_the_busiest() -> None:
    assert effective_workers({"round_samples": 64 * (116 * 4 + 2), "most_samples": 64 * 116}) == pytest.approx(
        4.017, abs=1e-3
    )
    assert effective_workers({}) is None


def test_warm_up_without_scaling_is_refused() -> None:
    with pytest.raises(ValueError, match="--warmup-samples needs --lr-scaling"):
        LocalSGD(warmup_samples=100)


def test_lr_scaling_belongs_to_the_methods_that_take_a_mean() -> None:
    modes = {name for name, each in ALGORITHMS.items() if "lr_scaling" in flags_of(each)}

    assert {"sync", "esync", "local-sgd", "fedprox", "scaffold", "diloco"} <= modes
    assert not {"async", "ssp", "dcasgd", "sync-switch", "dylu", "dgs", "local"} & modes
    assert DiLoCo(lr_scaling="sqrt").rate_factor == 1  # nobody has told how much all do
    assert ASGD().rate_factor == 1
