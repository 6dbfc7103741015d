"""What evaluations compute: names, goals, values."""

import math

import pytest

from esync.runtime.metric import TEST_ACCURACY, Metric

LOSS = Metric("loss", "min")


def test_metric_that_is_not_finite_reaches_no_target():
    assert not LOSS.reached(-math.inf, 0.8)
    assert not Metric("reward", "max").reached(math.inf, 0.8)
    assert not LOSS.reached(math.nan, 0.8)


def test_metric_best_follows_its_goal():
    assert (TEST_ACCURACY.best([0.1, 0.9, 0.5]), LOSS.best([0.1, 0.9, 0.5]), LOSS.best([])) == (0.9, 0.1, None)


def test_metric_possible_limits_only_accuracy_to_a_share():
    assert [TEST_ACCURACY.possible(value) for value in (0, 1, 1.01, -0.1, math.nan)] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert [LOSS.possible(value) for value in (-3.5, 1e9, math.inf, math.nan, 10**400)] == [True, True, *[False] * 3]


def test_metric_text_shows_small_and_large_values():
    assert (TEST_ACCURACY.text(0.81254), TEST_ACCURACY.text(0.81254, 4)) == ("0.813", "0.8125")
    assert [LOSS.text(value) for value in (0.00012345, 2.0, 153.27)] == ["0.0001234", "2", "153.3"]


@pytest.mark.parametrize(
    ("name", "goal", "problem"),
    [
        ("", "max", "expected a name of up to 60 printable characters"),
        ("two\nlines", "max", "expected a name"),
        ("x" * 61, "max", "expected a name"),
        (7, "max", "expected a name"),
        ("loss", "low", 'expected "max" if high values are good'),
        ("wait", "min", "another value of that name"),
        ("round", "max", "another value of that name"),
        ("accuracy", "min", "accuracy is a share that should be high"),
    ],
)
def test_metric_that_cannot_be_used_is_refused(name, goal, problem):
    with pytest.raises(ValueError, match=problem):
        Metric(name, goal)


def test_metric_names_of_all_other_values_of_a_round_are_taken(tmp_path):
    """A value of that name would replace another one in the round's log."""
    import json

    import esync

    from ..training.test_run import dense, train

    train(dense(), esync.Run(tmp_path, quiet=True), rounds=1)
    logged = set(json.loads((tmp_path / "cpu/iter-1.txt").read_text()))
    for name in {*logged, "evaluation_time", "step_time_overrun"}:
        with pytest.raises(ValueError, match="another value of that name"):
            Metric(name)
