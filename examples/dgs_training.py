"""What the examples of DGS have in common: the published flags, one worker's training, and who serves.

The same script on every machine: rank 0 serves, the others train.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import esync
from esync import mx
from esync.gradient_sgd import MODES, GradientSGD, init_server
from esync.runtime.errors import ExpectedError

MODELS = {"AlexNet": "alexnet", "ResNet18": "resnet18_v1", "ResNet50": "resnet50_v1", "ResNet101": "resnet101_v1"}


@dataclass(frozen=True)
class Task:
    """What is learnt.

    Attributes:
        classes: how many there are.
        samples: of training, in all workers' shares together.
        shape: of one image: colour planes, height, width.
        batches: endless (images, labels) of a worker, given rank and number of workers.
        accuracy: test accuracy of a network.
        drops: shares of the run after which the learning rate is divided by 10.
    """

    classes: int
    samples: int
    shape: tuple[int, int, int]
    batches: Callable[[int, int], Iterator[tuple[Any, Any]]]
    accuracy: Callable[[Any], float]
    drops: tuple[float, float]


def train(args: argparse.Namespace, task: Task) -> None:
    """One worker, from its first batch to its last."""
    net = mx.gluon.model_zoo.vision.get_model(MODELS.get(args.model, args.model), classes=task.classes)
    mx.random.seed(args.seed)
    net.initialize(mx.init.Xavier())
    net.hybridize()
    net(mx.nd.zeros((1, *task.shape)))  # lets the shapes become known
    workers = 1 if args.no_distributed else args.world_size - 1
    steps = max(1, task.samples // (args.batch_size * workers))  # of one epoch
    limits = esync.Limits(samples=args.epochs * steps * args.batch_size * workers)
    trainer = GradientSGD(
        net.collect_params(), args.lr, net, args.momentum, args.weight_decay, args,
        ratio=args.ratio, secondary_ratio=args.secondary_ratio, limits=limits,
    )  # fmt: skip
    loss_fn = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    trainer.start()
    drops = [max(1, int(share * args.epochs * steps)) for share in task.drops]
    for done, (images, labels) in enumerate(task.batches(trainer.rank, trainer.workers), 1):
        with mx.autograd.record():
            loss = loss_fn(net(images), labels)
        loss.backward()
        trainer.step(args.batch_size)
        if trainer.finished:
            break
        if done in drops:
            trainer.set_learning_rate(trainer.learning_rate / 10)
    trainer.close()
    with trainer.mean_statistics():  # on rank 0, batch norm's of all workers
        print(f"worker {trainer.rank}: test accuracy {task.accuracy(net):.4f}", flush=True)


def parser(description: str, epochs: float, batch_size: int, momentum: float, weight_decay: float) -> Any:
    """The published examples' flags."""
    flags = argparse.ArgumentParser(description=description)
    add = flags.add_argument
    add("--epochs", type=float, default=epochs, help="(default: %(default)s)")
    add("--batch-size", type=int, default=batch_size, help="of each worker (default: %(default)s)")
    add("--lr", type=float, default=0.1, help="÷ 10 twice in the run (default: %(default)s)")
    add("--momentum", type=float, default=momentum, help="(default: %(default)s)")
    add("--wd", "--weight-decay", dest="weight_decay", type=float, default=weight_decay, help="(default: %(default)s)")
    add(
        "--mode", choices=[*MODES, *MODES.values()], default="gradient_sgd", help="(default: %(default)s, which is dgs)"
    )
    names = ", ".join(MODELS)
    add("--model", default="ResNet18", help=f"{names}, or a name of Gluon's model zoo (default: %(default)s)")
    add("--ratio", type=float, default=0.01, help="share of the values that is sent (default: %(default)s)")
    add("--secondary-ratio", type=float, default=0.0, help="the same for the server; 0: all (default: %(default)s)")
    add("--no-distributed", action="store_true", help="train alone, with momentum SGD")
    add("--rank", type=int, default=0, help="0 serves, the others train (default: %(default)s)")
    add("--world-size", type=int, default=3, help="the server and all workers (default: %(default)s)")
    add("--master", default="localhost", help="address of rank 0 (default: %(default)s)")
    add("--port", type=int, default=9091, help="of the scheduler (default: %(default)s)")
    add("--seed", type=int, default=0, help="(default: %(default)s)")
    return flags


def run(args: argparse.Namespace, task: Callable[[argparse.Namespace], Task]) -> int:
    """Serve, or train; the exit code."""
    try:
        if args.rank == 0 and not args.no_distributed:
            init_server(args)
        else:
            train(args, task(args))
    except ExpectedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0
