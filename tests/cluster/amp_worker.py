"""A worker that trains with MXNet's automatic mixed precision.

In rank 0's second iteration the gradients overflow.

Usage: python amp_worker.py ALGORITHM RESULT ROUNDS.
"""

import json
import sys


def main(algorithm: str, result: str, rounds: int) -> None:
    """Do it: gradients of (1, 2) on rank 0 and (3, 4) on rank 1."""
    import esync
    from esync.exchange.protocol.round_state import Limits
    from esync.runtime.mxnet_import import mx

    from mxnet.contrib import amp  # isort: skip - after esync, which makes MXNet importable

    amp.init("bfloat16")
    net = mx.gluon.nn.Dense(1, in_units=2, use_bias=False)
    net.initialize(mx.init.One())
    trainer = esync.Trainer(
        net.collect_params(),
        "sgd",
        {"learning_rate": 0.125},
        algorithm=algorithm,
        limits=Limits(rounds=rounds),
    )
    amp.init_trainer(trainer)
    trainer.start()
    steps, skipped = 0, []
    while not trainer.finished:
        data = mx.nd.array([[1.0, 2.0] if trainer.rank == 0 else [3.0, 4.0]])
        if trainer.rank == 0 and steps == 1:
            data = data * 1e35  # fits, but not times the loss scale
        with mx.autograd.record():
            loss = net(data).sum()
            with amp.scale_loss(loss, trainer) as scaled:
                scaled.backward()
        trainer.step(1)
        if trainer.abandoned:
            skipped.append(steps)
        steps += 1
    found = {"weights": net.weight.data().asnumpy().tolist()[0], "steps": steps, "skipped": skipped}
    with open(result, "w", encoding="utf-8") as file:
        json.dump({**found, "scale": trainer._amp_loss_scaler.loss_scale}, file)
    trainer.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
