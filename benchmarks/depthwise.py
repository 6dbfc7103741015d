"""What does padding beforehand save?

    python benchmarks/depthwise.py [--network mobilenet-v2] [--json FILE]

A gradient of 64 images on a CPU, hybridized, with gluoncv's network as it is and with what
`esync.models.depthwise` makes of it. They take turns in one process; processor time, so that others
on the machine disturb less.
"""

import time
from functools import partial
from typing import Any

import numpy as np
from harness import program
from harness.figures import write_figures
from harness.timing import in_turns, medians, seconds_of

from esync.models.depthwise import pad_beforehand
from esync.models.networks import MODELS
from esync.runtime.mxnet_import import mx

WARM_UP = 3


def main() -> int:
    """Measure both, and print the ratio; return the exit code."""
    parser = program.parser(__doc__)
    parser.add_argument("--network", choices=MODELS, default="mobilenet-v1")
    parser.add_argument("--gradients", type=int, default=15, help="of each (default: %(default)s)")
    given = parser.parse_args()
    size = MODELS[given.network].size
    random = np.random.default_rng(0)
    images = mx.nd.array(random.random((64, 1, size, size)))
    labels = mx.nd.array(random.integers(0, 10, 64))
    plain, padded = _network(given.network, images), _network(given.network, images)
    changed = pad_beforehand(padded, images.shape)
    padded.hybridize(static_alloc=True, static_shape=True)
    ways = {
        name: partial(seconds_of, partial(_gradient, net, images, labels), time.process_time)
        for name, net in (("plain", plain), ("padded", padded))
    }
    seconds = medians(in_turns(ways, given.gradients, WARM_UP))
    ratio = seconds["padded"] / seconds["plain"]
    print(f"{given.network}: {changed} convolutions pad beforehand, a gradient takes {ratio:.2f} of what it did")
    write_figures(given.json, {"network": given.network, "changed": changed, "seconds": seconds, "ratio": ratio})
    return 0


def _network(name: str, images: Any) -> Any:
    net = MODELS[name].build(10)
    net.initialize(mx.init.Xavier())
    net.hybridize(static_alloc=True, static_shape=True)
    net(images)
    return net


def _gradient(net: Any, images: Any, labels: Any) -> None:
    with mx.autograd.record():
        loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()(net(images), labels)
    loss.backward()
    mx.nd.waitall()


if __name__ == "__main__":
    program.run(main)
