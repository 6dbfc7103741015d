"""Optimizers with a state on servers and in collectives, in memory."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from esync.rules import AdamRule, AdamWRule, CenteredRMSPropRule, Rule, SGDRule, Step

from ..support.memory_servers import MemoryServers, mean_in_rank_order
from .test_collective_exchange import noise, run, train

SIZE, WORKERS, ROUNDS = 23, 3, 5
TERMS = {"learning_rate": 0.05, "momentum": 0.9, "weight_decay": 0.1}
OPTIMIZERS = [SGDRule(clip_gradient=0.5), AdamRule(), AdamWRule(), CenteredRMSPropRule()]


def gradient(rank: int, number: int) -> np.ndarray:
    return noise(rank, number, 2, size=SIZE)


def by_hand(rule: Rule, gradients: list[np.ndarray], start: np.ndarray, **terms: Any) -> np.ndarray:
    """One worker's steps."""
    weights, state = start, None
    for turn, grad in enumerate(gradients):
        weights, state = rule(weights, grad, state, Step(**{**TERMS, **terms}, turn=turn))
    return weights


@pytest.mark.parametrize("rule", OPTIMIZERS, ids=str)
def test_server_optimizer_takes_one_step_per_asynchronous_commit(rule: Rule) -> None:
    cluster = MemoryServers(WORKERS, noise(7), bucket_elements=4, rule=rule, synchronous=False)
    gradients = []
    for number in range(1, ROUNDS + 1):
        for rank in (2, 0, 1):
            cluster.send(rank, number, gradient(rank, number), **TERMS)
            gradients.append(gradient(rank, number))
    assert cluster.weights().tobytes() == by_hand(rule, gradients, noise(7)).tobytes()


@pytest.mark.parametrize("replaced", [True, False])
@pytest.mark.parametrize("rule", OPTIMIZERS, ids=str)
def test_server_optimizer_takes_one_step_per_round_although_a_worker_dies(rule: Rule, replaced: bool) -> None:
    """The optimizer's state belongs to the servers and does not depend on who sent a gradient."""
    cluster = MemoryServers(WORKERS, noise(7), servers=2, bucket_elements=4, rule=rule)
    means = []
    for number in range(1, ROUNDS + 1):
        dead = number > 2
        members = range(WORKERS - 1 if dead and not replaced else WORKERS)
        if number == 3 and replaced:
            cluster.join(2, 5002)
        elif number == 3:
            cluster.drop(2)
        for rank in members:
            nonce = 5002 if dead and rank == 2 else None
            cluster.send(rank, number, gradient(rank, number), nonce=nonce, **TERMS)
        means.append(mean_in_rank_order([gradient(rank, number) for rank in members]))
    assert cluster.weights().tobytes() == by_hand(rule, means, noise(7)).tobytes()


def test_collective_optimizer_takes_the_same_steps_on_every_rank() -> None:
    options = {"beta1": 0.5, "beta2": 0.9}
    outcomes = run(WORKERS, partial(train, rounds=ROUNDS, **TERMS), rule="adam", options=options)
    means = [np.mean([gradient(rank, n) for rank in range(WORKERS)], axis=0) for n in range(1, ROUNDS + 1)]
    expected = by_hand(AdamRule(**options), means, noise(0))
    for model, _, state in outcomes:
        np.testing.assert_allclose(model.weights, expected, rtol=1e-4, atol=1e-5)  # sums in another order
        assert model.weights.tobytes() == outcomes[0][0].weights.tobytes()
        assert all(vector is not None for vector in state)
