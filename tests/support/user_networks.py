"""Networks as a user writes them, in a file beside nothing else."""

from mxnet import nd
from mxnet.gluon import Block, nn


def small(classes, shape):
    """A network that has to know what it is given."""
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(4, 3, strides=2, in_channels=shape[0], activation="relu"),
        nn.BatchNorm(),
        nn.Flatten(),
        nn.Dense(classes),
    )
    return net


def dense():
    net = nn.HybridSequential()
    net.add(nn.Dense(10))
    return net


class Plain(Block):
    """Not hybrid, and takes a decision that depends on the values."""

    def __init__(self, classes):
        super().__init__()
        self.dense = nn.Dense(classes)

    def forward(self, x):
        return self.dense(x if x.mean().asscalar() >= 0 else nd.relu(x))
