"""Mini-batches from a worker's share of a data set: endless, reproducible and resumable."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np


def as_floats(images: np.ndarray) -> np.ndarray:
    """Convert uint8 images (0 to 255) to float32 (0 to 1), as Gluon's ToTensor does.

    Arrays of float32 are not changed. Grey images of shape (n, height, width) get a channel axis:
    (n, 1, height, width).
    """
    if images.ndim == 3:
        images = images[:, np.newaxis]
    if images.dtype == np.float32:
        return images
    return np.divide(images, np.float32(255), dtype=np.float32)


class Batches(Iterator[tuple[np.ndarray, np.ndarray]]):
    """Endless iterator of batches (images, labels) in float32.

    Their shapes are (batch_size, channels, height, width) and (batch_size,).

    An epoch visits every sample of the share once, in an order drawn from (seed, epoch), or in that of
    the share. A batch
    may span the end of an epoch, so that no sample is left out. A share smaller than a batch is
    used several times in each batch.

    Args:
        images: all images of the data set, as in `Dataset`; only batches of them are copied.
        labels: the labels of all images.
        indices: the indices of the samples in the share.
        batch_size: samples per batch, or a function that returns those of the next one.
        seed: one or several non-negative numbers; with (seed, rank), the orders of the workers are
            independent. None: every epoch has the order of the share.
    """

    def __init__(
        self,
        images: np.ndarray,
        labels: np.ndarray,
        indices: np.ndarray,
        batch_size: int | Callable[[], int],
        seed: int | Sequence[int] | None,
    ):
        if not len(indices):
            raise ValueError("a share without samples gives no batches: use fewer workers or another partition")
        if not callable(batch_size) and batch_size < 1:
            raise ValueError(f"batch size {batch_size}: expected 1 or more")
        self._images, self._labels, self._indices = images, labels, indices
        self._batch_size, self._seed = batch_size, seed
        self._begin(epoch=0)

    def __next__(self) -> tuple[np.ndarray, np.ndarray]:
        size = self._batch_size() if callable(self._batch_size) else self._batch_size
        chosen = self._next_indices(size)
        while len(chosen) < size:
            self._begin(self._epoch + 1)
            chosen = np.concatenate([chosen, self._next_indices(size - len(chosen))])
        return as_floats(self._images.take(chosen, axis=0)), self._labels.take(chosen).astype(np.float32)

    @property
    def samples(self) -> int:
        """Number of samples in the share."""
        return len(self._indices)

    def state(self) -> dict[str, int]:
        """Return the position in the stream: the epoch, and the number of its samples already used."""
        return {"epoch": self._epoch, "position": self._position}

    def restore(self, state: Mapping[str, int]) -> None:
        """Continue at a position from `state`, with the same share, batch size and seed.

        Raises:
            ValueError: this share does not have that position.
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
        self._order = self._indices
        if self._seed is not None:
            # The spawn key makes these random numbers independent of others from the same seed.
            sequence = np.random.SeedSequence(self._seed, spawn_key=(epoch,))
            self._order = np.random.default_rng(sequence).permutation(self._indices)
        self._epoch, self._position = epoch, 0

    def _next_indices(self, count: int) -> np.ndarray:
        chosen = self._order[self._position : self._position + count]
        self._position += len(chosen)
        return chosen
