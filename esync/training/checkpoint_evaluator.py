"""Follow a run's checkpoints from any machine with access to them, and record their accuracies.

This program, `python -m esync.evaluate --checkpoint-dir DIR`, only reads the folder, which is the
workers' or a synchronized copy, for instance by rsync. It needs rank 0's part of a checkpoint, which
contains the names of the network and the data set.
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
from ..data import FORMS, REGISTRY, load, short_dataset_name
from ..models.names import is_network
from ..runtime import program, user_functions
from ..runtime.errors import ExpectedError
from ..runtime.evaluation_result import EvaluationResult, lowest_recall
from ..runtime.files import expanded, write_atomically
from ..runtime.user_functions import short_name
from ..runtime.watchdog import Watchdog
from ..version import __version__

#: Name of the output file, and its columns: those of acc.csv and the round.
FILE, HEADING = "evaluations.csv", "Wall time,Time,Step,Samples,Value,Round"
#: Seconds between two checks for a new checkpoint.
LOOK_EVERY = 1.0


class EvaluatorError(ExpectedError):
    """Raised when checkpoints do not exist, or cannot be read."""


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the flags."""
    parser = argparse.ArgumentParser(
        prog=program.name("python -m esync.evaluate"),
        description="Evaluate a run's checkpoints as they appear; may run on another machine than the training.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    add = parser.add_argument
    add(
        "--checkpoint-dir",
        type=expanded,
        required=True,
        help="folder of the run's checkpoints, or a copy that is kept up to date",
    )
    add("--out", type=expanded, help=f"folder for {FILE} (default: the current one)", default=Path())
    add("-n", "--network", help=f"a network of your own: {user_functions.FORMS}; others are named by the checkpoint")
    add("-d", "--dataset", help=f"a data set of your own: {FORMS}; others are named by the checkpoint")
    add("-dd", "--data-dir", help=f"holds the data set's folder (default: the first of {', '.join(config.DATA_DIRS)})")
    add("-g", "--gpu", type=index, help="id of the GPU (default: the CPU)")
    add(
        "--reestimate-statistics",
        type=count,
        metavar="N",
        help="estimate the statistics of batch norm from N training images before (default: those of the checkpoint)",
    )
    add("--once", action="store_true", help="evaluate the checkpoints that there are, and end")
    add("--until-round", type=count, help="end after a checkpoint of that round or a later one")
    add(
        "--patience",
        type=positive,
        default=config.FOLLOW_PATIENCE,
        help="seconds without a new checkpoint after which it ends (default: %(default)s)",
    )
    return parser


class CheckpointEvaluator:
    """Evaluates parts of checkpoints, with a network that is built for the first part.

    Args:
        data_dir: folder of the data sets; None searches the usual ones.
        context: the MXNet device.
        network: the user's network, if the run has one, because names in checkpoints are not imported.
        dataset: the user's data set, for the same reason.
        estimated: training images from which batch norm's statistics are estimated; None keeps them.
    """

    def __init__(
        self,
        data_dir: str | None,
        context: Any,
        network: str | None = None,
        dataset: str | None = None,
        estimated: int | None = None,
    ) -> None:
        self._estimated = estimated
        self._data_dir, self._context, self._user_network, self._user_dataset = data_dir, context, network, dataset
        self._of: tuple[str, str] | None = None

    def evaluate(self, part: Part) -> EvaluationResult:
        """Return the test accuracy and recalls of a checkpoint's model.

        It is the average of the weights if the checkpoint has one.

        Raises:
            EvaluatorError: this package does not have its network or data set, or its model does
                not fit.
        """
        agreement = part.facts["agreement"]
        of = agreement.get("network"), agreement.get("data set")
        if of != self._of:
            self._prepare(*of)
        path = part.file("model.params")
        if path is None:
            raise EvaluatorError(f"{part.folder} has no model")
        from ..runtime.mxnet_arrays import like
        from ..runtime.mxnet_import import mx

        saved = mx.nd.load(str(path))
        # By name, or in order if the network has been given another prefix.
        names = sorted(self._parameters) if set(self._parameters) == set(saved) else list(saved)
        shapes = [saved[name].shape for name in names]
        if shapes != [parameter.shape for _, parameter in sorted(self._parameters.items())]:
            raise EvaluatorError(f"{path} is not a model of {of[0]}")
        for (_, parameter), name in zip(sorted(self._parameters.items()), names, strict=True):
            parameter.set_data(like(saved[name], parameter.data()))
        self._take_average(part)
        return self._evaluate()

    def _take_average(self, part: Part) -> None:
        from ..checkpoints.contents import WORKER_FILE, load_arrays, tracked_states
        from ..gluon.replica import Replica
        from ..gluon.weight_average import AVERAGE

        average = tracked_states(part, load_arrays(part, WORKER_FILE.format(rank=0))).get(AVERAGE)
        if average:
            replica = Replica([parameter for _, parameter in sorted(self._parameters.items())], float)
            replica.open()
            replica.weights.write(0, average["weights"])
            replica.statistics.write(0, average["statistics"])
            replica.close()

    def _prepare(self, network: str | None, dataset: str | None) -> None:
        if network is None or dataset is None:
            raise EvaluatorError(
                f"the checkpoint is of network {network} and data set {dataset}: only runs of python -m esync.worker "
                "record them"
            )
        from ..models.networks import build, input_size
        from .accuracy import AccuracyEvaluator

        typed = _typed("network", network, self._user_network, short_name, is_network)
        loaded = load(
            _typed("dataset", dataset, self._user_dataset, short_dataset_name, REGISTRY.__contains__), self._data_dir
        )
        net = build(typed, loaded.classes, self._context, seed=0, shape=loaded.shape)
        self._parameters: dict[str, Any] = dict(net.collect_params().items())
        self._evaluate = AccuracyEvaluator(net, loaded, input_size(typed), self._context, estimated=self._estimated)
        self._of = network, dataset


def _typed(
    kind: str, name: str, typed: str | None, naming: Callable[[str], str], is_known: Callable[[str], bool]
) -> str:
    """Return the text that names what a checkpoint is of.

    Only for this package's own networks and data sets, that is the name in the checkpoint.

    Args:
        kind: name of the flag, such as "network".
        name: the name in the checkpoint.
        typed: the value of the evaluator's flag; None without it.
        naming: converts such a value to the name in a checkpoint.
        is_known: returns whether a name is one of this package's.
    """
    if typed is not None and naming(typed) != name:
        raise EvaluatorError(f"the checkpoint is of {kind} {name}, not of --{kind} {typed}")
    if typed is None and not is_known(name):
        raise EvaluatorError(
            f"the checkpoint is of {kind} {name}, which is none of this package's own: say where it is, with --{kind}"
        )
    return typed or name


class AccuracyFile:
    """File of accuracies, which is continued when the evaluator is restarted.

    Args:
        folder: the folder of the file.
    """

    def __init__(self, folder: Path) -> None:
        self._place = folder / FILE
        heading, *rows = (self._place.read_text(encoding="utf-8") if self._place.exists() else HEADING).splitlines()
        if heading != HEADING:
            raise EvaluatorError(f"{self._place} is not a file of this program; choose another folder with --out")
        self._rows = rows

    @property
    def newest(self) -> int:
        """The last round in the file; −1 if there is none."""
        return int(self._rows[-1].rpartition(",")[2]) if self._rows else -1

    def add(self, part: Part, value: float) -> None:
        """Append an accuracy."""
        progress = part.facts["books"]
        self._rows.append(
            f"{time.time():.6f},{progress['elapsed']:.6f},{progress['step']},{progress['samples']},{value:.8g},{part.round}"
        )
        write_atomically(self._place, "\n".join([HEADING, *self._rows, ""]).encode())


def follow(
    options: argparse.Namespace,
    evaluate: Callable[[Part], EvaluationResult],
    evaluations: AccuracyFile,
    watchdog: Watchdog,
) -> int:
    """Evaluate every new checkpoint; return their number.

    Args:
        options: the flags.
        evaluate: evaluates a checkpoint's part.
        evaluations: the file of the accuracies.
        watchdog: announces waits.
    """
    from ..runtime.mxnet_import import mx

    store, done, newest = CheckpointStore(options.checkpoint_dir, 0), 0, evaluations.newest
    while True:
        deadline = time.monotonic() + options.patience
        with watchdog.waiting(f"a checkpoint after round {newest} in {options.checkpoint_dir}", 2 * options.patience):
            while not (part := store.next_after(newest)):
                if options.once or time.monotonic() > deadline:
                    return done
                time.sleep(LOOK_EVERY)
        newest = part.round
        try:
            result = evaluate(part)
        except (OSError, mx.MXNetError):
            if part.folder.exists():
                raise
            continue  # deleted by the run meanwhile
        evaluations.add(part, result.value)
        done += 1
        recall = f"; {lowest}" if (lowest := lowest_recall(result.parts)) else ""
        print(
            f"round {newest}, {part.facts['books']['samples']} samples: accuracy {result.value:.4f}{recall}", flush=True
        )
        if options.until_round is not None and newest >= options.until_round:
            return done


def run(arguments: list[str], watchdog: Watchdog) -> int:
    """Run the evaluator with a command line, and return the exit code."""
    options = build_parser().parse_args(arguments)
    from ..runtime.mxnet_import import mx  # not needed for --help

    context = mx.cpu() if options.gpu is None else mx.gpu(options.gpu)
    estimated = options.reestimate_statistics
    evaluate = CheckpointEvaluator(options.data_dir, context, options.network, options.dataset, estimated)
    options.out.mkdir(parents=True, exist_ok=True)
    evaluations = AccuracyFile(options.out)
    if not follow(options, evaluate.evaluate, evaluations, watchdog) and evaluations.newest < 0:
        waited = "" if options.once else f" within {options.patience:g} s"
        raise EvaluatorError(f"no whole checkpoint of rank 0 in {options.checkpoint_dir}{waited}")
    print(f"accuracies in {options.out / FILE}", file=sys.stderr, flush=True)
    return 0
