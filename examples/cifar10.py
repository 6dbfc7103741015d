"""CIFAR-10 with dual-way gradient sparsification, under the names and flags of the published example.

The same script on every machine: rank 0 serves, the others train.

    python examples/cifar10.py --rank 0 --world-size 3 --master 10.1.1.34
    python examples/cifar10.py --rank 1 --world-size 3 --master 10.1.1.34      # and --rank 2 on the third
    python examples/cifar10.py --no-distributed                                # momentum SGD on one device

--data is the folder of the binary version of CIFAR-10 (data_batch_1.bin … test_batch.bin, from
https://www.cs.toronto.edu/~kriz/cifar.html).
"""

import argparse
import sys
from pathlib import Path

import numpy as np

import esync
from esync.data import Batches, as_floats, partition
from esync.engine import mx
from esync.errors import ExpectedError
from esync.gradient_sgd import MODES, GradientSGD, init_server

RECORD = 1 + 3 * 32 * 32  # bytes: label, then the red, green and blue planes
MEAN, SPREAD = (np.float32(each).reshape(3, 1, 1) for each in ((0.491, 0.482, 0.447), (0.247, 0.243, 0.262)))
MODELS = {"AlexNet": "alexnet", "ResNet18": "resnet18_v1", "ResNet50": "resnet50_v1", "ResNet101": "resnet101_v1"}


def read(folder: Path, pattern: str) -> tuple[np.ndarray, np.ndarray]:
    """Images (samples × 3 × 32 × 32, uint8) and labels of all files of that name."""
    files = sorted(folder.glob(pattern))
    if not files:
        raise ExpectedError(
            f"--data {folder}: there is no {pattern}; it should be the folder of CIFAR-10's binary files"
        )
    for file in files:
        if not file.stat().st_size or file.stat().st_size % RECORD:
            raise ExpectedError(f"{file} has {file.stat().st_size} bytes, but should have a multiple of {RECORD}")
    records = np.concatenate([np.fromfile(file, np.uint8).reshape(-1, RECORD) for file in files])
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]


def prepare(images: np.ndarray) -> mx.nd.NDArray:
    """Images with values from 0 to 1, normalized."""
    return mx.nd.array((images - MEAN) / SPREAD)


def accuracy(net: mx.gluon.Block, images: np.ndarray, labels: np.ndarray, batch_size: int = 500) -> float:
    """Share of the images whose class is found."""
    right = 0
    for first in range(0, len(labels), batch_size):
        part = slice(first, first + batch_size)
        right += int((net(prepare(as_floats(images[part]))).asnumpy().argmax(axis=1) == labels[part]).sum())
    return right / len(labels)


def train(args: argparse.Namespace) -> None:
    """One worker, from its first batch to its last."""
    images, labels = read(args.data, "data_batch_*.bin")
    test_images, test_labels = read(args.data, "test_batch.bin")
    net = mx.gluon.model_zoo.vision.get_model(MODELS.get(args.model, args.model), classes=10)
    mx.random.seed(args.seed)
    net.initialize(mx.init.Xavier())
    net.hybridize()
    net(prepare(as_floats(images[:1])))  # lets the shapes become known
    workers = 1 if args.no_distributed else args.world_size - 1
    steps = max(1, len(labels) // (args.batch_size * workers))  # of one epoch
    limits = esync.Limits(samples=args.epochs * steps * args.batch_size * workers)
    trainer = GradientSGD(
        net.collect_params(), args.lr, net, args.momentum, args.weight_decay, args,
        ratio=args.ratio, secondary_ratio=args.secondary_ratio, limits=limits,
    )  # fmt: skip
    loss_fn = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    trainer.start()
    share = partition("uniform", labels, trainer.workers, args.seed).shares[trainer.rank]
    batches = Batches(images, labels, share, args.batch_size, (args.seed, trainer.rank))
    drops = [max(1, int(share * args.epochs * steps)) for share in (0.6, 0.8)]
    for done, (inputs, targets) in enumerate(batches, 1):
        with mx.autograd.record():
            loss = loss_fn(net(prepare(inputs)), mx.nd.array(targets))
        loss.backward()
        trainer.step(args.batch_size)
        if trainer.finished:
            break
        if done in drops:
            trainer.set_learning_rate(trainer.learning_rate / 10)
    trainer.close()
    print(f"worker {trainer.rank}: test accuracy {accuracy(net, test_images, test_labels):.4f}", flush=True)


def parse() -> argparse.Namespace:
    """The published example's flags."""
    parser = argparse.ArgumentParser(description="CIFAR-10 with dual-way gradient sparsification.")
    add = parser.add_argument
    add("--data", type=Path, default=Path("data/cifar10"), help="folder of the binary files (default: %(default)s)")
    add("--epochs", type=float, default=50, help="(default: %(default)s)")
    add("--batch-size", type=int, default=64, help="of each worker (default: %(default)s)")
    add("--lr", type=float, default=0.1, help="÷ 10 after 60 %% and 80 %% of the run (default: %(default)s)")
    add("--momentum", type=float, default=0.7, help="(default: %(default)s)")
    add("--wd", "--weight-decay", dest="weight_decay", type=float, default=5e-4, help="(default: %(default)s)")
    add(
        "--mode", choices=[*MODES, *MODES.values()], default="gradient_sgd", help="(default: %(default)s, which is dgs)"
    )
    add(
        "--model",
        default="ResNet18",
        help=f"{', '.join(MODELS)}, or a name of Gluon's model zoo (default: %(default)s)",
    )
    add("--ratio", type=float, default=0.01, help="share of the values that is sent (default: %(default)s)")
    add("--secondary-ratio", type=float, default=0.0, help="the same for the server; 0: all (default: %(default)s)")
    add("--no-distributed", action="store_true", help="train alone, with momentum SGD")
    add("--rank", type=int, default=0, help="0 serves, the others train (default: %(default)s)")
    add("--world-size", type=int, default=3, help="the server and all workers (default: %(default)s)")
    add("--master", default="localhost", help="address of rank 0 (default: %(default)s)")
    add("--port", type=int, default=9091, help="of the scheduler (default: %(default)s)")
    add("--seed", type=int, default=0, help="(default: %(default)s)")
    return parser.parse_args()


def main() -> int:
    """Serve, or train."""
    args = parse()
    try:
        if args.rank == 0 and not args.no_distributed:
            init_server(args)
        else:
            train(args)
    except ExpectedError as error:
        print(f"cifar10: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
