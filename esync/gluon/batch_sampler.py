"""esync.BatchSampler: batches for a DataLoader whose size follows `batch_by_speed`."""

from collections.abc import Iterable, Iterator
from typing import Any

from ..runtime.mxnet_import import mx
from .batch_samples import whole_batch_size


class BatchSampler(mx.gluon.data.Sampler):
    """Groups samples into batches as gluon.data.BatchSampler does, each as large as the trainer says.

    With `batch_by_speed` a worker's batches are in proportion to the speed of its device, and change
    during the run; otherwise all have `batch_size` samples. The last batch of an epoch has those that
    are left. Batches that a DataLoader has loaded in advance (`num_workers`) keep their size.

        sampler = mx.gluon.data.RandomSampler(len(part))
        loader = mx.gluon.data.DataLoader(part, batch_sampler=esync.BatchSampler(sampler, 64, trainer))

    Args:
        sampler: indices of the samples in the order of an epoch.
        batch_size: samples in a batch of each worker if all batches are equal.
        trainer: this worker's `esync.Trainer`.

    Raises:
        BatchSizeError: `batch_size` is no whole number of 1 or more.
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, trainer: Any) -> None:
        self._sampler, self._trainer = sampler, trainer
        self._batch_size = whole_batch_size(batch_size, "esync.BatchSampler")

    def __iter__(self) -> Iterator[list[int]]:
        batch: list[int] = []
        size = self._trainer.batch_size(self._batch_size)
        for index in self._sampler:
            batch.append(index)
            if len(batch) == size:
                yield batch
                batch, size = [], self._trainer.batch_size(self._batch_size)
        if batch:
            yield batch

    def __len__(self) -> int:
        """Return the number of batches of an epoch if their size stays as it is."""
        return -(-len(self._sampler) // self._trainer.batch_size(self._batch_size))  # type: ignore[arg-type]
