"""How many local iterations fit an exchange: `coordination.exchange_interval`."""

import math

import pytest

from esync.coordination.exchange_interval import iterations_per_exchange


@pytest.mark.parametrize("exchange", [0.3, 1.0, 7.77])
@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
def test_iterations_per_exchange_waiting_are_the_fewest_that_keep_the_share(exchange: float, share: float) -> None:
    iterations = iterations_per_exchange(exchange, 0.013, overlap=False, share=share, most=100_000)

    assert exchange / (iterations * 0.013 + exchange) <= share
    assert exchange / ((iterations - 1) * 0.013 + exchange) > share


@pytest.mark.parametrize("exchange", [0.3, 1.0, 7.77])
def test_iterations_per_exchange_with_overlap_are_the_fewest_that_hide_it(exchange: float) -> None:
    iterations = iterations_per_exchange(exchange, 0.013, overlap=True)

    assert iterations * 0.013 >= exchange > (iterations - 1) * 0.013


@pytest.mark.parametrize("overlap", [False, True])
def test_iterations_per_exchange_free_exchange_is_one(overlap: bool) -> None:
    assert iterations_per_exchange(0.0, 0.1, overlap) == 1


def test_iterations_per_exchange_exact_multiple_is_not_rounded_up() -> None:
    assert iterations_per_exchange(0.1 * 3, 0.1, overlap=True) == 3  # 0.1 · 3 ÷ 0.1 is a little more than 3
    assert iterations_per_exchange(0.3, 0.1, overlap=False, share=0.2) == 12


def test_iterations_per_exchange_endless_exchange_is_the_most() -> None:
    assert iterations_per_exchange(math.inf, 0.1, most=50) == 50


@pytest.mark.parametrize(
    ("exchange", "iteration", "share"), [(-1.0, 1.0, 0.2), (1.0, 0.0, 0.2), (1.0, 1.0, 0.0), (math.nan, 1.0, 0.2)]
)
def test_iterations_per_exchange_senseless_times_are_refused(exchange: float, iteration: float, share: float) -> None:
    with pytest.raises(ValueError, match="should be"):
        iterations_per_exchange(exchange, iteration, share=share)
