"""Train a small network on Fashion-MNIST, alone or as a worker of a cluster.

python train.py                  # alone, on this device
esync launch cluster.yaml        # on every device of the description

To make it yours, replace the data set and `build`; the loop may stay as it is.
"""

import argparse

import esync
from esync import mx
from esync.data import load


def build(context: mx.Context) -> mx.gluon.Block:
    """Return the network, initialized on the device."""
    nn = mx.gluon.nn
    net = nn.HybridSequential()
    net.add(nn.Conv2D(16, kernel_size=3, activation="relu"), nn.MaxPool2D(), nn.Dense(64, activation="relu"))
    net.add(nn.Dense(10))
    net.initialize(mx.init.Xavier(), ctx=context)
    net.hybridize()
    net(mx.nd.zeros((1, 1, 28, 28), ctx=context))  # Gluon learns the shapes of the parameters here
    return net


def main() -> None:
    """Train until all workers together have seen the training set `--epochs` times."""
    parser = argparse.ArgumentParser(description="Train a small network on Fashion-MNIST.")
    parser.add_argument("--epochs", type=float, default=1, help="(default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=64, help="of each worker (default: %(default)s)")
    parser.add_argument("--learning-rate", type=float, default=1e-3, help="of Adam (default: %(default)s)")
    options = parser.parse_args()

    context = esync.context()  # the device that the description gives this worker; alone, a GPU or the CPU
    data = load("fashion-mnist")
    images = data.train_images[:, None].astype("float32") / 255
    test_images = mx.nd.array(data.test_images[:1000, None] / 255, ctx=context)
    dataset = mx.gluon.data.ArrayDataset(images, data.train_labels)
    net = build(context)
    loss_fn = mx.gluon.loss.SoftmaxCrossEntropyLoss()

    def accuracy() -> float:
        """Return the test accuracy of the common model; called in the background."""
        return float((net(test_images).asnumpy().argmax(axis=1) == data.test_labels[:1000]).mean())

    trainer = esync.Trainer(
        net.collect_params(),
        "adam",
        {"learning_rate": options.learning_rate},
        limits=esync.Limits(samples=int(options.epochs * len(dataset))),  # of all workers together
        run=esync.Run(evaluate=accuracy, every=5, net=net),  # logs, evaluations, the final model
    )
    with trainer:
        share = esync.shard(dataset, trainer)  # waits for the other workers; this one's part of the data
        loader = mx.gluon.data.DataLoader(share, options.batch_size, shuffle=True)
        for batch, labels in trainer.batches(loader):  # epoch after epoch, until the limit is reached
            with mx.autograd.record():
                loss = loss_fn(net(batch.as_in_context(context)), labels.as_in_context(context))
            loss.backward()
            trainer.step(len(batch))  # a local step, and an exchange where it is time for one


if __name__ == "__main__":
    main()
