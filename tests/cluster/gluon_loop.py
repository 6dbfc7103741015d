"""A plain Gluon program around esync.Trainer: esync.shard, a DataLoader with processes, and a loop.

Usage: python gluon_loop.py batches|estimator
"""

import sys

import numpy as np

import esync
from esync import mx

gluon = mx.gluon
SAMPLES, BATCH, ROUNDS = 20, 4, 4  # three batches in each of two shards: fewer than rounds


def main(kind: str) -> None:
    """Train a small network for some rounds; print what has been trained on."""
    rng = np.random.default_rng(0)
    images = rng.standard_normal((SAMPLES, 5), np.float32)
    net = gluon.nn.Dense(3, in_units=5)
    net.initialize(mx.init.Xavier())
    limits = esync.Limits(rounds=ROUNDS)
    loss_fn = gluon.loss.SoftmaxCrossEntropyLoss()
    run = esync.Run(facts={"kind": kind})
    with esync.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01}, limits=limits, run=run) as trainer:
        shard = esync.shard(gluon.data.ArrayDataset(images, np.arange(SAMPLES) % 3), trainer)
        loader = gluon.data.DataLoader(shard, BATCH, shuffle=True, num_workers=2)
        print("shard", sorted(shard._indices.tolist()))
        if kind == "estimator":
            estimator = gluon.contrib.estimator.Estimator(net, loss_fn, trainer=trainer, context=mx.cpu())
            estimator.fit(loader, epochs=1000, event_handlers=[esync.EstimatorHandler()])
        else:
            for data, label in trainer.batches(loader):
                with mx.autograd.record():
                    loss = loss_fn(net(data), label)
                loss.backward()
                trainer.step(len(data))
    print("finished", trainer.finished, trainer.round)
    print("weights", net.weight.data().asnumpy().tobytes().hex())


if __name__ == "__main__":
    main(sys.argv[1])
