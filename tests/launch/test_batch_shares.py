"""Batches in proportion to the devices' speeds: from the description to the workers' flags."""

import launching
import pytest
from test_plan import make, options_of

from esync.launch.batch_shares import batch_sizes
from esync.launch.description import DescriptionError


@pytest.mark.parametrize(
    ("total", "times", "expected"),
    [
        (192, [1, 1, 1], [64, 64, 64]),
        (128, [1, 3], [96, 32]),
        (10, [1, 1, 1], [4, 3, 3]),
        (384, [0.03, 0.03, 0.03, 0.03, 3.5, 3.5], [95, 95, 95, 95, 2, 2]),
        (3, [0.001, 5, 5], [1, 1, 1]),
    ],
)
def test_batch_sizes_are_proportional_to_speeds_and_keep_the_total(
    total: int, times: list[float], expected: list[int]
) -> None:
    assert batch_sizes(total, times) == expected
    assert sum(expected) == total


def test_batch_sizes_of_more_devices_than_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="2 samples cannot be divided among 3 devices"):
        batch_sizes(2, [1, 1, 1])


def test_plan_with_batches_by_speed_gives_each_worker_its_batch_and_time() -> None:
    content = {**launching.description([0.1, 0.3], mode="sync", batch_size=64, rounds=7), "batch_by_speed": True}
    job = make(content)
    fast, slow = map(options_of, job.workers)

    assert (fast.batch_size, slow.batch_size) == (96, 32)
    assert fast.step_time == pytest.approx(0.15)
    assert slow.step_time == pytest.approx(0.15)
    assert "batches by speed: 96, 32 samples" in job.remarks


def test_plan_with_batches_by_measured_speed_prefers_the_simulated_time() -> None:
    content = {**launching.description([0.1, 0.1], mode="sync", batch_size=8), "batch_by_speed": True}
    content["workers"][1]["simulate"] = {"step_time": 0.3}

    assert [options_of(spec).batch_size for spec in make(content).workers] == [12, 4]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"mode": "esync"}, "batch_by_speed: in mode esync no worker waits"),
        ({"mode": "async"}, "batch_by_speed: in mode async no worker waits"),
        ({"mode": "sync", "optimizer": "adam"}, "--optimizer adam takes the mean gradient"),
    ],
)
def test_plan_with_batches_by_speed_where_it_would_be_wrong_is_refused(settings: dict[str, str], said: str) -> None:
    content = {**launching.description([0.1, 0.3], **settings), "batch_by_speed": True}

    with pytest.raises(DescriptionError, match=said):
        make(content)


def test_plan_with_batches_by_speed_without_speeds_is_refused() -> None:
    content = {**launching.description([0.1, 0.3], mode="sync"), "batch_by_speed": True}
    del content["workers"][1]["step_time"]

    with pytest.raises(DescriptionError, match=r"workers\[1\].simulate.step_time: batch_by_speed needs"):
        make(content)
