"""A worker whose learning rate follows a schedule by the progress of all workers.

It trains lenet on real images, and prints rate and progress at the start and after every exchange.

Usage: python -m tests.cluster.schedule_worker JSON with the fields of `Plan`.
"""

import json
import os
import signal
from dataclasses import dataclass, field
from typing import Any

from tests.cluster.worker_plan import WorkerPlan, run

BATCH, DATASET_SIZE, BASE, FINAL = 16, 960, 0.05, 0.001


@dataclass
class Plan(WorkerPlan):
    """What a worker does.

    Attributes:
        algorithm: a name, with `options`.
        by: what the schedule counts, a cosine over `length` of it; "plateau": evaluations without an
            improvement.
        rounds: of the whole run.
        directory: of the checkpoints, one every two rounds; "": there are none.
        killed: the round after which the process ends itself as kill -9 does; 0: never.
        optimizer: its name.
    """

    algorithm: str
    by: str
    length: int
    rounds: int = 8
    directory: str = ""
    resume: bool = False
    killed: int = 0
    optimizer: str = "sgd"
    options: dict[str, Any] = field(default_factory=dict)


def say(trainer: Any) -> None:
    """Print what a test compares."""
    facts = {name: getattr(trainer, name) for name in ("round", "samples", "epoch", "learning_rate")}
    counts = sorted(set(trainer.optimizer._index_update_count.values()))
    print("at", json.dumps({**facts, "own steps": trainer.optimizer.num_update, "counts": counts}), flush=True)


def scheduler(plan: Plan) -> Any:
    """Return the plan's schedule."""
    import esync
    from esync import mx

    if plan.by == "plateau":
        return esync.ReduceOnPlateau(factor=0.5, patience=plan.length, base_lr=BASE)
    cosine = mx.lr_scheduler.CosineScheduler(plan.length, base_lr=BASE, final_lr=FINAL)
    return esync.CommonLRScheduler(cosine, by=plan.by)  # type: ignore[arg-type]


def main(plan: Plan) -> None:
    """Do it."""
    import esync
    from esync import mx
    from esync.algorithms import ALGORITHMS
    from esync.models.networks import build
    from tests.cluster.lenet_worker import backward

    net = build("lenet", 10, mx.cpu(), seed=0)
    checkpoints = esync.Checkpoints(plan.directory, every=2, resume=plan.resume) if plan.directory else None
    schedule, run = scheduler(plan), None
    if plan.by == "plateau":
        run = esync.Run(evaluate=lambda: 0.5, background=False, checkpoints=checkpoints)
    trainer = esync.Trainer(
        net.collect_params(),
        plan.optimizer,
        {"learning_rate": BASE, "lr_scheduler": schedule},
        algorithm=ALGORITHMS[plan.algorithm](**plan.options),
        limits=esync.Limits(rounds=plan.rounds),
        checkpoints=checkpoints,
        dataset_size=DATASET_SIZE,
        run=run,
    )
    try:
        trainer.start()
        say(trainer)
        while not trainer.finished:
            trainer.step(backward(net, list(range(BATCH * trainer.rank, BATCH * (trainer.rank + 1)))))
            if trainer.exchanged:
                say(trainer)
                if checkpoints is not None and run is None:
                    checkpoints.save_if_due()
                if plan.killed and trainer.round >= plan.killed:
                    os.kill(os.getpid(), signal.SIGKILL)
    finally:
        trainer.close()


if __name__ == "__main__":
    run(main, Plan)
