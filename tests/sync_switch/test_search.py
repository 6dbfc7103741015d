"""The binary search for the share of BSP, on given accuracies."""

import re

import pytest

from esync.sync_switch.report import as_json, as_text
from esync.sync_switch.search import Measured, TrialOutcome, search

#: The published means of the CIFAR-100 setup: share of BSP → accuracy, seconds.
PUBLISHED = {
    1.0: (0.74624, 11288.2),
    0.5: (0.74252, 8511.7),
    0.25: (0.75054, 7294.2),
    0.125: (0.74600, 6789.7),
    0.0625: (0.73246, 6426.6),
}


def measure(outcomes, runs=1):
    asked = []

    def one(share):
        asked.append(share)
        return Measured(share, tuple(TrialOutcome(*outcomes[share]) for _ in range(runs)))

    return one, asked


def test_search_on_published_measurements_finds_the_published_share():
    one, asked = measure(PUBLISHED, runs=5)
    result = search(one, beta=0.01, settings=4)
    assert asked == [1.0, 0.5, 0.25, 0.125, 0.0625]
    assert result.share == 0.125
    assert result.speedup == pytest.approx(1.66, abs=0.005)
    assert result.cost == pytest.approx(17.86, abs=0.01)  # 12.86 for the shares, 5 for BSP
    assert result.break_even == pytest.approx(17.86 / 0.3985, rel=0.001)
    text = as_text(result, 3600.0)
    assert "Switch after 12.5 % of the samples" in text
    unpadded = re.sub(" +", " ", text)
    assert "| 6.25 % | 5 | 0.7325 ± 0.0000 | 6426.6 | 0.5693 | not good enough |" in unpadded
    assert as_json(result, 3600.0)["tried"][3]["accepted"] is False


def test_search_after_a_rejected_share_tries_larger_ones():
    one, asked = measure({0.5: (0.5, 1.0), 0.75: (0.9, 1.0), 0.625: (0.9, 1.0), 0.5625: (0.5, 1.0)})
    result = search(one, beta=0.01, settings=4, target=0.9)
    assert asked == [0.5, 0.75, 0.625, 0.5625]
    assert result.share == 0.625
    assert result.cost is result.speedup is None
    assert "after 62.5 % of the samples" in as_text(result, 0.0)


def test_search_without_acceptable_share_returns_bsp_only():
    one, _ = measure({0.5: (0.1, 1.0), 0.75: (0.1, 1.0)})
    result = search(one, beta=0.01, settings=2, target=0.9)
    assert result.share == 1.0
    assert "stay with BSP" in as_text(result, 0.0)


def test_search_counts_diverged_runs_with_accuracy_0_and_without_time():
    runs = (TrialOutcome(0.9, 10.0), TrialOutcome(0.0, 1.0, diverged=True))
    measured = Measured(0.5, runs)
    assert (measured.accuracy, measured.seconds, measured.spent, measured.diverged) == (0.45, 10.0, 11.0, 1)
    result = search(lambda share: Measured(share, runs), beta=0.1, settings=1, target=0.9)
    assert result.share == 1.0
    assert "not good enough, 1 diverged" in as_text(result, 0.0)
