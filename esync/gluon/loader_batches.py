"""The batches of a loader, epoch after epoch, until the run is over: `Trainer.batches`."""

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from ..runtime.errors import ExpectedError
from ..runtime.phase_timer import GET_BATCH
from .randomness import draw_seeds, seed_generators

log = logging.getLogger(__name__)

Batch = TypeVar("Batch")

#: What `next` returns at the end of an epoch.
_END: Any = object()


class NoBatchesError(ExpectedError, ValueError):
    """Raised when a loader has no batches, so that a loop over it would never take a step."""


class LoaderBatches(Iterator[Batch]):
    """Iterator over the batches of a loader that starts it anew until the run is over.

    See `Trainer.batches`, which makes one.

    Args:
        trainer: the `esync.Trainer` whose run it is.
        loader: can be gone through again and again; its `set_epoch` and `reset` are called before
            each epoch where it has them.
        begin_epoch: called with the number of each epoch, from 0, before the loader is started.
    """

    def __init__(self, trainer: Any, loader: Iterable[Batch], begin_epoch: Callable[[int], None] | None = None) -> None:
        if not (hasattr(loader, "__iter__") or hasattr(loader, "__getitem__")):
            raise TypeError(
                f"trainer.batches: a {type(loader).__name__} cannot be gone through in a for statement: give it a "
                "list, a gluon.data.DataLoader, a DataIter, or an object with __iter__"
            )
        self._trainer, self._loader, self._begin = trainer, loader, begin_epoch
        self._iterator: Iterator[Batch] | None = None
        self._epoch = 0
        self._seeds: list[int] = []  # of the random generators, drawn once in a cluster
        self._used = 0  # batches of this epoch that have been handed out
        self._skip = 0  # batches of this epoch that were used before the checkpoint
        self._leftover = 0  # samples that the last epoch has left to the next one if it had no batch
        self._batch: Batch
        self._at = 0  # the trainer's steps when the last batch was handed out

    def __next__(self) -> Batch:
        trainer = self._trainer
        if trainer.finished:
            raise StopIteration
        if not self._unused:
            self._skip_used()
            with trainer.world.recorder.phase(GET_BATCH):
                self._batch = self._load()
            self._used += 1
        self._at = trainer.steps
        return self._batch

    def state(self) -> dict[str, Any]:
        """Return the position: the epoch, how many of its batches have been used, and the seeds."""
        return {"epoch": self._epoch, "batch": self._used - self._unused, "seeds": self._seeds}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on after that many batches of that epoch.

        The batches before are loaded once more at the next call, and thrown away.
        """
        self._epoch, self._skip, self._seeds = int(state["epoch"]), int(state["batch"]), list(state["seeds"])
        self._iterator = None

    @property
    def _unused(self) -> bool:
        """Whether a step has been taken with the last batch, but its gradients were not used."""
        return self._trainer.abandoned and self._trainer.steps > self._at

    def _load(self) -> Batch:
        while True:
            batch = next(self._iterator or self._start_loader(), _END)
            if batch is not _END:
                return batch
            if self._used:
                self._leftover = 0
            elif not self._rolls_over():
                self._refuse()
            self._epoch, self._iterator = self._epoch + 1, None

    def _start_loader(self) -> Iterator[Batch]:
        """Start the loader for the current epoch."""
        if self._begin is not None:
            self._begin(self._epoch)
        if self._trainer.workers > 1:
            self._seeds = self._seeds or draw_seeds()
            seed_generators(self._seeds, self._trainer.rank, self._epoch)
        if callable(set_epoch := getattr(self._loader, "set_epoch", None)):
            set_epoch(self._epoch)
        if callable(reset := getattr(self._loader, "reset", None)):
            reset()
        self._iterator, self._used = iter(self._loader), 0
        return self._iterator

    def _skip_used(self) -> None:
        """Go to the position of the checkpoint that the run goes on from."""
        if not self._skip:
            return
        trainer, skip, self._skip = self._trainer, self._skip, 0
        with trainer.paused():
            batches = self._start_loader()
            while self._used < skip and next(batches, _END) is not _END:
                self._used += 1
        if self._used < skip:
            log.warning(
                "epoch %d had %d batches or more at the checkpoint, and has %d now: going on with the next epoch",
                self._epoch,
                skip,
                self._used,
            )

    def _rolls_over(self) -> bool:
        """Return whether this epoch has left its samples to the next one, which so comes closer to a whole batch.

        A DataLoader with last_batch='rollover' has epochs without a batch where there are fewer samples.
        """
        sampler = getattr(self._loader, "_batch_sampler", None)
        before, self._leftover = self._leftover, len(getattr(sampler, "_prev", ()))
        return self._leftover > before

    def _refuse(self) -> None:
        """Raise an error that says why the loader has no batch.

        Raises:
            NoBatchesError: always.
        """
        name = type(self._loader).__name__
        if self._iterator is self._loader and not hasattr(self._loader, "reset"):
            raise NoBatchesError(
                f"trainer.batches: the {name} has no batch in epoch {self._epoch}: it can be gone through only once. "
                "Give it a loader that can be started anew: a list, a gluon.data.DataLoader, a DataIter"
            )
        raise NoBatchesError(
            f"trainer.batches: the {name} has no batch in epoch {self._epoch}: it has no samples, or fewer than the "
            "batch size and last_batch='discard' (last_batch='keep' makes a smaller batch of them)"
        )
