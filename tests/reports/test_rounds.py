"""Reading single round files, complete and broken."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_trees import esync_round, sync_round, write_round

from esync.reports.discovery import missing_ranges, natural
from esync.reports.rounds import BadRound, read_round
from esync.runtime.metric import Metric


def test_read_round_reads_a_published_esync_round(tmp_path: Path) -> None:
    path = write_round(tmp_path, 7, esync_round(7, 21.5, iterations=3, step_time=2.0, exchange=0.75, accuracy=0.81234))
    one = read_round(path, 7)
    assert (one.number, one.samples, one.entries, one.iterations) == (7, 192, 4, 3)
    assert one.aggregate == 0.75
    assert one.computing == pytest.approx(3 * (1.8 + 0.1))  # loading data and asking the state server left out
    assert (one.total_time, one.accuracy) == (21.5, 0.81234)
    assert (one.bytes_sent, one.bytes_received, one.wait, one.transfer, one.overruns) == (None,) * 5


def test_read_round_reads_a_sync_round_with_added_fields(tmp_path: Path) -> None:
    measured = {"wait": 0.4, "transfer": 0.1, "evaluation_time": 1.9}
    log = sync_round(1, 2.0, exchange=0.5, bytes_sent=10, bytes_received=20, **measured)
    one = read_round(write_round(tmp_path, 1, log | {"step_time_overrun": True, "of a later version": []}), 1)
    assert (one.entries, one.aggregate, one.computing) == (1, 0.5, 1.0)
    assert (one.bytes_sent, one.bytes_received, one.wait, one.transfer) == (10, 20, 0.4, 0.1)
    assert (one.accuracy, one.evaluation_time, one.overruns) == (None, 1.9, 1)


def test_read_round_of_local_mode_has_no_exchange(tmp_path: Path) -> None:
    log = sync_round(1, 2.0, step_time=1.0, exchange=0.25, ending="local update")
    one = read_round(write_round(tmp_path, 1, log), 1)
    assert one.aggregate == 0.0
    assert one.computing == 1.25


def test_read_round_orders_entries_as_numbers(tmp_path: Path) -> None:
    # as strings "9" > "10"
    one = read_round(write_round(tmp_path, 1, esync_round(1, 9.0, iterations=10, exchange=0.6)), 1)
    assert one.aggregate == 0.6


GOOD = esync_round(3, 5.0)
WHOLE = json.dumps(GOOD)


@pytest.mark.parametrize(
    ("content", "category", "reason"),
    [
        ("", "empty", "no content"),
        ("\0" * 4096, "empty", "no content"),  # what a power failure leaves
        (WHOLE[: len(WHOLE) // 2], "truncated", "line 1 column 1"),
        ("2024-01-01 INFO started\n", "foreign", "Invalid JSON"),
        ("[1, 2]", "foreign", "not a JSON object"),
        ("[" * 100_000, "foreign", "Invalid JSON"),
        (GOOD | {"num_iters": 4}, "foreign", "num_iters is 4, the file name says 3"),
        ({k: v for k, v in GOOD.items() if k != "time"}, "foreign", "time: "),
        (GOOD | {"time": {}}, "foreign", "time: "),
        (GOOD | {"time": {"0": 3.5}}, "foreign", "time → 0: "),
        (GOOD | {"time": {"0": {"forward and backward": 1.0}}}, "foreign", "neither in an exchange"),
        (GOOD | {"time": {"0": {"global update": -1}}}, "foreign", "time → 0 → global update: "),
        (GOOD | {"time": {"0": {"forward and backward": float("nan"), "global update": 1}}}, "foreign", "time → 0 → "),
        ({k: v for k, v in GOOD.items() if k != "num_samples"}, "foreign", "num_samples: Field required"),
        (GOOD | {"total_time": 10**400}, "foreign", "total_time: "),
        (GOOD | {"total_time": 1e308}, "foreign", "total_time: Input should be less than or equal to 1000000000000000"),
        (GOOD | {"time": {"0": {"forward and backward": 10**400, "global update": 1}}}, "foreign", "time → 0 → "),
        (GOOD | {"num_samples": "many"}, "foreign", "num_samples: "),
        (GOOD | {"accuracy": 81.2}, "foreign", "81.2, expected 0 to 1"),
        (GOOD | {"bytes_sent": -1}, "foreign", "bytes_sent"),
        (GOOD | {"wait": []}, "foreign", "wait"),
        (GOOD | {"transfer": 1e308}, "foreign", "transfer"),
        (GOOD | {"evaluation_time": -1}, "foreign", "evaluation_time"),
        (GOOD | {"step_time_overrun": "x"}, "foreign", "step_time_overrun"),
        (GOOD | {"bytes_received": -1}, "foreign", "bytes_received"),
        (GOOD | {"parts": []}, "foreign", "parts: Input should be "),
        (GOOD | {"parts": {"recall/1": "high"}}, "foreign", "parts → recall/1: Input should be "),
    ],
)
def test_read_round_of_malformed_file_says_why(tmp_path: Path, content: dict | str, category: str, reason: str) -> None:
    path = write_round(tmp_path, 3, content)
    with pytest.raises(BadRound) as caught:
        read_round(path, 3)
    assert caught.value.category == category
    assert reason in caught.value.reason


def test_read_round_of_binary_file_folder_or_missing_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "iter-1.txt").write_bytes(b"\xff\xfe\x80{")
    (tmp_path / "iter-2.txt").mkdir()
    for number in (1, 2):
        with pytest.raises(BadRound) as caught:
            read_round(tmp_path / f"iter-{number}.txt", number)
        assert caught.value.category == "foreign"
    with pytest.raises(BadRound) as caught:
        read_round(tmp_path / "iter-3.txt", 3)
    assert caught.value.category == "missing"


@given(st.sets(st.integers(1, 60), min_size=1))
def test_missing_ranges_and_numbers_make_up_the_whole(numbers: set[int]) -> None:
    gaps = missing_ranges(sorted(numbers))
    missing = {number for first, last in gaps for number in range(first, last + 1)}
    assert missing | numbers == set(range(1, max(numbers) + 1))
    assert not missing & numbers
    assert all(first <= last for first, last in gaps)


def test_natural_sorts_numbers_by_value() -> None:
    assert sorted(["gpu10", "gpu2", "cpu", "cpu-1", "9"], key=natural) == ["9", "cpu", "cpu-1", "gpu2", "gpu10"]


def test_round_of_another_metric_reads_its_value(tmp_path: Path) -> None:
    loss = Metric("loss", "min")
    log = sync_round(1, 2.0, loss=12.5, accuracy=0.5)
    assert read_round(write_round(tmp_path, 1, log), 1, loss).accuracy == 12.5
    assert read_round(write_round(tmp_path, 1, log), 1).accuracy == 0.5
    for value in (-3.5, 0, 10**6):
        assert read_round(write_round(tmp_path, 1, log | {"loss": value}), 1, loss).accuracy == value


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_round_of_diverged_weights_counts_without_a_value(tmp_path: Path, value: float) -> None:
    one = read_round(write_round(tmp_path, 1, sync_round(1, 2.0, loss=value)), 1, Metric("loss", "min"))
    assert (one.accuracy, one.samples) == (None, 64)


def test_round_whose_metric_is_no_number_is_foreign(tmp_path: Path) -> None:
    path = write_round(tmp_path, 1, sync_round(1, 2.0, loss="low"))
    with pytest.raises(BadRound, match="value of the metric: Input should be a valid number"):
        read_round(path, 1, Metric("loss", "min"))
