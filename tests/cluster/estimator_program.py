"""Gluon's Estimator around esync.Trainer, with esync.shard and a DataLoader with processes."""

import numpy as np

import esync
from esync import mx

gluon = mx.gluon
SAMPLES, BATCH, ROUNDS = 20, 4, 4  # three batches in each of two shards: fewer than rounds


def main() -> None:
    """Train a small network for some rounds; print what has been trained on."""
    rng = np.random.default_rng(0)
    images = rng.standard_normal((SAMPLES, 5), np.float32)
    net = gluon.nn.Dense(3, in_units=5)
    net.initialize(mx.init.Xavier())
    limits = esync.Limits(rounds=ROUNDS)
    with esync.Trainer(
        net.collect_params(), "adam", {"learning_rate": 0.01}, limits=limits, run=esync.Run()
    ) as trainer:
        shard = esync.shard(gluon.data.ArrayDataset(images, np.arange(SAMPLES) % 3), trainer)
        loader = gluon.data.DataLoader(shard, BATCH, shuffle=True, num_workers=2)
        print("shard", sorted(shard._indices.tolist()))
        estimator = gluon.contrib.estimator.Estimator(
            net, gluon.loss.SoftmaxCrossEntropyLoss(), trainer=trainer, context=mx.cpu()
        )
        estimator.fit(loader, epochs=1000, event_handlers=[esync.EstimatorHandler()])
    print("finished", trainer.finished, trainer.round)
    print("weights", net.weight.data().asnumpy().tobytes().hex())


if __name__ == "__main__":
    main()
