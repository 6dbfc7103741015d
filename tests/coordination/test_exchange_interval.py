"""How many local iterations fit an exchange: `coordination.exchange_interval`."""

import math

import pytest

from esync import config
from esync.coordination.exchange_interval import iterations_per_exchange


@pytest.mark.parametrize("exchange", [0.3, 1.0, 4.44])
@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
def test_iterations_per_exchange_are_the_fewest_that_keep_the_share(exchange: float, share: float) -> None:
    iterations = iterations_per_exchange(exchange, 0.113, share)

    assert exchange / (iterations * 0.113 + exchange) <= share
    assert exchange / ((iterations - 1) * 0.113 + exchange) > share


def test_iterations_per_exchange_with_overlap_are_the_fewest_that_hide_it() -> None:
    iterations = iterations_per_exchange(1.0, 0.013, config.AUTO_EXCHANGE_SHARE_OVERLAPPED)

    assert iterations * 0.013 >= 1.0 > (iterations - 1) * 0.013


def test_iterations_per_exchange_exact_multiple_is_not_rounded_up() -> None:
    assert iterations_per_exchange(0.1 * 3, 0.1, 0.5) == 3  # 0.1 · 3 ÷ 0.1 is a little more than 3
    assert iterations_per_exchange(0.3, 0.1, 0.2) == 12


def test_iterations_per_exchange_are_one_at_least_and_have_a_limit() -> None:
    assert iterations_per_exchange(0.0, 0.1, 0.2) == 1
    assert iterations_per_exchange(math.inf, 0.1, 0.2) == config.AUTO_MAX_ITERATIONS
