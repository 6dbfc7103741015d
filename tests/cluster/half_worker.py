"""A worker that trains one float16 weight, which begins at 1, with a slope of its own.

Usage: python -m tests.cluster.half_worker JSON with the fields of `Plan`.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from tests.cluster.worker_plan import WorkerPlan, run


@dataclass
class Plan(WorkerPlan):
    """What a worker does.

    Attributes:
        algorithm: a name, with `options`.
        settings: of SGD.
        slope: what a step with learning rate 1 adds to the weight.
        result: file for the final weight, as JSON.
        rounds: of the whole run.
    """

    algorithm: str
    slope: float
    result: str
    rounds: int
    options: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)


def main(plan: Plan) -> None:
    """Do it."""
    import esync
    from esync.algorithms import ALGORITHMS
    from esync.exchange.protocol.round_state import Limits
    from esync.runtime.mxnet_import import mx

    weight = mx.gluon.Parameter("weight", shape=(1,), dtype="float16", init="ones")
    weight.initialize()
    trainer = esync.Trainer(
        [weight],
        "sgd",
        {"learning_rate": 1.0, **plan.settings},
        algorithm=ALGORITHMS[plan.algorithm](**plan.options),
        limits=Limits(rounds=plan.rounds),
    )
    trainer.start()
    slope = mx.nd.array([plan.slope], dtype="float16")
    while not trainer.finished:
        with mx.autograd.record():
            loss = -(weight.data() * slope).sum()
        loss.backward()
        trainer.step(1)
    with open(plan.result, "w", encoding="utf-8") as file:
        json.dump(float(weight.data().asscalar()), file)
    trainer.close()


if __name__ == "__main__":
    run(main, Plan)
