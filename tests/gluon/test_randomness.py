import itertools
from types import SimpleNamespace

import numpy as np

from esync.gluon.randomness import reseed, sequence
from esync.runtime.mxnet_import import mx


def trainer(rank: int = 0, round: int = 0, local_iterations: int = 0, exchanged: bool = False) -> SimpleNamespace:
    return SimpleNamespace(rank=rank, round=round, local_iterations=local_iterations, exchanged=exchanged)


def dropout() -> bytes:
    layer = mx.gluon.nn.Dropout(0.5)
    with mx.autograd.record():
        return layer(mx.nd.ones((50,))).asnumpy().tobytes()


def test_reseed_at_the_same_place_draws_the_same():
    draws = []
    for _ in range(2):
        reseed(trainer(1, 2, 3), seed=4)
        draws.append(dropout())
        dropout()
    assert draws[0] == draws[1]


def test_reseed_at_every_place_draws_differently():
    draws = set()
    places = list(itertools.product(range(2), range(3), range(3), range(2)))
    for rank, round_, iteration, seed in places:
        reseed(trainer(rank, round_, iteration), seed)
        draws.add(dropout())
    assert len(draws) == len(places)


def test_reseed_after_an_exchange_begins_a_round():
    reseed(trainer(round=2, local_iterations=5, exchanged=True), seed=0)
    after = dropout()
    reseed(trainer(round=2, local_iterations=0), seed=0)
    assert dropout() == after


def test_sequence_seeds_numpy_generators_by_place():
    draws = {float(np.random.default_rng(sequence(0, 1, round_, 3)).random()) for round_ in (4, 4, 5)}
    assert len(draws) == 2
