"""One worker of synchronous SGD with a model as large as ResNet-18 (44.7 MB), with Horovod or with this package.

    python sgd_step.py LIBRARY STEPS FILE

LIBRARY: `alone` (Gluon's Trainer on one device), `horovod`, `esync` (under `esync launch`). Rank 0 writes the
seconds of each step to FILE, as JSON. The file imports only what its library needs, because Horovod lives in an
environment of its own. The model is a perceptron, because Horovod 0.28.1 fails on convolutions of MXNet's wheels
for CPUs ("We can't generate TBlob for MKLDNN data"); a batch is one image, so that a step is mostly the exchange.
"""

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

#: Learning rate.
RATE = {"learning_rate": 1e-4}
#: Widths of the layers' outputs.
WIDTHS = (1062,) * 8 + (10,)


def trainer_of(library: str, net: Any, steps: int) -> tuple[Any, int]:
    """Return a trainer of the library for an initialized network, and the rank of this process."""
    parameters = net.collect_params()
    if library == "esync":
        import esync

        trainer = esync.Trainer(parameters, "sgd", RATE, limits=esync.Limits(rounds=steps))
        trainer.start()  # now the rank is known
        return trainer, trainer.rank
    if library == "horovod":
        hvd = importlib.import_module("horovod.mxnet")
        hvd.broadcast_parameters(parameters, root_rank=0)
        return hvd.DistributedTrainer(parameters, "sgd", RATE), hvd.rank()
    return importlib.import_module("mxnet").gluon.Trainer(parameters, "sgd", RATE), 0


def main() -> None:
    """Take the steps, and write their durations."""
    library, steps, file = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    mx = importlib.import_module("esync" if library == "esync" else "mxnet")
    if library == "esync":
        mx = mx.mx
    elif library == "horovod":
        importlib.import_module("horovod.mxnet").init()
    net = mx.gluon.nn.HybridSequential()
    net.add(*(mx.gluon.nn.Dense(width) for width in WIDTHS))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    image, label = mx.nd.ones((1, 3, 32, 32)), mx.nd.zeros((1,))
    loss_fn = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    net(image).wait_to_read()  # lets the shapes become known
    trainer, rank = trainer_of(library, net, steps)
    seconds = []
    for _ in range(steps):
        begin = time.perf_counter()
        with mx.autograd.record():
            loss = loss_fn(net(image), label)
        loss.backward()
        trainer.step(1)
        mx.nd.waitall()
        seconds.append(time.perf_counter() - begin)
    if library == "esync":
        trainer.close()
    if rank == 0:
        file.write_text(json.dumps(seconds))


if __name__ == "__main__":
    main()
