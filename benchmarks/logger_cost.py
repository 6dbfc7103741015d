"""Cost of loggers: iterations of a small network with and without them, alternately, in one process.

    python benchmarks/logger_cost.py [--wandb] [--mlflow URI] [--pairs 5] [--rounds 200]

Each iteration is a round. Prints the difference of the medians. Weights & Biases is used offline.
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from harness import program
from harness.timing import in_turns, medians

import esync
from esync import mx
from esync.loggers import Logger, MLflowLogger, WandbLogger


def seconds(rounds: int, folder: Path, loggers: list[Logger]) -> float:
    """Return the median seconds of an iteration of LeNet's size on a batch of 64."""
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Conv2D(6, 5, activation="relu", in_channels=1), mx.gluon.nn.Dense(10))
    net.initialize()
    net.hybridize()
    images, labels = mx.nd.random.uniform(shape=(64, 1, 28, 28)), mx.nd.array(np.arange(64) % 10)
    net(images)
    run = esync.Run(folder, loggers=loggers, quiet=True)
    loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    times = []
    limits = esync.Limits(rounds=rounds)
    with esync.Trainer(net.collect_params(), "sgd", algorithm="local", limits=limits, run=run) as trainer:
        trainer.start()
        while not trainer.finished:
            began = time.perf_counter()
            with mx.autograd.record():
                value = loss(net(images), labels)
            value.backward()
            trainer.log(loss=value.mean())
            trainer.step(64)
            times.append(time.perf_counter() - began)
    return statistics.median(times)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wandb", action="store_true")
    parser.add_argument("--mlflow", metavar="URI")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=200)
    given = parser.parse_args()
    os.environ["WANDB_MODE"], os.environ["WANDB_SILENT"] = "offline", "true"

    def loggers() -> list[Logger]:
        chosen: list[Logger] = [WandbLogger("benchmark")] if given.wandb else []
        return chosen + ([MLflowLogger(given.mlflow)] if given.mlflow else [])

    with tempfile.TemporaryDirectory() as room:
        os.chdir(room)
        ways = {
            "with loggers": lambda: seconds(given.rounds, Path("with"), loggers()),
            "without": lambda: seconds(given.rounds, Path("without"), []),
        }
        medians_of = medians(in_turns(ways, given.pairs))
    for name, median in medians_of.items():
        print(f"{1000 * median:.2f} ms {name}")
    print(f"cost of a round: {1000 * (medians_of['with loggers'] - medians_of['without']):.2f} ms")
    return 0


if __name__ == "__main__":
    program.run(main)
