"""How long does a core take for a gradient of each of the paper's networks?

    OMP_NUM_THREADS=1 python benchmarks/gradient_costs.py [--json FILE] [NETWORK ...]

Forward and backward pass of 64 images of Fashion-MNIST's shape, resized to what the network takes,
in MXNet on one core: the least processor time of several, after two that do not count, so that
other programs hardly matter. The figures are kept with the processor's name; the programs that
reproduce the papers plan with them (`--list`). With names of networks, only these are measured, and
the other figures stay.
"""

import time
from pathlib import Path

import numpy as np
from harness import program
from harness.figures import read_figures, write_figures
from harness.paper_runs import BATCH_SIZE, GRADIENT_COSTS

import esync  # noqa: F401 - before mxnet
from esync.models.networks import build, input_shape
from esync.runtime.mxnet_import import mx

NETWORKS = ("resnet18-v1", "mobilenet-v1", "resnet50-v1", "resnet50-v2", "alexnet", "inception-v3")
NARROW = (*(f"{name}x0.25" for name in NETWORKS), "inception-v3x0.0625", "resnet18-v1x0.25-groupnorm")
WARM_UP = 2  # gradients that do not count
#: Gradients of a network that count: at least so many, and for at least so many seconds.
LEAST, ENOUGH = 3, 5.0


def measure(network: str) -> float:
    """Return the core-seconds of a gradient."""
    net = build(network, 10, mx.cpu(), seed=0)
    images = mx.nd.random.uniform(shape=(BATCH_SIZE, *input_shape(network, (1, 28, 28))))
    labels = mx.nd.array(np.arange(BATCH_SIZE) % 10)
    loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    taken: list[float] = []
    while len(taken) < WARM_UP + LEAST or sum(taken[WARM_UP:]) < ENOUGH:
        begun = time.process_time()
        with mx.autograd.record():
            losses = loss(net(images), labels)
        losses.backward()
        mx.nd.waitall()
        taken.append(time.process_time() - begun)
    return min(taken[WARM_UP:])


def processor() -> str:
    """Return the name of this machine's processor."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def main() -> None:
    """Measure all networks, or those that are named."""
    parser = program.parser(__doc__, GRADIENT_COSTS)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help="networks to measure (default: the paper's)")
    options = parser.parse_args()
    seconds: dict[str, float] = read_figures(options.json).get("seconds", {}) if options.networks else {}
    for network in options.networks or (*NARROW, *NETWORKS):
        seconds[network] = float(f"{measure(network):.2g}")
        print(f"{network}: {seconds[network]:g} s", flush=True)
        figures = {"processor": processor(), "threads": 1, "batch": BATCH_SIZE, "seconds": seconds}
        write_figures(options.json, figures)


if __name__ == "__main__":
    program.run(main)
