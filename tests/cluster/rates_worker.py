"""A worker whose learning rate changes.

It trains lenet on real images and prints the rate of every step.

Usage: python -m tests.cluster.rates_worker JSON with the fields of `Plan`.
"""

from dataclasses import dataclass, field

from tests.cluster.worker_plan import WorkerPlan, run


@dataclass
class Plan(WorkerPlan):
    """What a worker does.

    Attributes:
        algorithm: a name.
        rounds: of the whole run.
        samples: likewise, what a plan of sync-switch is made of.
        rate: the learning rate to begin with.
        changed: round → the learning rate that the loop sets after it.
    """

    algorithm: str
    rounds: int = 8
    samples: float = 100_000
    rate: float = 0.05
    changed: dict[str, float] = field(default_factory=dict)


def main(plan: Plan) -> None:
    """Do it."""
    import esync
    from esync.exchange.protocol.round_state import Limits
    from esync.models.networks import build
    from esync.runtime.mxnet_import import mx
    from tests.cluster.lenet_worker import backward

    net = build("lenet", 10, mx.cpu(), seed=0)
    limits = Limits(rounds=plan.rounds, samples=plan.samples)
    settings = {"learning_rate": plan.rate}
    trainer = esync.Trainer(net.collect_params(), "sgd", settings, algorithm=plan.algorithm, limits=limits)
    try:
        trainer.start()
        while not trainer.finished:
            size = backward(net, list(range(16 * trainer.rank, 16 * (trainer.rank + 1))))
            trainer.step(size)
            print(f"round {trainer.round} rate {trainer.learning_rate:g}", flush=True)
            if str(trainer.round) in plan.changed:
                trainer.set_learning_rate(plan.changed[str(trainer.round)])
    finally:
        trainer.close()


if __name__ == "__main__":
    run(main, Plan)
