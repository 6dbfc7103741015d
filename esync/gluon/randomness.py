"""Random seeds that depend on where a run stands, so that a resumed run draws the same numbers."""

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
    """Seed MXNet (dropout, augmentations) for the next iteration.

    Call it before the forward pass. Without it, a run that goes on from a checkpoint draws other
    random numbers than one that was not interrupted.
    """
    iteration = 0 if trainer.exchanged else trainer.local_iterations
    state = sequence(seed, trainer.rank, trainer.round, iteration).generate_state(1)
    mx.random.seed(int(state[0]) & 0x7FFFFFFF)
