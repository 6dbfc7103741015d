"""A worker whose program changes the network between steps, as programs of users do.

Usage: python -m tests.cluster.changing_worker JSON with the fields of `Plan`.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster.worker_plan import WorkerPlan, run

STEPS = 12


@dataclass
class Plan(WorkerPlan):
    """What a worker does.

    Attributes:
        out: gets the final parameters, as Gluon saves them.
        algorithm: a name, with `options`; "" for gluon.Trainer.
        change: what is done to the network, a function of this module.
        at: steps before which it is done, from 0; later steps have a learning rate of `rate_after`.
        seed: of the initial weights.
        head_only: whether the trainer has the last layer only.
    """

    out: str
    algorithm: str = ""
    change: str = ""
    at: list[int] = field(default_factory=list)
    rate_after: float = 0.0
    seed: int = 0
    head_only: bool = False
    options: dict[str, Any] = field(default_factory=dict)


def build(seed: int) -> Any:
    """Return a small network with batch norm."""
    from esync.runtime.mxnet_import import mx

    net = mx.gluon.nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(
            mx.gluon.nn.Dense(4, in_units=3), mx.gluon.nn.BatchNorm(in_channels=4), mx.gluon.nn.Dense(2, in_units=4)
        )
    mx.random.seed(seed)
    net.initialize(mx.init.Uniform(0.5))
    return net


def set_data(net: Any, plan: Plan) -> None:
    """Set one parameter."""
    net[2].weight.set_data(net[2].weight.data() * 0 + 0.25)


def load(net: Any, plan: Plan) -> None:
    """Go back to earlier weights of all parameters."""
    net.load_parameters(str(Path(plan.out).parent / "best.params"))


def recover(net: Any, plan: Plan) -> None:
    """Let the training diverge, and go back to earlier weights the next time."""
    weight = net[2].weight
    if not (weight.data() == weight.data()).min().asscalar():
        load(net, plan)
    else:
        weight.data()[:] = float("nan")


def in_place(net: Any, plan: Plan) -> None:
    """Set one parameter in place."""
    net[2].weight.data()[:] = 0.25


def initialize(net: Any, plan: Plan) -> None:
    """Initialize one layer anew."""
    from esync.runtime.mxnet_import import mx

    net[2].initialize(mx.init.Constant(0.25), force_reinit=True)


def clip(net: Any, plan: Plan) -> None:
    """Clip all weights, as for a Wasserstein GAN."""
    for parameter in net.collect_params(".*weight").values():
        parameter.set_data(parameter.data().clip(-0.1, 0.1))


def freeze(net: Any, plan: Plan) -> None:
    """Freeze the first layer."""
    net[0].collect_params().setattr("grad_req", "null")


def unfreeze(net: Any, plan: Plan) -> None:
    """Train a layer that has been frozen so far."""
    net[0].collect_params().setattr("grad_req", "write")


def train(net: Any, trainer: Any, plan: Plan) -> None:
    """Take steps until the run is over, or STEPS of them."""
    from esync.runtime.mxnet_import import mx

    data = mx.nd.array([[1, 2, 3], [3, -2, 1], [-1, 1, 2], [0, 1, -2]])
    label = mx.nd.array([0, 1, 1, 0])
    loss_of = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    step = 0
    while step < STEPS and not getattr(trainer, "finished", False):
        if step in plan.at:
            globals()[plan.change](net, plan)
            trainer.set_learning_rate(plan.rate_after)
        with mx.autograd.record():
            loss = loss_of(net(data), label)
        loss.backward()
        trainer.step(len(data))
        step += 1


def main(plan: Plan) -> None:
    """Do it."""
    import esync
    from esync.algorithms import ALGORITHMS
    from esync.runtime.mxnet_import import mx

    net = build(plan.seed)
    if plan.change == "unfreeze":
        freeze(net, plan)
    parameters, settings = (
        net[2 if plan.head_only else slice(None)].collect_params(),
        {"learning_rate": 0.1, "wd": 0.01},
    )
    if not plan.algorithm:
        train(net, mx.gluon.Trainer(parameters, "sgd", settings, kvstore=None), plan)
    else:
        run = esync.Run(f"{plan.out}-logs", net=net, quiet=True)
        algorithm = ALGORITHMS[plan.algorithm](**plan.options)
        trainer = esync.Trainer(parameters, "sgd", settings, algorithm=algorithm, run=run)
        trainer.start()
        train(net, trainer, plan)
        trainer.close()
    mx.nd.save(plan.out, {name: parameter.data() for name, parameter in net.collect_params().items()})


if __name__ == "__main__":
    run(main, Plan)
