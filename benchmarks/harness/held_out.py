"""Training images that are kept back for tests while learning rates are tuned."""

from io import BytesIO
from pathlib import Path

import numpy as np

from esync.data.datasets import load
from esync.runtime.files import write_atomically

#: Seed with which rates are tuned; results are those of the seeds after it.
TUNING_SEED = 0
#: Share of the training images: 5,000 of 60,000.
HELD_OUT_SHARE = 1 / 12


def held_out_file(folder: Path) -> Path:
    """Return the file of the data set whose test images are training images kept back."""
    return folder / "held-out.npz"


def write_held_out(folder: Path) -> None:
    """Write that data set of Fashion-MNIST's training images, unless it is there.

    The others keep their order, so that contiguous shares are what they were.
    """
    file = held_out_file(folder)
    if file.exists():
        return
    data = load("fashion-mnist")
    number = round(HELD_OUT_SHARE * len(data.train_labels))
    kept_back = np.zeros(len(data.train_labels), bool)
    kept_back[np.random.default_rng(TUNING_SEED).permutation(len(kept_back))[:number]] = True
    images, labels = data.train_images, data.train_labels
    content = BytesIO()  # savez does not tell that a disk is full
    np.savez(
        content,
        x_train=images[~kept_back],
        y_train=labels[~kept_back],
        x_test=images[kept_back],
        y_test=labels[kept_back],
    )
    write_atomically(file, content.getvalue())
