"""Your own network on a cluster of unequal devices: an ordinary Gluon loop with esync.Trainer.

The launcher runs it on every device of a description; the same command without it trains alone:

    esync launch :quick -- python examples/own_model.py
    python examples/own_model.py
"""

import sys

import esync
from esync import mx
from esync.data import load

autograd, gluon = mx.autograd, mx.gluon
BATCH_SIZE = 64


def build(context: mx.Context) -> mx.gluon.Block:
    """A small convolutional network."""
    net = gluon.nn.HybridSequential()
    net.add(
        gluon.nn.Conv2D(16, kernel_size=3, padding=1, activation="relu"),
        gluon.nn.MaxPool2D(),
        gluon.nn.Conv2D(32, kernel_size=3, padding=1, activation="relu"),
        gluon.nn.MaxPool2D(),
        gluon.nn.Dense(10),
    )
    net.initialize(mx.init.Xavier(), ctx=context)
    net.hybridize()
    return net


def pixels(images: mx.nd.NDArray, context: mx.Context) -> mx.nd.NDArray:
    """Images from 0 to 255 as numbers from 0 to 1, on the device."""
    return images.as_in_context(context).astype("float32") / 255


def main(algorithm: str | None = None) -> None:
    """Train for one pass over the data and print the test accuracy."""
    data = load("fashion-mnist")
    context = esync.context()  # of the device that the launcher has chosen for this process
    net = build(context)
    net(mx.nd.zeros((1, 1, 28, 28), ctx=context))  # lets the shapes become known
    loss_fn = gluon.loss.SoftmaxCrossEntropyLoss()
    limits = esync.Limits(samples=len(data.train_labels))  # of all workers together
    trainer = esync.Trainer(net.collect_params(), "adam", {"learning_rate": 1e-3}, algorithm=algorithm, limits=limits)

    trainer.start()  # finds the other workers; every one begins with the same weights
    dataset = gluon.data.ArrayDataset(data.train_images[:, None], data.train_labels)
    loader = gluon.data.DataLoader(esync.shard(dataset, trainer), BATCH_SIZE, shuffle=True)  # this worker's part
    for images, labels in trainer.batches(loader):  # epoch after epoch, until the run is over
        with autograd.record():
            loss = loss_fn(net(pixels(images, context)), labels.as_in_context(context))
        loss.backward()
        trainer.step(len(labels))  # a local step; an exchange where the algorithm calls for one
        if trainer.exchanged and trainer.exchanges % 100 == 0:
            print(
                f"round {trainer.round}: {trainer.local_iterations} local iterations, loss {loss.mean().asscalar():.3f}"
            )
    trainer.close()

    with trainer.mean_statistics():  # asynchronous workers keep their own; rank 0 evaluates the mean of all
        scores = net(pixels(mx.nd.array(data.test_images[:, None], dtype="uint8"), context)).asnumpy()
    print(f"worker {trainer.rank}: test accuracy {(scores.argmax(axis=1) == data.test_labels).mean():.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
