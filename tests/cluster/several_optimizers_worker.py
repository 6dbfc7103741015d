"""A worker with an optimizer for each of two networks.

Usage: python -m tests.cluster.several_optimizers_worker JSON with the fields of `Plan`.
"""

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.cluster.worker_plan import WorkerPlan, run

BATCH, WIDTH, NOISE = 8, 6, 4
#: What the optimizers of the two networks are made of.
OPTIMIZERS: list[tuple[str, dict[str, float]]] = [
    ("adam", {"learning_rate": 0.01}),
    ("sgd", {"learning_rate": 0.05, "momentum": 0.9, "wd": 0.001}),
]


@dataclass
class Plan(WorkerPlan):
    """What a worker does.

    Attributes:
        program: "gan": the networks step in turn; "metric": both after one backward pass;
            "single": one optimizer has the parameters of both.
        algorithm: a mode, with `options`.
        weights: file for the final weights.
        rounds: of the whole run.
        directory: of the checkpoints, one every four rounds; "": there are none.
        killed: the round in which the process ends itself as kill -9 does, between the steps of the
            two optimizers; 0: never.
        swapped: whether this worker steps its optimizers in the other order.
    """

    program: str
    algorithm: str
    weights: str
    rounds: int = 12
    directory: str = ""
    resume: bool = False
    killed: int = 0
    swapped: bool = False
    options: dict[str, Any] = field(default_factory=dict)


def networks() -> tuple[Any, Any]:
    """Two small networks with the same weights in every process."""
    from esync.runtime.mxnet_import import mx

    nn = mx.gluon.nn
    first, second = nn.Sequential(prefix="first_"), nn.Sequential(prefix="second_")
    with first.name_scope():
        first.add(nn.Dense(16, activation="relu", in_units=NOISE), nn.Dense(WIDTH, in_units=16))
    with second.name_scope():
        second.add(nn.Dense(16, activation="relu", in_units=WIDTH), nn.Dense(1, in_units=16))
    mx.random.seed(3)
    for net in (first, second):
        net.initialize(mx.init.Xavier())
    first[0].bias.lr_mult = 2.0
    second[1].weight.lr_mult, second[1].weight.wd_mult = 0.5, 3.0
    return first, second


def parameters_of(program: str, nets: tuple[Any, Any]) -> list[list[Any]]:
    """The parameters of each optimizer."""
    first, second = ([*net.collect_params().values()] for net in nets)
    return [first + second] if program == "single" else [first, second]


def batches(rank: int, workers: int, first: int, rounds: int) -> Iterator[tuple[Any, Any]]:
    """Yield this worker's part of the batches after round `first`: real samples, and noise."""
    from esync.runtime.mxnet_import import mx

    for number in range(first, rounds):
        random = np.random.RandomState(number)
        values = [random.randn(workers * BATCH, size).astype(np.float32) for size in (WIDTH, NOISE)]
        part = slice(rank * BATCH, (rank + 1) * BATCH)
        yield mx.nd.array(values[0][part] + 2), mx.nd.array(values[1][part])


def gan(nets: tuple[Any, Any], trainers: Any, batch: tuple[Any, Any], between: Any = None) -> None:
    """Train the discriminator, then the generator."""
    from esync.runtime.mxnet_import import mx

    (generator, discriminator), (real, noise), loss = nets, batch, mx.gluon.loss.SigmoidBCELoss()
    ones, zeros = mx.nd.ones(len(real)), mx.nd.zeros(len(real))
    with mx.autograd.record():
        value = loss(discriminator(real), ones) + loss(discriminator(generator(noise).detach()), zeros)
    value.backward()
    trainers[1].step(len(real))
    if between is not None:
        between()
    with mx.autograd.record():
        value = loss(discriminator(generator(noise)), ones)
    value.backward()
    trainers[0].step(len(real))


def metric(nets: tuple[Any, Any], trainers: Any, batch: tuple[Any, Any], between: Any = None) -> None:
    """Train both networks with one backward pass."""
    from esync.runtime.mxnet_import import mx

    (embedding, head), (target, data) = nets, batch
    with mx.autograd.record():
        value = mx.gluon.loss.L2Loss()(head(embedding(data)), target.mean(axis=1, keepdims=True))
    value.backward()
    if trainers[1] is not None:
        trainers[1].step(len(data))
    if between is not None:
        between()
    trainers[0].step(len(data))


def single(nets: tuple[Any, Any], trainers: Any, batch: tuple[Any, Any], between: Any = None) -> None:
    """Train both networks with one optimizer, which has momentum and weight decay."""
    metric(nets, (trainers[0], None), batch)


def clipped(nets: tuple[Any, Any], trainers: Any, batch: tuple[Any, Any], between: Any = None) -> None:
    """Clip the discriminator's weights after its step, as a Wasserstein GAN does."""

    def clip() -> None:
        for parameter in nets[1].collect_params().values():
            parameter.set_data(parameter.data().clip(-0.3, 0.3))

    gan(nets, trainers, batch, clip)


PROGRAMS = {"clipped": clipped, "gan": gan, "metric": metric, "single": single}


def values(nets: tuple[Any, Any]) -> np.ndarray:
    """The weights of both networks, flat."""
    parameters = [parameter for net in nets for parameter in net.collect_params().values()]
    return np.concatenate([parameter.data().asnumpy().reshape(-1) for parameter in parameters])


def main(plan: Plan) -> None:
    """Do it."""
    import esync
    from esync.algorithms.loading import find

    nets = networks()
    checkpoints = esync.Checkpoints(plan.directory, every=4, resume=plan.resume) if plan.directory else None
    parameters = parameters_of(plan.program, nets)
    trainer = esync.Trainer(
        parameters[0],
        *OPTIMIZERS[-len(parameters)],
        algorithm=find(plan.algorithm)(**plan.options),
        limits=esync.Limits(rounds=plan.rounds),
        checkpoints=checkpoints,
    )
    trainers = (trainer, *(trainer.add_optimizer(further, *OPTIMIZERS[1]) for further in parameters[1:]))
    trainer.start()
    print(f"begins after round {trainer.round}", flush=True)

    def between() -> None:
        if plan.killed and trainer.round + 1 >= plan.killed:
            os.kill(os.getpid(), signal.SIGKILL)

    pair = trainers[::-1] if plan.swapped else trainers
    while not trainer.finished:
        batch = next(batches(trainer.rank, trainer.workers, trainer.round, plan.rounds))
        PROGRAMS[plan.program](nets, pair, batch, between)
        if checkpoints is not None:
            checkpoints.save_if_due()
    print(f"{trainer.steps} steps, round {trainer.round}, {trainer.samples} samples", flush=True)
    np.save(plan.weights, values(nets))
    trainer.close()


if __name__ == "__main__":
    run(main, Plan)
