"""Rules that take one block of a long array after the other."""

from typing import Any

import numpy as np
import pytest

from esync import config
from esync.exchange.blockwise import BlockwiseRule
from esync.rules import RESET_MOMENTUM, RULES, Step, make_rule, split_state

SIZE = 23


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "RULE_BLOCK", 7)


def noise(*seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(SIZE).astype(np.float32)


def step(turn: int) -> Step:
    return Step(0.1, 0.9, 0.01, noise(turn, 1), turn, workers=2, scalars={RESET_MOMENTUM: float(turn == 2)})


@pytest.mark.parametrize("name", RULES)
def test_blockwise_rule_gives_the_same_bits_as_the_rule_on_the_whole(name: str) -> None:
    rule = make_rule(name, {})
    expected, state = noise(0), None
    weights, block_state = noise(0), None
    for turn in range(5):
        sums = noise(turn, 2) * 3
        expected, state = rule(expected, sums / np.float32(3), state, step(turn))
        blockwise = BlockwiseRule(rule, block_state)
        blockwise.run(weights, sums, step(turn), divisor=3)
        block_state = blockwise.state
        assert weights.tobytes() == expected.tobytes()
        assert len(split_state(block_state)) == len(split_state(state))
        for actual, other in zip(split_state(block_state), split_state(state), strict=True):
            assert (actual is None) == (other is None)
            assert actual is None or actual.tobytes() == other.tobytes()


def test_blockwise_rule_keeps_state_that_is_an_input_or_no_array() -> None:
    def remembering(weights: np.ndarray, value: np.ndarray, state: Any, step: Step) -> Any:
        """Swap two vectors, remember its own weights, and count."""
        first, second, _, count = state if state is not None else (value, 2 * value, None, 0)
        return weights + value, (second, first, weights, count + 1)

    weights, blockwise = noise(0), BlockwiseRule(remembering)
    expected, state = noise(0), None
    for turn in range(3):
        blockwise.run(weights, noise(turn, 1), Step(1.0))
        expected, state = remembering(expected, noise(turn, 1), state, Step(1.0))
        for actual, other in zip(blockwise.state, state, strict=True):
            assert np.array_equal(actual, other)
        assert np.array_equal(weights, expected)
    assert blockwise.state[3] == 3
