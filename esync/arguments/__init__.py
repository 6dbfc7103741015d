"""The command line of a worker, which servers and schedulers understand as well.

`mode` reads the mode and the options of its algorithm. The flags that all modes have are groups
(`flag_types.FlagGroup`) in `training`, `outputs` and `cluster`; every flag is checked here. May
import `algorithms`, `config`, `data`, `exchange` and `models` (names only), `runtime` and
`version`.
"""

import argparse
import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence

from ..algorithms import Algorithm
from ..algorithms.registry import names, options_of
from ..runtime.errors import ExpectedError, suggestion
from ..runtime.files import expanded
from ..runtime.worker_environment import WorkerEnvironment
from ..version import __version__
from . import mode, presets
from .cluster import CLUSTER, COLLECTIVE, STATE_SERVER
from .environment import defaults_of
from .flag_types import count
from .mode import algorithm_of, choose_algorithm, effective, modes_with, state_server_of
from .outputs import CHECKPOINTS, LOGS
from .training import DATA, DEVICE, TRAINING, resolve_momentum

__all__ = [
    "algorithm_of",
    "build_parser",
    "choose_algorithm",
    "count",
    "effective",
    "expand_paths",
    "modes_of",
    "modes_with",
    "parse",
    "parse_args",
    "read",
    "reporting_conflicts",
    "state_server_of",
    "typed_flags",
]


#: The groups of flags in the order of --help.
GROUPS = (TRAINING, DATA, DEVICE, LOGS, CHECKPOINTS, STATE_SERVER, COLLECTIVE, CLUSTER)


def modes_of(name: str) -> tuple[str, ...] | None:
    """Return the modes in which a flag, given by its destination, makes sense.

    None stands for all modes.
    """
    if name == mode.USE_DCASGD:
        return mode.modes_with_dcasgd()
    for group in GROUPS:
        if name in group.conditions:
            return names(group.conditions[name])
    return modes_with(name) or None


def build_parser(
    program: str,
    description: str,
    words: Sequence[str] | None = None,
    kind: type[argparse.ArgumentParser] = argparse.ArgumentParser,
) -> argparse.ArgumentParser:
    """Return the worker's parser, whose defaults come from config.py.

    Args:
        program: the program's name.
        description: the program's description in --help.
        words: the command line, whose mode determines the flags. None stands for the flags of all
            modes, without defaults.
        kind: class of the parser.
    """
    parser = kind(
        prog=program,
        description=description,
        usage="%(prog)s [flags]   (--help lists them; with --mode MODE those of one mode)",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    algorithm = None
    if words is not None:
        chosen, typed = mode.parse_mode(kind, program, words)
        if typed or not {"-h", "--help"} & set(words):
            algorithm = algorithm_of(chosen.mode, bool(chosen.use_dcasgd))
    with reporting_conflicts(parser, algorithm):
        mode.add_to(parser, algorithm)
    with reporting_conflicts(parser, algorithm):
        for group in GROUPS:
            group.add_to(parser)
    if algorithm is not None:
        names_of_all = {action.dest for action in parser._actions if not isinstance(action, mode.FlagOfOtherModes)}
        hidden = [option.name for option in options_of(algorithm) if not option.flags and not option.shared]
        for name in names_of_all.intersection(hidden):  # run.json tells both by their names
            parser.error(
                f"{algorithm.__qualname__} has an option {name!r} for Python alone, and there is a flag of all modes "
                "of that name; give it another name"
            )
    return parser


@contextlib.contextmanager
def reporting_conflicts(parser: argparse.ArgumentParser, algorithm: type[Algorithm] | None = None) -> Iterator[None]:
    """Report it as an error if flags added in the `with` block conflict with an algorithm's.

    Args:
        parser: the parser to which the block adds flags.
        algorithm: the algorithm whose options the parser has; None stands for all algorithms.
    """
    before = list(parser._actions)
    reserved = {"algorithm", "typed", *(action.dest for action in before)}
    try:
        yield
        for action in parser._actions[len(before) :]:
            if action.dest in reserved:
                raise argparse.ArgumentError(action, "that name is used already")
    except argparse.ArgumentError as error:
        owner = f"{algorithm.__module__}.{algorithm.__qualname__}" if algorithm is not None else "an algorithm"
        parser.error(f"an option of {owner} has a flag that {parser.prog} has itself: {error}; give it another flag")


def parse_args(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse a command line as the parser does, and suggest flags in the place of unknown ones."""
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        hints = (suggestion(word.partition("=")[0], parser._option_string_actions, limit=1) for word in unknown)
        words = [f"{word}{hint}" for word, hint in zip(unknown, hints, strict=True)]
        parser.error(f"unrecognized arguments: {' '.join(words)}")
    return options


def parse(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse a command line, and check its flags together.

    A mistake ends the program with exit code 2.

    Beside the flags' values, the result has the class of the `algorithm` and the names of the flags
    that were `typed`.
    """
    typed = typed_flags(parser, arguments)
    options = parse_args(parser, arguments)
    options.algorithm = algorithm_of(options.mode, bool(options.use_dcasgd))
    options.typed = frozenset(typed)
    resolve_momentum(options)
    try:
        mode.check(options, typed, options.algorithm)
        for group in GROUPS:
            for name, suits in group.conditions.items():
                if name in typed and not suits(options.algorithm):
                    raise ValueError(mode.refusal(f"--{name.replace('_', '-')}", options.mode, names(suits)))
        choose_algorithm(options)
        for group in GROUPS:
            group.check(options, typed)
    except ValueError as error:
        parser.error(f"{error}{presets.remark(options.preset)}")
    return options


def read(
    program: str,
    description: str,
    words: Sequence[str] | None = None,
    kind: type[argparse.ArgumentParser] = argparse.ArgumentParser,
    environment: Mapping[str, str] | None = None,
) -> argparse.Namespace:
    """Parse and check a command line, by default that of the process.

    See `build_parser` and `parse`. The ESYNC_* variables of `environment` are the defaults of the
    flags that mean the same.
    """
    typed = presets.expanded(sys.argv[1:] if words is None else words, kind, program)
    parser = build_parser(program, description, typed, kind)
    try:
        parser.set_defaults(**defaults_of(WorkerEnvironment.read(environment or {})))
    except ExpectedError as error:
        parser.error(str(error))
    return parse(parser, typed)


def expand_paths(options: argparse.Namespace) -> None:
    """Replace `~` in the folders of these options by this machine's home directory.

    `parse` does not, because launch passes the flags on to other machines, where it means another
    folder. For `data_dir`, `data.find_data_dir` does it.

    Raises:
        NoHomeError: there is no such home directory.
    """
    for name in ("log_dir", "checkpoint_dir", "tensorboard"):
        if getattr(options, name):
            setattr(options, name, str(expanded(getattr(options, name))))


def typed_flags(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> set[str]:
    """Return the destinations of the flags that are on the command line."""
    # A flag whose default is suppressed has no value unless it is typed; a list is appended to.
    names = [action.dest for action in parser._actions if action.default not in (argparse.SUPPRESS, [])]
    namespace = argparse.Namespace(**dict.fromkeys(names, argparse.SUPPRESS))
    parsed, _ = parser.parse_known_args(arguments, namespace)
    return {name for name, value in vars(parsed).items() if value is not argparse.SUPPRESS}
