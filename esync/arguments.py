"""The command line of a worker, which servers and schedulers understand too; every flag is checked here."""

import argparse
import math
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from . import __version__, config
from .algorithms.switch_schedule import HYPER_PARAMETERS, Schedule, parse_decay
from .data.partitions import GRAMMAR, parse_partition
from .data.registry import REGISTRY

#: Names in models.MODELS; kept here so that a server needs no model to read its command line.
NETWORKS = (
    "alexnet",
    "resnet18-v1",
    "resnet50-v1",
    "resnet50-v2",
    "mobilenet-v1",
    "mobilenet-v2",
    "inception-v3",
    "lenet",
    "cifar-resnet20-v1",
    "cifar-resnet32-v1",
    "cifar-resnet56-v1",
    "cifar-resnet110-v1",
)
#: Asynchronous modes whose messages are sparse.
SPARSE = ("gd-async", "dgc-async", "dgs")
MODES = ("esync", "sync", "async", "sync-switch", "local", *SPARSE)
DENSE = tuple(mode for mode in MODES if mode not in SPARSE)
#: What a training may be called on the state server.
JOB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

#: Flags that are for the state server, which is not asked where the number of local iterations is fixed.
FOR_THE_STATE_SERVER = {
    "state_server_ip",
    "state_server_port",
    "epsilon",
    "slowest_iterations",
    "query_mode",
    "job",
}

#: Flags that make sense in some modes only; given in another one they are an error.
MODES_OF: dict[str, tuple[str, ...]] = {
    "learning_rate": ("sync", "async", "sync-switch", "local", *SPARSE),
    "switch_order": ("sync-switch",),
    "train_steps": ("sync-switch",),
    "bsp_share": ("sync-switch",),
    "ckpt_frequency": ("sync-switch",),
    "hparams": ("sync-switch",),
    "lr_decay": ("sync-switch",),
    "local_lr": ("esync",),
    "global_lr": ("esync",),
    "use_dcasgd": ("async",),
    "dcasgd_lambda": ("async",),
    "dcasgd_adaptive": ("async",),
    "state_server_ip": ("esync",),
    "state_server_port": ("esync",),
    "local_iterations": ("esync",),
    "elastic": ("esync", "sync", "async", *SPARSE),
    "momentum": tuple(mode for mode in MODES if mode != "gd-async"),
    "sparse_ratio": SPARSE,
    "secondary_ratio": SPARSE,
    "sparse_values": SPARSE,
    "dgc_clip": ("dgc-async",),
    "dgc_warm_up": ("dgc-async",),
    "checkpoint_dir": DENSE,
    "checkpoint_every": DENSE,
    "keep_checkpoints": DENSE,
    "resume": DENSE,
    "epsilon": ("esync",),
    "slowest_iterations": ("esync",),
    "query_mode": ("esync",),
    "job": ("esync",),
}


def _number(
    kind: Callable[[str], Any], least: float, wanted: str, above: bool = False, most: float = sys.float_info.max
) -> Callable[[str], Any]:
    """A checked number for argparse."""

    def parse(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not (value > least if above else value >= least) or value > most:
            raise argparse.ArgumentTypeError(f"{text!r} should be {wanted}")
        return value

    return parse


_positive = _number(float, 0, "a number above 0", above=True)
_not_negative = _number(float, 0, "a number of 0 or more")
count = _number(int, 1, "a whole number of 1 or more")
_above_to_one = _number(float, 0, "a share above 0, at most 1", above=True, most=1)
_to_one = _number(float, 0, "a share from 0 (off) to 1", most=1)
_index = _number(int, 0, "a whole number of 0 or more")
_port = _number(int, 1, "a port, 1 to 65535", most=65535)


def _share(text: str) -> float:
    value = _positive(text)
    if value > 1:
        raise argparse.ArgumentTypeError(f"{text!r} should be an accuracy above 0, at most 1")
    return float(value)


def _bsp_share(text: str) -> float:
    value = _not_negative(text)
    if value > 1:
        raise argparse.ArgumentTypeError(f"{text!r} should be a share, 0 to 1")
    return float(value)


def _decay(text: str) -> tuple[tuple[float, float], ...]:
    try:
        return parse_decay(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def switch_schedule(options: argparse.Namespace) -> Schedule:
    """The schedule that the flags of mode sync-switch describe; ValueError where they do not fit each other."""
    return Schedule(
        options.switch_order,
        tuple(options.train_steps or ()),
        options.bsp_share,
        tuple(options.ckpt_frequency or ()),
        tuple(options.hparams or ()),
    )


def _partition(text: str) -> str:
    try:
        parse_partition(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _epsilon(text: str) -> float | str:
    if text == "auto":
        return text
    try:
        return float(_not_negative(text))
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"{text!r} should be a number of 0 or more, or auto") from None


def _job(text: str) -> str:
    if not JOB_NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} should be a name of letters, digits, '.', '_' and '-'")
    return text


def build_parser(
    program: str, description: str, kind: type[argparse.ArgumentParser] = argparse.ArgumentParser
) -> argparse.ArgumentParser:
    """The parser, an object of class `kind`; defaults come from config.py."""
    parser = kind(
        prog=program, description=description, usage="%(prog)s [flags]   (--help lists them)", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")

    training = parser.add_argument_group("training")
    add = training.add_argument
    add("-m", "--mode", choices=MODES, default=config.MODE, help="algorithm (default: %(default)s)")
    add("-n", "--network", choices=NETWORKS, default=config.NETWORK, help="network (default: %(default)s)")
    add("--no-hybridize", action="store_true", help="run the network imperatively (slower, easier to debug)")
    add(
        "-b",
        "--batch-size",
        type=count,
        default=config.BATCH_SIZE,
        help="samples of one iteration on this device (default: %(default)s)",
    )
    add(
        "--seed", type=_index, default=config.SEED, help="of initial weights, shares and batches (default: %(default)s)"
    )
    add(
        "--optimizer",
        default=config.OPTIMIZER,
        help="a Gluon optimizer; modes other than esync and local take sgd only (default: %(default)s)",
    )
    add(
        "--momentum",
        type=_not_negative,
        default=None,
        help=f"of the optimizer (default: {config.MOMENTUM}; modes dgs and dgc-async: {config.DGS_MOMENTUM})",
    )
    add("--weight-decay", type=_not_negative, default=config.WEIGHT_DECAY, help="(default: %(default)s)")

    rates = parser.add_argument_group("learning rates", "They multiply the gradient summed over the batch.")
    add = rates.add_argument
    add(
        "-l",
        "--learning-rate",
        type=_positive,
        default=config.LEARNING_RATE,
        help="all modes but esync; sync-switch takes it times the number of workers while it is "
        "synchronous (default: %(default)s)",
    )
    add(
        "-ll",
        "--local-lr",
        type=_positive,
        default=config.LEARNING_RATE_LOCAL,
        help="mode esync: of the local optimizer (default: %(default)s)",
    )
    add(
        "-gl",
        "--global-lr",
        type=_positive,
        default=config.LEARNING_RATE_GLOBAL,
        help="mode esync: scales the mean model update (default: %(default)s)",
    )

    end = parser.add_argument_group("end of the run", "Any of them ends it cleanly, on all workers.")
    add = end.add_argument
    add("--rounds", type=count, help="communication rounds; asynchronous modes: commits ÷ workers; local: iterations")
    add("--epochs", type=_positive, help="samples of all workers ÷ size of the training set")
    add("--max-time", type=_positive, help="seconds")
    add("--target-accuracy", type=_share, help="test accuracy")

    data = parser.add_argument_group("data")
    add = data.add_argument
    add("-d", "--dataset", choices=sorted(REGISTRY), default=config.DATASET, help="(default: %(default)s)")
    add(
        "-dd",
        "--data-dir",
        help=f"folder that holds the data set's folder (default: the first that does: {', '.join(config.DATA_DIRS)})",
    )
    add("--partition", type=_partition, help=f"who trains on what: {GRAMMAR} (default: {config.PARTITION})")
    add("-s", "--split-by-class", type=int, choices=(0, 1), default=0, help="1: the same as --partition class")

    device = parser.add_argument_group("device")
    add = device.add_argument
    add("-g", "--gpu", type=_index, help=f"id of the GPU (default: {config.DEFAULT_GPU_ID}, or the CPU without a GPU)")
    add("-c", "--cpu", type=int, choices=(0, 1), default=config.USE_CPU, help="1: use the CPU")
    add(
        "--step-time", type=_positive, help="seconds: make every iteration last that long, to stand for a slower device"
    )

    logs = parser.add_argument_group("evaluation and logs")
    add = logs.add_argument
    add(
        "-e",
        "--eval-duration",
        type=count,
        default=config.EVAL_DURATION,
        help="evaluate every that many rounds, on rank 0 (default: %(default)s)",
    )
    add("--no-evaluation", action="store_true", help="never evaluate")
    add("-ld", "--log-dir", default=config.LOG_DIR, help="(default: %(default)s)")
    add("--overwrite", action="store_true", help="delete an earlier run's logs (else moved aside) and checkpoints")
    add("--quiet", action="store_true", help="no progress lines")

    checkpoints = parser.add_argument_group("checkpoints")
    add = checkpoints.add_argument
    add("--checkpoint-dir", help="folder for checkpoints, best one that all workers see (default: no checkpoints)")
    add(
        "--checkpoint-every",
        type=count,
        default=config.CHECKPOINT_EVERY,
        help="rounds from one checkpoint to the next (default: %(default)s)",
    )
    add(
        "--keep-checkpoints",
        type=count,
        default=config.KEEP_CHECKPOINTS,
        help="how many are kept; older ones are deleted (default: %(default)s)",
    )
    add("--resume", action="store_true", help="go on from the newest checkpoint; from the beginning if there is none")
    add("--no-export", action="store_true", help="do not write the final model")

    coordination = parser.add_argument_group("coordination (mode esync)")
    add = coordination.add_argument
    add("-ip", "--state-server-ip", default=config.STATE_SERVER_IP, help="address of the state server")
    add(
        "-port",
        "--state-server-port",
        type=_port,
        default=int(config.STATE_SERVER_PORT),
        help="(default: %(default)s)",
    )
    add("--job", type=_job, default=config.JOB, help="name of this training on the state server (default: %(default)s)")
    add(
        "--query-mode",
        choices=config.QUERY_MODES,
        default=config.QUERY_MODE,
        help="wait for the state server's answers, or train on until READY arrives (default: %(default)s)",
    )
    add(
        "--epsilon",
        type=_epsilon,
        default=config.EPSILON,
        help="seconds that guard READY, or auto: what iterations and questions fluctuate by (default: %(default)s)",
    )
    add(
        "--slowest-iterations",
        type=count,
        default=config.SLOWEST_ITERATIONS,
        help="local iterations of the slowest device per round (default: %(default)s)",
    )
    add("--local-iterations", type=count, help="that many in every round, without a state server")

    delay = parser.add_argument_group("delay compensation (mode async)")
    add = delay.add_argument
    add("-dcasgd", "--use-dcasgd", type=int, choices=(0, 1), default=0, help="1: DC-ASGD")
    add("--dcasgd-lambda", type=_not_negative, default=config.DCASGD_LAMBDA, help="strength λ (default: %(default)s)")
    add("--dcasgd-adaptive", action="store_true", help="adaptive λ")

    switching = parser.add_argument_group(
        "switching (mode sync-switch)",
        "Lists have one entry for each segment of --switch-order. A global step is one batch of every worker in "
        "synchronous training, one batch of one worker in asynchronous training.",
    )
    add = switching.add_argument
    add(
        "--switch-order",
        default=config.SWITCH_ORDER,
        help="of the segments, 1 is synchronous, 0 asynchronous: 10, 101, … (default: %(default)s)",
    )
    add("--train-steps", type=count, nargs="+", metavar="STEP", help="global step at which each segment ends")
    add(
        "--bsp-share",
        type=_bsp_share,
        help=f"instead of --train-steps: synchronous share of --epochs, 0 to 1 (default: {config.BSP_SHARE})",
    )
    add("--ckpt-frequency", type=count, nargs="+", metavar="STEPS", help="evaluate every that many global steps")
    add(
        "--hparams",
        nargs="+",
        metavar="NAME=NUMBER",
        help=f"of each segment, joined by commas, from {', '.join(HYPER_PARAMETERS)}; - for none; the learning rate "
        "is a worker's own",
    )
    add(
        "--lr-decay",
        type=_decay,
        metavar="SHARE:FACTOR",
        default=(),
        help="learning rate by the share of all samples that has been used: 0.5:0.1,0.75:0.01 (default: it stays)",
    )

    sparse = parser.add_argument_group("sparse exchanges (modes dgs, gd-async, dgc-async)")
    add = sparse.add_argument
    add(
        "--sparse-ratio",
        type=_above_to_one,
        default=config.SPARSE_RATIO,
        help="share of each tensor's values that a worker sends (default: %(default)s)",
    )
    add(
        "--secondary-ratio",
        type=_to_one,
        default=config.SPARSE_SECONDARY_RATIO,
        help="the same for what a server answers; 0: all that has changed (default: %(default)s)",
    )
    add(
        "--sparse-values",
        choices=("float32", "float16"),
        default=config.SPARSE_VALUES,
        help="on the wire (default: %(default)s)",
    )
    add(
        "--dgc-clip",
        type=_not_negative,
        default=config.DGC_CLIP,
        help="mode dgc-async: largest norm of a gradient, divided by √workers; 0: no limit (default: %(default)s)",
    )
    add(
        "--dgc-warm-up",
        type=_index,
        default=config.DGC_WARM_UP,
        help="mode dgc-async: exchanges over which the ratio falls to its final value (default: %(default)s)",
    )

    cluster = parser.add_argument_group("cluster", "Where the others are is said by the DMLC_* variables of MXNet.")
    add = cluster.add_argument
    add("--start-timeout", type=_positive, default=config.START_TIMEOUT, help="seconds (default: %(default)s)")
    add("--elastic", action="store_true", help="go on without workers that are gone; they may come back later")
    add(
        "--lease",
        type=_positive,
        default=config.LEASE,
        help="with --elastic: seconds of silence after which a worker counts as gone; longer than an iteration of the "
        "slowest one (default: %(default)s)",
    )
    add("--redistribute", action="store_true", help="with --elastic: deal out the data of those who are gone")
    add("--round-timeout", type=_positive, default=config.ROUND_TIMEOUT, help="seconds (default: %(default)s)")
    return parser


def parse(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse and check what one flag alone cannot tell; a mistake ends the program with exit code 2."""
    typed = given(parser, arguments)
    options = parser.parse_args(arguments)
    for name, modes in MODES_OF.items():
        if name in typed and options.mode not in modes:
            flag = f"--{name.replace('_', '-')}"
            parser.error(f"{flag} makes no sense with --mode {options.mode}; it is for {' and '.join(modes)}")
    if options.mode == "sync-switch":
        try:
            schedule = switch_schedule(options)
        except ValueError as error:
            parser.error(str(error))
        if not schedule.train_steps and not options.epochs:
            parser.error("--mode sync-switch needs --train-steps, or --epochs of which --bsp-share is synchronous")
    if options.split_by_class and options.partition not in (None, "class"):
        parser.error(f"--split-by-class 1 and --partition {options.partition} contradict each other")
    if options.cpu and options.gpu is not None:
        parser.error(f"--cpu 1 and --gpu {options.gpu} contradict each other")
    if not options.use_dcasgd and typed & {"dcasgd_lambda", "dcasgd_adaptive"}:
        parser.error("--dcasgd-lambda and --dcasgd-adaptive need --use-dcasgd 1")
    if "local_iterations" in typed and typed & FOR_THE_STATE_SERVER:
        parser.error("--local-iterations fixes the number of local iterations; nobody asks a state server then")
    if options.no_evaluation and typed & {"target_accuracy", "eval_duration"}:
        parser.error("--no-evaluation contradicts --target-accuracy and --eval-duration")
    needless = typed & {"lease", "redistribute"}
    if needless and not options.elastic:
        parser.error(f"--{min(needless)} needs --elastic")
    needless = typed & {"checkpoint_every", "keep_checkpoints", "resume"}
    if needless and not options.checkpoint_dir:
        parser.error(f"--{min(needless).replace('_', '-')} needs --checkpoint-dir")
    if options.resume and options.overwrite:
        parser.error("--resume goes on with an earlier run, --overwrite deletes it")
    options.partition = options.partition or ("class" if options.split_by_class else config.PARTITION)
    return options


def given(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> set[str]:
    """The names of the flags that were really typed."""
    names = [action.dest for action in parser._actions]
    namespace = argparse.Namespace(**dict.fromkeys(names, argparse.SUPPRESS))
    parsed, _ = parser.parse_known_args(arguments, namespace)
    return {name for name, value in vars(parsed).items() if value is not argparse.SUPPRESS}
