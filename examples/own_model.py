"""Your own network on a cluster of unequal devices: an ordinary Gluon loop with esync.Trainer.

Run it on every device, with the DMLC_* variables and ESYNC_STATE_SERVER set as the README shows, or alone:

    python examples/own_model.py local
"""

import sys

import esync
from esync import mx
from esync.data import Batches, load, partition

autograd, gluon = mx.autograd, mx.gluon
BATCH_SIZE = 64


def build() -> mx.gluon.Block:
    """A small convolutional network."""
    net = gluon.nn.HybridSequential()
    net.add(
        gluon.nn.Conv2D(16, kernel_size=3, padding=1, activation="relu"),
        gluon.nn.MaxPool2D(),
        gluon.nn.Conv2D(32, kernel_size=3, padding=1, activation="relu"),
        gluon.nn.MaxPool2D(),
        gluon.nn.Dense(10),
    )
    net.initialize(mx.init.Xavier())
    net.hybridize()
    return net


def main(algorithm: str) -> None:
    """Train for one pass over the data and print the test accuracy."""
    data = load("fashion-mnist")
    net = build()
    net(mx.nd.zeros((1, 1, 28, 28)))  # lets the shapes become known
    loss_fn = gluon.loss.SoftmaxCrossEntropyLoss()
    limits = esync.Limits(samples=len(data.train_labels))  # of all workers together
    trainer = esync.Trainer(net.collect_params(), "adam", {"learning_rate": 1e-3}, algorithm=algorithm, limits=limits)

    trainer.start()  # finds the other workers; every one begins with the same weights
    share = partition("uniform", data.train_labels, trainer.workers, seed=0).shares[trainer.rank]
    for images, labels in Batches(data.train_images, data.train_labels, share, BATCH_SIZE, seed=(0, trainer.rank)):
        with autograd.record():
            loss = loss_fn(net(mx.nd.array(images)), mx.nd.array(labels))
        loss.backward()
        trainer.step(BATCH_SIZE)  # a local step; an exchange where the algorithm calls for one
        if trainer.finished:
            break
        if trainer.exchanged and trainer.round % 100 == 0:
            print(
                f"round {trainer.round}: {trainer.local_iterations} local iterations, loss {loss.mean().asscalar():.3f}"
            )
    trainer.close()

    with trainer.mean_statistics():  # asynchronous workers keep their own; rank 0 evaluates the mean of all
        scores = net(mx.nd.array(data.test_images[:, None] / 255.0)).asnumpy()
    print(f"worker {trainer.rank}: test accuracy {(scores.argmax(axis=1) == data.test_labels).mean():.3f}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "esync")
