"""What is exchanged: flat vectors, and ResNet-18 by a worker of a real cluster."""

import json
import math
import os
import time
from typing import Any

import numpy as np

PAUSE = 0.2  # seconds after which the last bytes have been acknowledged for sure


class Vector:
    """A flat vector that is sent, or that takes what is received."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def read(self, start: int, stop: int, out: np.ndarray) -> None:
        """See `exchange.Source`."""
        out[:] = self.values[start:stop]

    def write(self, vector: str, start: int, values: np.ndarray) -> None:
        """See `exchange.ModelSink`."""
        self.values[start : start + values.size] = values

    def add(self, step: Any) -> None:
        """See `exchange.ModelSink`; nothing that is measured with this class adds to it."""
        raise NotImplementedError

    put = add


def tensors() -> list[int]:
    """Return the sizes of ResNet-18's trained tensors."""
    import esync  # noqa: F401 - before mxnet
    from esync.models.networks import build
    from esync.runtime.mxnet_import import mx

    parameters = build("resnet18-v1", 10, mx.cpu(), seed=0).collect_params()
    return [parameter.data().size for _, parameter in sorted(parameters.items()) if parameter.grad_req != "null"]


def exchanges(algorithm: Any, warm_up: int, rounds: int) -> None:
    """Exchange random gradients, print the figures as JSON, and end the process.

    The figures are those of the rounds after the warm-up: seconds of the local step and the
    exchange, seconds of the exchange alone, processor seconds of this process, and bytes sent and
    received at its sockets. A line "warm" says that the warm-up is over.
    """
    import esync
    from esync.membership.connections import TrafficMeter
    from esync.models.networks import build
    from esync.runtime.mxnet_import import mx

    net = build("resnet18-v1", 10, mx.cpu(), seed=0)
    trainer = esync.Trainer(net.collect_params(), "sgd", {"learning_rate": 1e-4}, algorithm=algorithm)
    trainer.start()
    trained = [parameter for parameter in trainer._params if parameter.grad_req != "null"]
    # The values of each place change in every round. They are not drawn anew, because that would
    # take the workers different times.
    values = sum(math.prod(parameter.shape) for parameter in trained)
    pool = np.random.default_rng(trainer.rank).standard_normal(values + warm_up + rounds, np.float32)
    meter, measured = TrafficMeter(), []
    for number in range(warm_up + rounds):
        at = number
        for parameter in trained:
            size = math.prod(parameter.shape)
            parameter.grad()[:] = mx.nd.array(pool[at : at + size].reshape(parameter.shape))
            parameter.data()._fresh_grad = True
            at += size
        mx.nd.waitall()
        if number == warm_up:
            print("warm", flush=True)
        trainer.world.recorder.take()
        meter.read_delta()
        begun, processor = time.perf_counter(), time.process_time()
        trainer.step(1)
        seconds, processor = time.perf_counter() - begun, time.process_time() - processor
        phases = trainer.world.recorder.take()["time"].values()
        exchange = sum(phase.get(algorithm.exchange_phase, 0.0) for phase in phases)
        time.sleep(PAUSE)
        sent, received = meter.read_delta()
        figures = {"seconds": seconds, "exchange": exchange, "processor": processor}
        measured.append({**figures, "sent": sent, "received": received})
    trainer.close()
    print(json.dumps(measured[warm_up:]), flush=True)
    os._exit(0)
