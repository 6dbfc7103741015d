"""A new head on a pretrained network: the base knows five classes of Fashion-MNIST, the head learns the others.

Lines that differ from plain Gluon end in "# esync". Alone, and on every device of a description:

    python examples/fine_tuning.py
    esync launch :quick -- python examples/fine_tuning.py
"""

import argparse
import os
from pathlib import Path

import numpy as np

import esync  # esync
from esync import mx  # esync
from esync.data import load

gluon, nn = mx.gluon, mx.gluon.nn
BATCH_SIZE = 32


def build(context: mx.Context) -> tuple[mx.gluon.Block, mx.gluon.Block]:
    """Return a network of a base and a head for five classes, and the base."""
    base, net = nn.HybridSequential(), nn.HybridSequential()
    base.add(nn.Conv2D(16, 3, activation="relu"), nn.MaxPool2D(), nn.Conv2D(32, 3, activation="relu"), nn.MaxPool2D())
    base.add(nn.Dense(64, activation="relu"))
    net.add(base, nn.Dense(5))
    net.initialize(mx.init.Xavier(), ctx=context)
    net(mx.nd.zeros((1, 1, 28, 28), ctx=context))  # lets the shapes become known
    return net, base


def samples_of(classes: range, images: np.ndarray, labels: np.ndarray) -> mx.gluon.data.Dataset:
    """Select the samples of these classes, which are counted from 0."""
    chosen = np.isin(labels, classes)
    return gluon.data.ArrayDataset(images[chosen, None] / np.float32(255), labels[chosen] - classes[0])


def pretrain(file: Path, samples: mx.gluon.data.Dataset, context: mx.Context) -> None:
    """Train the base with a head for the first five classes, and save the base."""
    net, base = build(context)
    loss_fn, trainer = gluon.loss.SoftmaxCrossEntropyLoss(), gluon.Trainer(net.collect_params(), "adam")
    for images, labels in gluon.data.DataLoader(samples, BATCH_SIZE, shuffle=True):
        with mx.autograd.record():
            loss = loss_fn(net(images.as_in_context(context)), labels.as_in_context(context))
        loss.backward()
        trainer.step(len(labels))
    base.save_parameters(f"{file}.{os.getpid()}")
    os.replace(f"{file}.{os.getpid()}", file)  # another process may be reading the file


def main() -> mx.gluon.Block:
    """Train a head on the base, and return the network."""
    parser = argparse.ArgumentParser(description="Train a new head on a pretrained network.")
    parser.add_argument("--epochs", type=int, default=2, help="(default: %(default)s)")
    parser.add_argument("--samples", type=int, help="of the data set to use (default: all)")
    parser.add_argument("--base", type=Path, default="base.params", help="file of the base (default: %(default)s)")
    options = parser.parse_args()
    context = esync.context()  # esync
    data = load("fashion-mnist")
    images, labels = data.train_images[: options.samples], data.train_labels[: options.samples]
    if not options.base.exists():
        pretrain(options.base, samples_of(range(5), images, labels), context)

    net, base = build(context)
    base.load_parameters(str(options.base), ctx=context)
    base.collect_params().setattr("grad_req", "null")  # the base is frozen
    train = samples_of(range(5, 10), images, labels)
    test_images, test_labels = samples_of(range(5, 10), data.test_images[:2000], data.test_labels[:2000])[:]

    def accuracy() -> float:
        scores = net(mx.nd.array(test_images, ctx=context)).asnumpy()
        return float((scores.argmax(axis=1) == test_labels).mean())

    loss_fn, rate = gluon.loss.SoftmaxCrossEntropyLoss(), {"learning_rate": 0.01}
    run = esync.Run(evaluate=accuracy, every=10, net=net)  # esync
    limits = esync.Limits(samples=options.epochs * len(train))  # esync
    with esync.Trainer(net.collect_params(), "adam", rate, run=run, limits=limits) as trainer:  # esync
        part = esync.shard(train, trainer)  # esync
        for batch, targets in trainer.batches(gluon.data.DataLoader(part, BATCH_SIZE, shuffle=True)):  # esync
            with mx.autograd.record():
                loss = loss_fn(net(batch.as_in_context(context)), targets.as_in_context(context))
            loss.backward()
            trainer.step(len(targets))
    return net


if __name__ == "__main__":
    main()
