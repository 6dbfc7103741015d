"""Batches in proportion to the devices' speeds: from the description to the workers' environment."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from launching import description
from test_plan import make, options_of

from esync.launch.description import DescriptionError
from esync.runtime.batch_sizes import StepTime, batch_sizes, batch_sizes_of_a_round, least_seconds
from esync.runtime.worker_environment import WorkerEnvironment


@pytest.mark.parametrize(
    ("batch_size", "times", "expected"),
    [
        (64, [(1, 0), (1, 0), (1, 0)], [64, 64, 64]),
        (64, [(1, 0), (3, 0)], [96, 32]),
        (5, [(1, 0), (1, 0)], [5, 5]),
        (64, [(0.03, 0)] * 4 + [(3.5, 0)] * 2, [96, 96, 95, 95, 1, 1]),
        (1, [(0.001, 0), (5, 0), (5, 0)], [1, 1, 1]),
        (10, [(1, 0), (3, 1)], [17, 3]),  # 1.7 and 1.6 s; proportionally it would be 15 and 5, 1.5 and 2 s
    ],
)
def test_batch_sizes_let_the_slowest_device_take_as_short_as_possible_and_keep_the_total(
    batch_size: int, times: list[tuple[float, float]], expected: list[int]
) -> None:
    sizes = batch_sizes(batch_size, [StepTime(*time) for time in times])
    assert sum(sizes) == batch_size * len(times)
    assert sizes == expected


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([(0.03, 0)] * 2 + [(3.5, 0)], [64, 64, 4]),  # 0.24 s
        ([(0.03, 0), (0.2, 0)], [64, 64]),
        ([(0.03, 0), (30, 0)], [64, 1]),
        ([(0.03, 0), (3.5, 0.2)], [64, 3]),  # 0.4 s, of which 0.2 s are for samples
    ],
)
def test_batches_of_a_round_are_smaller_where_a_whole_one_would_make_rounds_longer(times, expected):
    assert batch_sizes_of_a_round(64, [StepTime(*time) for time in times]) == expected


@pytest.mark.parametrize(
    ("settings", "sizes"),
    [
        ({"preset": "skewed-data"}, "64, 4"),
        ({"mode": "esync"}, ""),
        ({"preset": "skewed-data-shared"}, ""),
        ({"preset": "skewed-data", "batch_by_speed": False}, ""),
        ({"preset": "skewed-data", "local_iterations": 2, "compression": "2bit"}, ""),  # samples would count alike
        ({"mode": "esync", "batch_by_speed": True}, "64, 4"),
        ({"mode": "esync", "local_iterations": 2, "batch_by_speed": True}, "127, 1"),  # all take as many steps
    ],
)
def test_preset_for_skewed_data_has_batches_by_speed_unless_described_otherwise(settings, sizes):
    by_speed = {name: value for name, value in settings.items() if name == "batch_by_speed"}
    train = {name: value for name, value in settings.items() if name not in by_speed}
    content = {**description([0.03, 3.5], network="resnet18-v1", batch_size=64, **train), **by_speed}
    expected = [f"batches by speed: {sizes} samples at first"] if sizes else []
    assert [remark for remark in make(content).remarks if remark.startswith("batches by speed")] == expected


def test_preset_for_skewed_data_goes_on_with_equal_batches_where_others_are_impossible():
    content = description([0.03, 3.5], network="resnet18-v1", preset="skewed-data")
    del content["workers"][1]["step_time"]
    job = make(content)
    assert "batches are equal: the description has no step times, which esync plan measures" in job.remarks
    assert not WorkerEnvironment.read(job.workers[0].environment).step_times

    content = {**description([0.03, 3.5]), "program": ["python", "train.py"]}
    content["train"] = {"preset": "skewed-data"}
    remark = "batches are equal: a program that asks for their size may have batch_by_speed: true"
    assert remark in make(content).remarks
    asked = make({**content, "batch_by_speed": True})
    assert remark not in asked.remarks
    assert len(WorkerEnvironment.read(asked.workers[0].environment).step_times) == 2


def test_plan_with_batches_by_speed_tells_workers_all_step_times() -> None:
    content = {**description([0.1, 0.1], mode="sync", batch_size=8), "batch_by_speed": True}
    content["workers"][1]["simulate"] = {"step_time": 0.3, "fixed_time": 0.1}  # which prevails
    job = make(content)

    for spec in job.workers:
        assert options_of(spec).batch_size == 8
        times = WorkerEnvironment.read(spec.environment).step_times
        assert times == (StepTime(0.1), StepTime(0.3, 0.1))
    assert "batches by speed: 13, 3 samples at first" in job.remarks


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "tiered"}, "batch_by_speed: rounds of mode tiered do not wait for slow workers"),
        ({"mode": "async"}, "batch_by_speed: in mode async no worker waits"),
        ({"mode": "local-sgd", "weighting": "normalized"}, "mode local-sgd does not weight workers by samples"),
    ],
)
def test_plan_with_batches_by_speed_where_it_would_be_wrong_is_refused(settings: dict[str, str], message: str) -> None:
    content = {**description([0.1, 0.3], **settings), "batch_by_speed": True}

    with pytest.raises(DescriptionError, match=message):
        make(content)


def test_plan_with_batches_by_speed_without_speeds_is_refused() -> None:
    content = {**description([0.1, 0.3], mode="sync"), "batch_by_speed": True}
    content["workers"][0]["simulate"] = {"fixed_time": 0.1}
    with pytest.raises(DescriptionError, match=r"workers\[0\].simulate.fixed_time: 0.1 s should be less than"):
        make(content)

    del content["workers"][1]["step_time"]
    with pytest.raises(DescriptionError, match=r"workers\[1\].simulate.step_time: batch_by_speed needs"):
        make(content)


@given(st.lists(st.tuples(st.floats(0.001, 10), st.floats(0, 0.9)), min_size=1, max_size=8), st.integers(1, 64))
def test_no_batches_are_faster_than_the_least_seconds(devices, batch_size):
    times = [StepTime(seconds, seconds * fixed) for seconds, fixed in devices]
    sizes = batch_sizes(batch_size, times)
    slowest = max(time.at(size / batch_size) for time, size in zip(times, sizes, strict=True))
    assert least_seconds(times) <= slowest * (1 + 1e-9)
    if len(set(times)) == 1:
        assert least_seconds(times) == pytest.approx(slowest)
