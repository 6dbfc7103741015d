"""The mean of the workers' updates: against the formulas, written out with NumPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esync.exchange.weighting import WEIGHTINGS, check, divisor, factor, unnormalized
from esync.rules import Step, add_mean_update, delayed_nesterov, outer_nesterov

from .memory_servers import MemoryServers


def floats(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(count).astype(np.float32)


def mean(weighting: str, values: list[np.ndarray], samples: list[int]) -> np.ndarray:
    total = sum(factor(weighting, count) * value for value, count in zip(values, samples, strict=True))
    return total / divisor(weighting, samples)


@pytest.mark.parametrize(
    ("weighting", "expected"),
    [
        ("uniform", (6 + 30) / 2),
        ("samples", (1 * 6 + 3 * 30) / 4),
        ("normalized", (6 / 1 + 30 / 3) / 2 * (1 + 3) / 2),  # mean direction, times the steps done on average
    ],
)
def test_by_hand(weighting, expected):
    assert mean(weighting, [np.float64(6), np.float64(30)], [1, 3]) == expected


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(1, 50))
def test_workers_that_have_done_the_same_all_count_the_same(values, samples):
    alike = [mean(weighting, values, [samples] * len(values)) for weighting in WEIGHTINGS]
    assert alike == pytest.approx([np.mean(values)] * 3)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=5))
def test_normalized_updates_of_one_direction_are_taken_as_far_as_the_workers_went_on_average(samples):
    assert mean("normalized", [2.0 * count for count in samples], samples) == pytest.approx(2.0 * np.mean(samples))


def test_what_is_no_update_is_never_normalized():
    assert [unnormalized(weighting) for weighting in WEIGHTINGS] == ["uniform", "samples", "uniform"]


def test_an_unknown_weighting_is_refused():
    with pytest.raises(ValueError, match=r"weighting is 'fair', but should be one of uniform, samples, normalized"):
        check("fair")


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("servers", [1, 2])
def test_a_server_takes_that_mean_of_updates_and_statistics(weighting, servers):
    samples = [10, 640, 64]
    weights, statistics = floats(1, 7), floats(2, 4)
    cluster = MemoryServers(
        3, weights, statistics, servers=servers, bucket_elements=3, rule=add_mean_update, weighting=weighting
    )
    updates, stats = [floats(10 + rank, 7) for rank in range(3)], [floats(20 + rank, 4) for rank in range(3)]
    for rank in (2, 0, 1):
        cluster.send(rank, 1, updates[rank], stats[rank], learning_rate=0.5, samples=samples[rank])
    expected = weights + np.float32(0.5) * mean(weighting, updates, samples)
    np.testing.assert_allclose(cluster.weights(), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        cluster.statistics(), mean(unnormalized(weighting), stats, samples), rtol=1e-5, atol=1e-6
    )


# --- the outer optimizer --------------------------------------------------------------------------


def test_nesterov_by_hand():
    step = Step(learning_rate=0.5, momentum=0.5)
    weights, velocity = outer_nesterov(np.float32([1.0]), np.float32([4.0]), None, step)
    assert (weights.tolist(), velocity.tolist()) == ([1 + 0.5 * (4 + 0.5 * 4)], [4])
    weights, velocity = outer_nesterov(weights, np.float32([2.0]), velocity, step)
    assert (weights.tolist(), velocity.tolist()) == ([4 + 0.5 * (2 + 0.5 * 4)], [0.5 * 4 + 2])


def test_nesterov_is_the_one_of_gluon():
    """mean(Δ) is a step downhill, so minus a gradient; learning rate inside (Gluon) and outside of v are the same."""
    from esync.runtime.mxnet_import import mx

    optimizer = mx.optimizer.NAG(learning_rate=0.7, momentum=0.9)
    theirs = mx.nd.array(floats(0, 5))
    state, mine, velocity = optimizer.create_state(0, theirs), theirs.asnumpy(), None
    for seed in range(1, 5):
        update = floats(seed, 5)
        optimizer.update(0, theirs, mx.nd.array(-update), state)
        mine, velocity = outer_nesterov(mine, update, velocity, Step(0.7, 0.9))
        np.testing.assert_allclose(mine, theirs.asnumpy(), rtol=1e-5)


def test_without_momentum_it_is_the_plain_mean():
    arrays = floats(1, 6), floats(2, 6)
    weights, velocity = outer_nesterov(*arrays, None, Step(0.3))
    assert velocity is None
    assert weights.tobytes() == add_mean_update(*arrays, None, Step(0.3))[0].tobytes()


def test_momentum_reaches_the_weights_and_never_the_statistics():
    cluster = MemoryServers(2, [0.0], [9.0], rule=outer_nesterov)
    for sequence in (1, 2):
        for rank in range(2):
            stats = np.float32([2 * sequence + rank])
            cluster.send(rank, sequence, np.float32([1.0]), stats, momentum=0.5, learning_rate=1.0)
    assert cluster.weights().tolist() == [1.5 + 1 + 0.5 * 1.5]
    assert cluster.statistics().tolist() == [4.5]


def test_delayed_nesterov_by_hand():
    weights, state = np.float32([0.0]), None
    moved = []
    for turn, update in enumerate([4.0, 8.0, 2.0, 6.0]):
        step = Step(learning_rate=0.5, momentum=0.5, turn=turn, workers=2)
        weights, state = delayed_nesterov(weights, np.float32([update]), state, step)
        moved.append(float(weights[0]))
    first = 0.5 * (4 / 2)
    second = first + 0.5 * (8 / 2 + 0.5 * 6)  # v = (4 + 8)/2
    third = second + 0.5 * (2 / 2)  # no momentum in between
    assert moved == [first, second, third, third + 0.5 * (6 / 2 + 0.5 * (0.5 * 6 + 4))]
