"""Follow a run's checkpoints from any machine that sees them, and record the accuracy of each.

It only reads: a folder that the workers write to, or a copy that something (rsync, for instance)
keeps up to date. Of a checkpoint it needs rank 0's part, which says what network and data set it is
of. `python -m esync.evaluate --checkpoint-dir DIR` is this program.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .. import config
from ..arguments import count
from ..arguments.flag_types import index, positive
from ..checkpoints.store import CheckpointStore, Part
from ..data import find_data_dir, load
from ..models.networks import MODELS, build
from ..runtime import program
from ..runtime.errors import ExpectedError
from ..runtime.files import expanded, write_atomically
from ..runtime.mxnet_import import mx
from ..runtime.watchdog import Watchdog
from ..version import __version__
from .accuracy import accuracy

#: The file in the folder of the output, and its columns: those of acc.csv and the round.
FILE, HEADING = "evaluations.csv", "Wall time,Time,Step,Samples,Value,Round"
#: Seconds between two looks for another checkpoint.
LOOK_EVERY = 1.0


class EvaluatorError(ExpectedError):
    """There are no checkpoints to follow, or they cannot be read."""


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the flags."""
    parser = argparse.ArgumentParser(
        prog=program.name("python -m esync.evaluate"),
        description="Evaluate a run's checkpoints as they appear; may run on another machine than the training.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    add = parser.add_argument
    add("--checkpoint-dir", type=expanded, required=True, help="of the run, or a copy of it that is kept up to date")
    add("--out", type=expanded, help=f"folder for {FILE} (default: the current one)", default=Path())
    add("-dd", "--data-dir", help=f"holds the data set's folder (default: the first of {', '.join(config.DATA_DIRS)})")
    add("-g", "--gpu", type=index, help="id of the GPU (default: the CPU)")
    add("--once", action="store_true", help="evaluate what is there, and end")
    add("--until-round", type=count, help="end after a checkpoint of that round or a later one")
    add(
        "--patience",
        type=positive,
        default=config.FOLLOW_PATIENCE,
        help="seconds without a new checkpoint after which it ends (default: %(default)s)",
    )
    return parser


class CheckpointEvaluator:
    """Evaluates parts of checkpoints; the network is built when the first one names it.

    Args:
        data_dir: as the flag says.
        context: the MXNet device.
    """

    def __init__(self, data_dir: str | None, context: Any) -> None:
        self._data_dir, self._context = data_dir, context
        self._of: tuple[str, str] | None = None

    def accuracy(self, part: Part) -> float:
        """Return the test accuracy of a checkpoint's model.

        Raises:
            EvaluatorError: it is of no network or data set of this package, or its model does not
                fit.
        """
        agreement = part.facts["agreement"]
        of = agreement.get("network"), agreement.get("data set")
        if of != self._of:
            self._prepare(*of)
        path = part.file("model.params")
        if path is None:
            raise EvaluatorError(f"{part.folder} has no model")
        saved = mx.nd.load(str(path))
        # By name, or in order where another prefix has been given to the same network.
        names = sorted(self._parameters) if set(self._parameters) == set(saved) else list(saved)
        shapes = [saved[name].shape for name in names]
        if shapes != [parameter.shape for _, parameter in sorted(self._parameters.items())]:
            raise EvaluatorError(f"{path} is no model of {of[0]}")
        for (_, parameter), name in zip(sorted(self._parameters.items()), names, strict=True):
            parameter.set_data(saved[name])
        images, labels = self._dataset.test_images, self._dataset.test_labels
        return accuracy(self._net, images, labels, MODELS[str(of[0])].size, self._context)

    def _prepare(self, network: str | None, dataset: str | None) -> None:
        if network not in MODELS or dataset is None:
            raise EvaluatorError(
                f"the checkpoint is of network {network} and data set {dataset}: only runs of python -m esync.worker "
                "say what they are of"
            )
        self._dataset = load(dataset, find_data_dir(self._data_dir, dataset))
        self._net = build(network, self._dataset.classes, self._context, seed=0, channels=self._dataset.channels)
        self._parameters: dict[str, Any] = dict(self._net.collect_params().items())
        self._of = network, dataset


class AccuracyFile:
    """File of accuracies, which is continued when the evaluator is started again.

    Args:
        folder: where it is.
    """

    def __init__(self, folder: Path) -> None:
        self._place = folder / FILE
        heading, *rows = (self._place.read_text(encoding="utf-8") if self._place.exists() else HEADING).splitlines()
        if heading != HEADING:
            raise EvaluatorError(f"{self._place} is no file of this program; choose another folder with --out")
        self._rows = rows

    @property
    def newest(self) -> int:
        """Return the last round in the file; −1 if there is none."""
        return int(self._rows[-1].rpartition(",")[2]) if self._rows else -1

    def add(self, part: Part, value: float) -> None:
        """Append an accuracy."""
        books = part.facts["books"]
        self._rows.append(
            f"{time.time():.6f},{books['elapsed']:.6f},{books['step']},{books['samples']},{value:.8g},{part.round}"
        )
        write_atomically(self._place, "\n".join([HEADING, *self._rows, ""]).encode())


def follow(
    options: argparse.Namespace, evaluate: Callable[[Part], float], evaluations: AccuracyFile, watchdog: Watchdog
) -> int:
    """Evaluate every checkpoint that is newer than the evaluated ones; return how many there were.

    Args:
        options: the flags.
        evaluate: evaluates one.
        evaluations: where the accuracies go.
        watchdog: says what is waited for.
    """
    store, done, newest = CheckpointStore(options.checkpoint_dir, 0), 0, evaluations.newest
    while True:
        until = time.monotonic() + options.patience
        with watchdog.waiting(f"a checkpoint after round {newest} in {options.checkpoint_dir}", 2 * options.patience):
            while not (part := store.next_after(newest)):
                if options.once or time.monotonic() > until:
                    return done
                time.sleep(LOOK_EVERY)
        newest = part.round
        try:
            value = evaluate(part)
        except (OSError, mx.MXNetError):
            if part.folder.exists():
                raise
            continue  # the run has deleted it meanwhile
        evaluations.add(part, value)
        done += 1
        print(f"round {newest}, {part.facts['books']['samples']} samples: accuracy {value:.4f}", flush=True)
        if options.until_round is not None and newest >= options.until_round:
            return done


def run(arguments: list[str], watchdog: Watchdog) -> int:
    """Run the evaluator as the command line says; return the exit code."""
    options = build_parser().parse_args(arguments)
    context = mx.cpu() if options.gpu is None else mx.gpu(options.gpu)
    evaluate = CheckpointEvaluator(options.data_dir, context)
    options.out.mkdir(parents=True, exist_ok=True)
    evaluations = AccuracyFile(options.out)
    if not follow(options, evaluate.accuracy, evaluations, watchdog) and evaluations.newest < 0:
        waited = "" if options.once else f" within {options.patience:g} s"
        raise EvaluatorError(f"no whole checkpoint of rank 0 in {options.checkpoint_dir}{waited}")
    print(f"accuracies in {options.out / FILE}", file=sys.stderr, flush=True)
    return 0
