"""A worker whose learning rate changes.

It trains lenet on real images and prints the rate of every step.

Usage: python -m tests.cluster.rates_worker JSON with the fields of `Plan`.
"""

import os
import signal
from dataclasses import dataclass, field
from typing import Any

from tests.cluster.worker_plan import WorkerPlan, run


@dataclass
class Plan(WorkerPlan):
    """What a worker does.

    Attributes:
        algorithm: a name, with `options`.
        rounds: of the whole run.
        samples: likewise, what a plan of sync-switch is made of.
        rate: the learning rate to begin with.
        halved_every: updates after which a schedule halves the rate; 0: there is no schedule.
        changed: round → the learning rate that the loop sets after it.
        killed: the round after which the process ends itself as kill -9 does; 0: never.
    """

    algorithm: str
    rounds: int = 8
    samples: float = 100_000
    rate: float = 0.05
    halved_every: int = 0
    changed: dict[str, float] = field(default_factory=dict)
    killed: int = 0
    options: dict[str, Any] = field(default_factory=dict)


def main(plan: Plan) -> None:
    """Do it."""
    import esync
    from esync.algorithms import ALGORITHMS
    from esync.exchange.protocol.round_state import Limits
    from esync.models.networks import build
    from esync.runtime.mxnet_import import mx
    from tests.cluster.lenet_worker import backward

    settings: dict[str, Any] = {"learning_rate": plan.rate}
    if plan.halved_every:
        settings["lr_scheduler"] = mx.lr_scheduler.FactorScheduler(plan.halved_every, 0.5)
    net = build("lenet", 10, mx.cpu(), seed=0)
    algorithm = ALGORITHMS[plan.algorithm](**plan.options)
    limits = Limits(rounds=plan.rounds, samples=plan.samples)
    trainer = esync.Trainer(net.collect_params(), "sgd", settings, algorithm=algorithm, limits=limits)
    try:
        trainer.start()
        while not trainer.finished:
            size = backward(net, list(range(16 * trainer.rank, 16 * (trainer.rank + 1))))
            trainer.step(size)
            print(f"round {trainer.round} rate {trainer.learning_rate:g}", flush=True)
            if str(trainer.round) in plan.changed:
                trainer.set_learning_rate(plan.changed[str(trainer.round)])
            if plan.killed and trainer.round >= plan.killed:
                os.kill(os.getpid(), signal.SIGKILL)
    finally:
        trainer.close()


if __name__ == "__main__":
    run(main, Plan)
