"""What does padding beforehand save? `python benchmarks/depthwise.py [--network mobilenet-v2] [--json FILE]`.

A gradient of 64 images on a CPU, hybridized, with gluoncv's network as it is and with what
`esync.models.depthwise` makes of it. They take turns in one process; processor time, so that others on the machine
disturb less.
"""

import statistics
import time
from typing import Any

import numpy as np
from harness import program
from harness.figures import write_figures

from esync.models.depthwise import pad_beforehand
from esync.models.networks import MODELS
from esync.runtime.mxnet_import import mx

WARM_UP = 3


def main() -> int:
    """Measure, print the ratio."""
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
    times: dict[str, list[float]] = {"plain": [], "padded": []}
    for turn in range(WARM_UP + given.gradients):
        for name, net in (("plain", plain), ("padded", padded)):
            begun = time.process_time()
            _gradient(net, images, labels)
            if turn >= WARM_UP:
                times[name].append(time.process_time() - begun)
    medians = {name: statistics.median(each) for name, each in times.items()}
    ratio = medians["padded"] / medians["plain"]
    print(f"{given.network}: {changed} convolutions pad beforehand, a gradient takes {ratio:.2f} of what it did")
    write_figures(given.json, {"network": given.network, "changed": changed, "seconds": medians, "ratio": ratio})
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
