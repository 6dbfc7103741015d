"""One worker of a real cluster that exchanges ResNet-18 several times: what each exchange cost it."""

import json
import os
import time
from typing import Any

import numpy as np

PAUSE = 0.2  # seconds after which the last bytes have been acknowledged


def exchanges(algorithm: Any, warm_up: int, rounds: int) -> None:
    """Exchange random gradients, print the figures of the rounds behind the warm-up as JSON, and end the process.

    Of each round: seconds, processor seconds of this process, and bytes sent and received at its sockets.
    """
    import esync
    from esync.engine import mx
    from esync.models import build
    from esync.sockets import TrafficMeter

    net = build("resnet18-v1", 10, mx.cpu(), seed=0)
    trainer = esync.Trainer(net.collect_params(), "sgd", {"learning_rate": 1e-4}, algorithm=algorithm)
    trainer.start()
    rng = np.random.default_rng(trainer.rank)
    meter, found = TrafficMeter(), []
    for _ in range(warm_up + rounds):
        for parameter in trainer._params:
            if parameter.grad_req != "null":
                parameter.grad()[:] = mx.nd.array(rng.standard_normal(parameter.shape, np.float32))
                parameter.data()._fresh_grad = True
        mx.nd.waitall()
        meter.take()
        begun, processor = time.perf_counter(), time.process_time()
        trainer.step(1)
        seconds, processor = time.perf_counter() - begun, time.process_time() - processor
        time.sleep(PAUSE)
        sent, received = meter.take()
        found.append({"seconds": seconds, "processor": processor, "sent": sent, "received": received})
    trainer.close()
    print(json.dumps(found[warm_up:]), flush=True)
    os._exit(0)
