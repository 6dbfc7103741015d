"""CIFAR-10 with dual-way gradient sparsification, under the names and flags of the published example.

The same script on every machine: rank 0 serves, the others train.

    python examples/cifar10.py --rank 0 --world-size 3 --master 10.1.1.34
    python examples/cifar10.py --rank 1 --world-size 3 --master 10.1.1.34      # and --rank 2 on the third
    python examples/cifar10.py --no-distributed                                # momentum SGD on one device

`python -m esync.data --help` tells how to get the images.
"""

import argparse
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from esync import mx
from esync.data import Batches, as_floats, load, partition
from esync.runtime.files import expanded

if __package__:  # python -m esync.examples.cifar10
    from .dgs_training import Task, parser, run
else:
    from dgs_training import Task, parser, run

MEAN, SPREAD = (np.array(each, np.float32).reshape(3, 1, 1) for each in ((0.491, 0.482, 0.447), (0.247, 0.243, 0.262)))


def prepare(images: np.ndarray) -> mx.nd.NDArray:
    """Images with values from 0 to 1, normalized."""
    return mx.nd.array((images - MEAN) / SPREAD)


def cifar10(args: argparse.Namespace) -> Task:
    """The data set, cut among the workers."""
    data = load("cifar-10", args.data)

    def batches(rank: int, workers: int) -> Iterator[tuple[Any, Any]]:
        share = partition("uniform", data.train_labels, workers, args.seed).shares[rank]
        for images, labels in Batches(data.train_images, data.train_labels, share, args.batch_size, (args.seed, rank)):
            yield prepare(images), mx.nd.array(labels)

    def accuracy(net: Any, size: int = 500) -> float:
        right = 0
        for first in range(0, len(data.test_labels), size):
            part = slice(first, first + size)
            outputs = net(prepare(as_floats(data.test_images[part]))).asnumpy()
            right += int((outputs.argmax(axis=1) == data.test_labels[part]).sum())
        return right / len(data.test_labels)

    return Task(data.classes, len(data.train_labels), (3, 32, 32), batches, accuracy, drops=(0.6, 0.8))


def main() -> int:
    """Serve, or train."""
    flags = parser("CIFAR-10 with dual-way gradient sparsification.", 50, 64, 0.7, 5e-4)
    flags.add_argument("--data", type=expanded, help="folder that holds the folder cifar-10 (default: as the worker's)")
    return run(flags.parse_args(), cifar10)


if __name__ == "__main__":
    sys.exit(main())
