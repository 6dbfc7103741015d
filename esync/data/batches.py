"""Stream of mini-batches from a worker's share of a data set: endless, reproducible and resumable."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np


def as_floats(images: np.ndarray) -> np.ndarray:
    """Convert uint8 images with values 0 to 255 into float32 from 0 to 1, as Gluon's ToTensor does.

    Grey images of shape (n, height, width) get a channel axis: (n, 1, height, width).
    """
    if images.ndim == 3:
        images = images[:, np.newaxis]
    return np.divide(images, np.float32(255), dtype=np.float32)


class Batches(Iterator[tuple[np.ndarray, np.ndarray]]):
    """Endless iterator of (images, labels): float32 of shape (batch_size, 1, height, width) and (batch_size,).

    An epoch visits every sample of the share once, in an order drawn from (seed, epoch). A batch
    may span the end of an epoch, so no sample is ever left out; a share smaller than one batch is
    gone through several times per batch.

    Args:
        images: uint8, all images of the data set; they stay where they are, only batches are
            copied.
        labels: the labels of all images.
        indices: which of them are in the share.
        batch_size: samples of one batch.
        seed: one number or several, not negative. Give (seed, rank) so that the workers' orders are
            unrelated.
    """

    def __init__(
        self, images: np.ndarray, labels: np.ndarray, indices: np.ndarray, batch_size: int, seed: int | Sequence[int]
    ):
        if not len(indices):
            raise ValueError("a share without samples gives no batches: use fewer workers or another partition")
        if batch_size < 1:
            raise ValueError(f"batch size {batch_size}: expected 1 or more")
        self._images, self._labels, self._indices = images, labels, indices
        self._batch_size, self._seed = batch_size, seed
        self._begin(epoch=0)

    def __next__(self) -> tuple[np.ndarray, np.ndarray]:
        chosen = self._take(self._batch_size)
        while len(chosen) < self._batch_size:
            self._begin(self._epoch + 1)
            chosen = np.concatenate([chosen, self._take(self._batch_size - len(chosen))])
        return as_floats(self._images.take(chosen, axis=0)), self._labels.take(chosen).astype(np.float32)

    @property
    def samples(self) -> int:
        """Samples of the share."""
        return len(self._indices)

    def state(self) -> dict[str, int]:
        """Return the position in the stream as plain numbers: the epoch, and how many of its samples were given out."""
        return {"epoch": self._epoch, "position": self._position}

    def restore(self, state: Mapping[str, int]) -> None:
        """Go on from a position that `state()` gave, with the same share, batch size and seed.

        Raises:
            ValueError: there is no such position in this share.
        """
        epoch, position = state["epoch"], state["position"]
        if epoch < 0 or not 0 <= position <= len(self._indices):
            raise ValueError(
                f"no position {position} of epoch {epoch} in a share of {len(self._indices)} samples: "
                "the saved state belongs to another partition"
            )
        self._begin(epoch)
        self._position = position

    def _begin(self, epoch: int) -> None:
        # The spawn key keeps these random numbers apart from others that are drawn from the same
        # seed.
        sequence = np.random.SeedSequence(self._seed, spawn_key=(epoch,))
        self._order = np.random.default_rng(sequence).permutation(self._indices)
        self._epoch, self._position = epoch, 0

    def _take(self, count: int) -> np.ndarray:
        chosen = self._order[self._position : self._position + count]
        self._position += len(chosen)
        return chosen
