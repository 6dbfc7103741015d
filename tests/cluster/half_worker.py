"""A worker that trains one float16 weight, which begins at 1, with a slope of its own.

Usage: python half_worker.py JSON with the fields of `Plan`.
"""

import json
import os
import signal
import sys
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Plan:
    """What a worker does.

    Attributes:
        algorithm: a name, with `options`.
        settings: of SGD.
        slope: what a step with learning rate 1 adds to the weight.
        result: file for the final weight, as JSON.
        rounds: of the whole run.
        directory: of checkpoints, one every five rounds; "" for none.
        killed: the round after which the process ends itself as kill -9 does; 0: never.
    """

    algorithm: str
    slope: float
    result: str
    rounds: int
    options: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    directory: str = ""
    killed: int = 0

    def arguments(self) -> list[str]:
        """The command line of this script."""
        return [__file__, json.dumps(asdict(self))]


def main(plan: Plan) -> None:
    """Do it."""
    import esync
    from esync.algorithms import ALGORITHMS
    from esync.exchange.protocol.round_state import Limits
    from esync.runtime.mxnet_import import mx

    weight = mx.gluon.Parameter("weight", shape=(1,), dtype="float16", init="ones")
    weight.initialize()
    checkpoints = esync.Checkpoints(plan.directory, every=5, resume=True) if plan.directory else None
    trainer = esync.Trainer(
        [weight],
        "sgd",
        {"learning_rate": 1.0, **plan.settings},
        algorithm=ALGORITHMS[plan.algorithm](**plan.options),
        limits=Limits(rounds=plan.rounds),
        checkpoints=checkpoints,
    )
    trainer.start()
    print(f"begins after round {trainer.round}", flush=True)
    slope = mx.nd.array([plan.slope], dtype="float16")
    while not trainer.finished:
        with mx.autograd.record():
            loss = -(weight.data() * slope).sum()
        loss.backward()
        trainer.step(1)
        if checkpoints is not None:
            checkpoints.save_if_due()
        if plan.killed and trainer.round >= plan.killed:
            os.kill(os.getpid(), signal.SIGKILL)
    with open(plan.result, "w", encoding="utf-8") as file:
        json.dump(float(weight.data().asscalar()), file)
    trainer.close()


if __name__ == "__main__":
    main(Plan(**json.loads(sys.argv[1])))
