"""The global random generators of NumPy, Python and MXNet, seeded by rank.

Programs seed them equally on all workers, and MXNet's has the same default seed in every process.
Crops, noise and dropout masks would then be the same on all workers.
"""

import hashlib
import random
from collections.abc import Sequence

import numpy as np

from ..runtime.mxnet_import import mx
from ..trainer_status import TrainerStatus


def sequence(seed: int, rank: int, round_: int, iteration: int) -> np.random.SeedSequence:
    """Return the source of one iteration's random numbers.

    Make NumPy generators from it: `np.random.default_rng(sequence)`.

    Args:
        seed: of the run.
        rank: of the worker.
        round_: rounds completed by then.
        iteration: local iterations of this round completed by then.
    """
    return np.random.SeedSequence((seed, rank, round_, iteration))


def reseed(trainer: TrainerStatus, seed: int) -> None:
    """Seed NumPy's, Python's and MXNet's generators by this worker's rank, for the next iteration.

    Called once after `trainer.start()`, it gives every worker random numbers of its own: batches
    that the program draws, augmentations, dropout. Called before each forward pass, it also lets a
    run that goes on from a checkpoint draw the same numbers as one that was not interrupted.

    Args:
        trainer: this worker's trainer; the numbers follow from its rank, exchanges and local iteration.
        seed: of the run; the same on all workers.
    """
    iteration = 0 if trainer.exchanged else trainer.local_iterations
    mxnet, numpy, python = map(int, sequence(seed, trainer.rank, trainer.exchanges, iteration).generate_state(3))
    _seed(numpy, python, mxnet)


def draw_seeds() -> list[int]:
    """Draw a number from each generator: NumPy's, Python's and MXNet's."""
    return [int(np.random.randint(2**31 - 1)), random.getrandbits(31), _mxnet_number()]


def seed_generators(seeds: Sequence[int], *position: int) -> None:
    """Seed each generator by a number of `draw_seeds` and by a position, for instance rank and epoch."""
    _seed(*(_mixed(seed, *position) for seed in seeds))


def seed_mxnet(rank: int) -> None:
    """Seed MXNet's generator by this rank and by what it would have drawn next."""
    mx.random.seed(_mixed(_mxnet_number(), rank) & 0x7FFFFFFF)


def generator_digests() -> dict[str, str]:
    """Return digests of the states of NumPy's and Python's generators."""
    states = {"NumPy's": np.random.get_state(), "Python's": random.getstate()}
    with np.printoptions(threshold=10**6):
        return {name: hashlib.sha256(repr(state).encode()).hexdigest()[:16] for name, state in states.items()}


def _seed(numpy: int, python: int, mxnet: int) -> None:
    np.random.seed(numpy)
    random.seed(python)
    mx.random.seed(mxnet & 0x7FFFFFFF)


def _mixed(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])


def _mxnet_number() -> int:
    return int(mx.nd.random.randint(0, 2**31 - 1, shape=(1,)).asnumpy()[0])
