"""Ranking and recommendation, from forecasts whose answer is known."""

from dataclasses import replace
from pathlib import Path

import pytest

from esync import config
from esync.planning.bottleneck import Bottleneck, Cause
from esync.planning.candidates import Candidate, PlanClass
from esync.planning.forecast import Forecast
from esync.planning.ranking import PlanError, plan, rank
from esync.planning.report import reasons
from esync.samples import UNKNOWN

from .clusters import write


def forecast(plan_class, throughput, ranks=None, per_host=False, worth=1.0, **flags):
    held = Bottleneck(Cause.DEVICES, "", 1.0)
    return Forecast(Candidate(flags, ranks, per_host), plan_class, throughput, 1.0, 1.0, 0.0, 0.0, held, worth)


def ranked(alone, exact, averaging, asynchronous):
    return rank(
        [
            forecast(PlanClass.FAST, alone, (0,), mode="local"),
            forecast(PlanClass.EXACT, exact, mode="sync"),
            forecast(PlanClass.AVERAGING, averaging, mode="esync"),
            forecast(PlanClass.ASYNCHRONOUS, asynchronous, mode="async"),
        ],
        [],
        1000.0,
    )


@pytest.mark.parametrize(
    ("speeds", "mode"),
    [
        ((100, 119, 119, 119), "local"),
        ((100, 121, 145, 145), "sync"),
        ((100, 121, 146, 175), "esync"),
        ((100, 121, 146, 176), "async"),
        ((100, 50, 119, 121), "async"),
        ((100, 110, 130, 130), "esync"),  # more than 20 % above what would be recommended else
    ],
)
def test_class_nearest_to_sgd_is_recommended_unless_the_next_gains_much(speeds, mode):
    assert config.PLAN_GAIN == 0.2
    assert ranked(*speeds).recommended.candidate.mode == mode


def test_methods_are_ordered_by_speed_and_the_simplest_of_nearly_equal_ones_leads():
    plain = forecast(PlanClass.AVERAGING, 99, mode="esync", overlap=True)
    best = forecast(PlanClass.AVERAGING, 100, mode="esync", overlap=True, compression="fp16")
    mpi = forecast(PlanClass.AVERAGING, 100.5, mode="esync", collective="ring")
    slow = forecast(PlanClass.AVERAGING, 90, mode="esync")
    assert rank([slow, best, plain, mpi], [], 1.0).classes[PlanClass.AVERAGING] == [plain, mpi, best, slow]


@pytest.mark.parametrize(("speed", "leads"), [(97, False), (95, True)])
def test_per_host_leads_where_it_is_faster(speed, leads):
    flat, by_host = (forecast(PlanClass.EXACT, s, per_host=p, mode="sync") for s, p in ((speed, False), (100, True)))
    assert rank([flat, by_host], [], 1.0).recommended is (by_host if leads else flat)


def test_per_host_leads_before_compression_that_is_as_fast():
    by_host = forecast(PlanClass.AVERAGING, 100, per_host=True, mode="esync")
    packed = forecast(PlanClass.AVERAGING, 101, mode="esync", compression="fp16")
    assert rank([packed, by_host], [], 1.0).recommended is by_host


def test_doing_without_slow_devices_is_compared_with_the_same_exchange():
    group = forecast(PlanClass.FAST, 90, (0, 1), mode="sync")
    flat, by_host = (forecast(PlanClass.EXACT, s, per_host=p, mode="sync") for s, p in ((80, False), (100, True)))
    assert rank([group, flat, by_host], [], 1.0).classes[PlanClass.FAST] == [group]


@pytest.mark.parametrize(("speed", "leads"), [(59, False), (61, True)])
def test_collective_leads_only_where_it_is_much_faster(speed, leads):
    """What MPI costs the workers is not measured."""
    assert config.PLAN_COLLECTIVE == 1.5
    servers = forecast(PlanClass.EXACT, 40, mode="sync")
    ring = forecast(PlanClass.EXACT, speed, mode="sync", collective="ring")
    ranking = rank([ring, servers], [], 1.0)
    assert ranking.classes[PlanClass.EXACT] == ([ring, servers] if leads else [servers, ring])
    assert ranking.recommended is (ring if leads else servers)


def test_doing_without_slow_devices_counts_only_where_it_is_faster_than_with_them():
    alone = forecast(PlanClass.FAST, 10, (0,), mode="local")
    all_devices = forecast(PlanClass.EXACT, 50, mode="sync")
    groups = [
        forecast(PlanClass.FAST, speed, tuple(range(number)), mode="sync") for speed, number in ((45, 2), (49, 3))
    ]
    ranking = rank([alone, all_devices, *groups], [], 1.0)
    assert ranking.classes[PlanClass.FAST] == [alone]
    assert ranking.recommended is all_devices
    groups.append(forecast(PlanClass.FAST, 60, (0, 1, 2, 3), mode="sync"))
    groups.append(forecast(PlanClass.FAST, 55, (0, 1, 2, 3, 4), mode="sync"))
    ranking = rank([alone, all_devices, *groups], [], 1.0)
    assert ranking.classes[PlanClass.FAST] == [groups[2], alone]
    assert ranking.recommended is groups[2]


def test_plan_without_a_mode_for_the_optimizer_is_refused_with_the_reason(tmp_path: Path) -> None:
    training = replace(UNKNOWN, optimizer="adam")
    with pytest.raises(PlanError, match="dcasgd: it takes steps of plain SGD, and the logs are of adam"):
        plan(write(tmp_path, 0.1, 0.2), modes=["dcasgd"], at_a_time=1, training=training)


@pytest.mark.parametrize(
    ("speeds", "expected"),
    [
        (
            (100, 150, 165, 75),
            '150 samples/s; 1.5 times as fast as the best of "fast devices only"; the best of "hidden, compressed or '
            'local averaging" is only 10% faster (more than 20% would make up for its deviation from SGD); the best of '
            '"asynchronous" is 50% slower',
        ),
        (
            (100, 50, 300, 0),
            '300 samples/s; 3 times as fast as the best of "fast devices only"; 6 times as fast as the best of "exact '
            'synchronous"; the best of "asynchronous" is 100% slower',
        ),
    ],
)
def test_reasons_compare_the_recommended_method_with_the_best_of_each_other_class(speeds, expected):
    assert reasons(ranked(*speeds)) == expected


@pytest.mark.parametrize(("worth", "mode"), [(0.2, "local"), (0.35, "esync")])
def test_one_device_alone_is_recommended_unless_what_its_samples_bring_is_exceeded(worth, mode):
    alone = forecast(PlanClass.FAST, 100, (0,), mode="local")
    exact = forecast(PlanClass.EXACT, 90, mode="sync")
    averaging = forecast(PlanClass.AVERAGING, 400, mode="esync", worth=worth)
    ranking = rank([alone, exact, averaging], [], 1.0)
    assert ranking.recommended.candidate.mode == mode
    if mode == "local":
        assert reasons(ranking) == (
            '100 samples/s; the best of "exact synchronous" is 10% slower; the best of "hidden, compressed or local '
            'averaging" has 4 times the samples/s, each worth 20% of one on one device alone, and is 20% slower'
        )


def test_averaging_on_fast_devices_is_kept_where_it_brings_more_than_the_same_on_all():
    alone = forecast(PlanClass.FAST, 10, (0,), mode="local")
    all_devices = forecast(PlanClass.AVERAGING, 100, mode="esync", worth=0.5)
    few, fewer = (
        forecast(PlanClass.AVERAGING, speed, tuple(range(number)), mode="esync", worth=0.8)
        for speed, number in ((80, 3), (70, 2))
    )
    slower = forecast(PlanClass.AVERAGING, 55, (0, 1), mode="esync", worth=0.9)
    assert rank([alone, all_devices, slower], [], 1.0).classes[PlanClass.AVERAGING] == [all_devices]
    assert rank([alone, all_devices, few, fewer], [], 1.0).classes[PlanClass.AVERAGING] == [few, all_devices]
