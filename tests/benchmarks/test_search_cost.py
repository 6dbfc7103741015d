"""The odds of the search for a share of BSP, on invented measurements."""

import importlib
import sys
from pathlib import Path

import pytest

from esync.runtime.errors import ExpectedError
from esync.sync_switch.search import TrialOutcome

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
search_cost = importlib.import_module("search_cost")
sys.path.remove(str(BENCHMARKS))


def runs(seconds: float, *accuracies: float) -> list[TrialOutcome]:
    return [TrialOutcome(accuracy, seconds) for accuracy in accuracies]


#: BSP's accuracy is 0.8. Of the two runs with 25 %, one alone is rejected at beta 0.01, their mean
#: is not.
MEASURED = {
    1.0: runs(10, 0.8, 0.8),
    0.5: runs(5, 0.8, 0.8),
    0.25: runs(4, 0.8, 0.786),
    0.125: runs(3, 0.8, 0.8),
    0.0625: runs(2, 0.7, 0.7),
}


def test_search_odds_of_one_run_with_known_accuracy_of_bsp():
    """One run of 25 % in two is rejected, and the search goes on to 37.5 %, which nobody has measured."""
    odds = search_cost.odds(MEASURED, 1, known=True, beta=0.01, settings=4)
    assert odds.settled == {0.125: 0.5, None: 0.5}
    assert odds.cost == pytest.approx((5 + 4 + 3 + 2) / 10)
    assert odds.break_even == pytest.approx(1.4 / (1 - 0.3))
    assert search_cost._row(odds, 0.125)[2:5] == ["50.0%", "0.0%", "50.0%"]


def test_search_odds_of_all_runs_are_certain_and_count_the_runs_of_bsp():
    odds = search_cost.odds(MEASURED, 2, known=False, beta=0.01, settings=4)
    assert odds.settled == {0.125: 1.0}
    assert odds.cost == pytest.approx(2 * (10 + 5 + 4 + 3 + 2) / 10)


def test_search_odds_count_a_lucky_smaller_share():
    lucky = {**MEASURED, 0.25: runs(4, 0.8, 0.8), 0.0625: runs(2, 0.8, 0.7)}
    odds = search_cost.odds(lucky, 1, known=True, beta=0.01, settings=4)
    assert odds.settled == {0.125: 0.5, 0.0625: 0.5}
    assert search_cost._row(odds, 0.125)[2:5] == ["50.0%", "50.0%", "0.0%"]


def test_search_cost_without_measurements_names_the_folder(tmp_path):
    with pytest.raises(ExpectedError, match=r"no runs of CIFAR-100.*with 100 %, 50 %, 25 %, 12.5 %, 6.25 % of BSP"):
        search_cost.published_runs(tmp_path)
