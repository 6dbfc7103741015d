"""esync.shard: this worker's part of a Gluon data set."""

import multiprocessing
import os
import zlib
from collections.abc import Sequence
from numbers import Integral
from typing import Any, Literal, overload

import numpy as np

from ..data.partitions import in_order, uniform
from ..runtime.mxnet_import import mx
from .randomness import draw_seeds, seed_generators


class Shard(mx.gluon.data.Dataset):
    """Some samples of a data set, as a Gluon data set: `transform`, `filter` and the rest work.

    The processes of a DataLoader begin with copies of this process's random generators. Each of
    them is seeded by rank and by its own name when it reads its first sample.

    Args:
        dataset: has `len()` and `[]`. Its samples are not copied.
        indices: of the samples.
        rank: of the worker; None: it trains alone, and no generator is touched.
    """

    def __init__(self, dataset: Any, indices: np.ndarray, rank: int | None = None) -> None:
        self._dataset, self._indices, self._rank = dataset, indices, rank
        self._process = os.getpid()

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: int) -> Any:
        if self._process != os.getpid() and self._rank is not None:
            self._process = os.getpid()
            name = multiprocessing.current_process().name
            seed_generators(draw_seeds(), self._rank, zlib.crc32(name.encode()))
        try:
            number = int(self._indices[index])
        except IndexError:
            if not isinstance(index, Integral):
                raise
            raise IndexError(
                f"sample {index} of esync.shard: this worker's part has {len(self)} samples; make samplers for the "
                "part, not for the whole data set"
            ) from None
        try:
            return self._dataset[number]
        except KeyError as error:
            if error.args != (number,):  # of the data set's own
                raise
            raise TypeError(
                f"esync.shard takes a data set whose samples have the numbers 0 to {len(self._dataset) - 1}, but "
                f"{type(self._dataset).__name__} has no {number}: give it a gluon.data.ArrayDataset of arrays"
            ) from error


@overload
def shard(dataset: Any, trainer: Any, seed: int = 0, *, contiguous: Literal[False] = False) -> Shard: ...
@overload
def shard(dataset: Any, trainer: Any, seed: int = 0, *, contiguous: bool) -> Any: ...
def shard(dataset: Any, trainer: Any, seed: int = 0, *, contiguous: bool = False) -> Any:
    """Return this worker's part of a data set.

    The samples are shuffled once and dealt to the ranks: every sample belongs to exactly one
    worker, and the sizes of the parts differ by at most one. A replacement gets the part of the
    worker whose place it takes, and a resumed run deals in the same way. The parts stay the same
    when workers leave or come back (`--elastic`): nobody trains on the samples of a worker that is
    gone until its place is taken again.

    With `contiguous=True` nothing is shuffled: the parts follow one another in the order of the
    ranks, for truncated backpropagation through time, where a batch continues the one before. With
    n samples and w workers, the first n % w ranks have one sample more than the others. Nothing is
    left out, but a program that cuts its part into rows of equal length leaves out what remains.

    Where the trainer has not been started, it is started here, because only then this worker's rank
    is known; so the shapes of the network's parameters must be known by then.

    Args:
        dataset: a Gluon data set, or anything else with `len()` and `[]`, such as a NumPy array or
            a list of samples. Transforms may be applied before or after.
        trainer: this worker's `esync.Trainer`.
        seed: of the shuffling; the same on all workers, or the parts overlap.
        contiguous: whether each part is one piece of the data set.

    Returns:
        A Gluon data set, for `gluon.data.DataLoader(…, shuffle=True)` for instance. With
        `contiguous=True`, an array or a sequence (a list, a string) gives a slice of itself, which
        is an array along whose first axis the samples are, or a sequence of the same type.

    Raises:
        TypeError: `dataset` has no length or no samples by number, or is a tuple of arrays.
        ValueError: there are fewer samples than workers, or `seed` is given with `contiguous=True`.
    """
    if isinstance(dataset, tuple):
        raise TypeError(
            "esync.shard takes a data set, not a tuple: for images and labels that belong together, "
            "give it gluon.data.ArrayDataset(images, labels)"
        )
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise TypeError(
            f"esync.shard takes a data set with len() and [], but {type(dataset).__name__} has not both: shard "
            "the data set, and make the loader from the result"
        )
    if contiguous and seed:
        raise ValueError(f"seed={seed}: with contiguous=True esync.shard does not shuffle; leave the seed out")
    trainer.start()
    samples, workers = len(dataset), trainer.workers
    indices = (in_order(samples, workers) if contiguous else uniform(samples, workers, seed)).shares[trainer.rank]
    if contiguous and isinstance(dataset, (Sequence, np.ndarray, mx.nd.NDArray)):
        return dataset[indices[0] : indices[-1] + 1]
    return Shard(dataset, indices, trainer.rank if trainer.workers > 1 else None)
