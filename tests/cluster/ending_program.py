"""A program of a user's own, one worker of which ends in the middle of the run.

Usage: python ending_program.py ALGORITHM HOW RANK [with] [loader]: the worker of that rank ends
after its third step, and HOW: raise, exit, return, close, fork, thread, or the name of a signal.
Devices are the slower the larger their rank. "with": the Trainer stands in a with statement;
"loader": that worker's batches come from a DataLoader with processes of its own.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import esync
from esync import mx

BATCH = 4


class Slow(mx.gluon.data.Dataset):
    """A data set that hangs from the fifth batch on: a loader is busy when its worker ends."""

    def __len__(self) -> int:
        return 100 * BATCH

    def __getitem__(self, index: int) -> np.ndarray:
        if index >= 4 * BATCH:
            time.sleep(1000)
        return np.full(4, 0.01 * index, np.float32)


def batches(loader: bool) -> Iterator[Any]:
    """Batches without end."""
    if loader:
        yield from mx.gluon.data.DataLoader(Slow(), BATCH, num_workers=2)
    while True:
        yield mx.nd.ones((BATCH, 4))


def end(how: str, trainer: esync.Trainer) -> None:
    """End in a way that is not the end of the function that trains."""
    if how == "raise":
        raise ValueError("the picture\nis broken")
    if how == "exit":
        sys.exit(3)
    if how == "fork":
        child = os.fork()
        if not child:
            with trainer:
                sys.exit(4)
        print(f"forked, {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}", flush=True)
    if how.startswith("SIG"):
        os.kill(os.getpid(), signal.Signals[how])


def train(trainer: esync.Trainer, net: Any, how: str, rank: int, loader: bool) -> None:
    """Train until the run is over, or this worker ends."""
    trainer.start()
    for steps, data in enumerate(batches(loader and trainer.rank == rank), start=1):
        time.sleep(0.02 * (1 + trainer.rank))
        with mx.autograd.record():
            loss = net(data).square().sum()
        loss.backward()
        trainer.step(BATCH)
        if trainer.finished:
            print(f"finished after round {trainer.round}", flush=True)
            return
        if steps == 3 and trainer.rank == rank:
            if how in ("return", "close"):
                return
            end(how, trainer)
        if how in ("close", "fork") and trainer.round == 6:
            trainer.stop()


def main(algorithm: str, how: str, rank: str, *options: str) -> None:
    """Train, in the main thread or in another one."""
    net = mx.gluon.nn.Dense(1, in_units=4)
    net.initialize()
    trainer = esync.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01}, algorithm=algorithm)
    arguments = trainer, net, "raise" if how == "thread" else how, int(rank), "loader" in options
    if "with" in options:
        with trainer:
            train(*arguments)
    elif how == "thread":
        thread = threading.Thread(target=train, args=arguments)
        thread.start()
        thread.join()
    else:
        train(*arguments)
    if how == "close":
        trainer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
