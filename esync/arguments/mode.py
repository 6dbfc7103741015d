"""The mode, its flags, and the algorithm that they describe.

Flags are read in two steps: first the mode, then the options of its algorithm together with the
flags of all modes. So the algorithm determines a flag's default, check and help, and flags of other
modes are refused by name.
"""

import argparse
import enum
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

from .. import config
from ..algorithms import ALGORITHMS, Algorithm, find
from ..algorithms.loading import FORMS, entry_point_names
from ..algorithms.registry import all_flags, flags_of, names, options_of
from . import presets
from .flag_types import argparse_type

#: Destination of the published flag for DC-ASGD.
USE_DCASGD = "use_dcasgd"
#: Mode → the mode that it means together with that flag.
WITH_DCASGD = {"async": "dcasgd"}


def algorithm_of(mode: str, use_dcasgd: bool = False) -> type[Algorithm]:
    """Return the algorithm's class that a mode means, with or without `--use-dcasgd 1`.

    Raises:
        ValueError: there is no such mode.
    """
    return find(WITH_DCASGD.get(mode, mode) if use_dcasgd else mode)


def _mode(text: str) -> str:
    """Return the text if it is a mode.

    Raises:
        ValueError: there is no such mode.
    """
    find(text)
    return text


def parse_mode(kind: type[ArgumentParser], program: str, words: Sequence[str]) -> tuple[Namespace, bool]:
    """Return the mode on a command line, as options, and whether it was given there."""
    parser = kind(prog=program, usage=f"{program} [flags]   (--help lists them)", add_help=False, allow_abbrev=False)
    _add_mode(parser.add_argument, typed_only=True)
    for short in ("-d", "-dd"):  # argparse would take them for abbreviations of -dcasgd
        parser.add_argument(short, dest=argparse.SUPPRESS)
    options, _ = parser.parse_known_args(words)
    has_mode = hasattr(options, "mode")
    return Namespace(**{"mode": config.MODE, USE_DCASGD: 0, **vars(options)}), has_mode


def _add_mode(add: Callable[..., Any], typed_only: bool = False) -> None:
    add(
        "-m",
        "--mode",
        type=argparse_type(_mode),
        default=argparse.SUPPRESS if typed_only else config.MODE,
        metavar="MODE",
        help=f"algorithm: {', '.join([*ALGORITHMS, *entry_point_names()])}; or one of your own, as {FORMS} "
        f"(default: {config.MODE})",
    )
    add(
        "-dcasgd",
        "--use-dcasgd",
        type=int,
        choices=(0, 1),
        default=argparse.SUPPRESS if typed_only else 0,
        help=f"1: DC-ASGD, the same as --mode {WITH_DCASGD['async']} (mode async)",
    )


def add_to(parser: ArgumentParser, algorithm: type[Algorithm] | None) -> None:
    """Add the mode and its options.

    Args:
        parser: the parser to add them to.
        algorithm: the algorithm whose options to add; None stands for those of all modes, without
            defaults.
    """
    mode = parser.add_argument_group("algorithm")
    _add_mode(mode.add_argument)
    presets.add_to(mode.add_argument)
    if algorithm is not None:
        options = flags_of(algorithm).values()
        algorithm_flags = {flag for option in options for flag in option.flags}
        for option in options:
            option.add_to(mode.add_argument)
        for other in all_flags().values():
            if not algorithm_flags & set(other.flags):
                parser.add_argument(
                    *other.flags,
                    dest=other.dest,
                    action=FlagOfOtherModes,
                    default=argparse.SUPPRESS,
                    nargs="*",
                    help=argparse.SUPPRESS,
                )
        return
    groups = {name: parser.add_argument_group(f"mode {name}: {kind.label}") for name, kind in ALGORITHMS.items()}
    for dest, option in all_flags().items():
        users = modes_with(dest)
        option.add_to(groups[users[0]].add_argument, remark=_remark(dest, users))


def modes_with_dcasgd() -> tuple[str, ...]:
    """Return the modes with which `--use-dcasgd` makes sense."""
    return (*WITH_DCASGD, *WITH_DCASGD.values())


def modes_with(dest: str) -> tuple[str, ...]:
    """Return the modes that have a flag, given by its destination."""
    return names(lambda algorithm: dest in flags_of(algorithm))


def _remark(dest: str, users: Sequence[str]) -> str:
    """Return which modes a flag is for, and what its defaults are there."""
    by_default: dict[str, list[str]] = {}
    for name in users:
        if text := flags_of(ALGORITHMS[name])[dest].default_text:
            by_default.setdefault(text, []).append(name)
    if [list(users)] == list(by_default.values()):
        texts = [f"default: {next(iter(by_default))}"]
    else:
        texts = [f"default of {', '.join(modes)}: {text}" for text, modes in by_default.items()]
    modes = "" if len(users) == 1 else f"modes {', '.join(users)}"
    return "; ".join(filter(None, [modes, *texts]))


class FlagOfOtherModes(argparse.Action):
    """A flag that makes no sense in this mode."""

    def __call__(self, parser: ArgumentParser, namespace: Namespace, values: Any, flag: str | None = None) -> None:
        """Note that it was given, since the mode is only known at the end."""
        setattr(namespace, self.dest, values)


#: The learning rates; each mode has one of them.
RATES = ("--learning-rate", "--local-lr")


def refusal(flag: str, mode: str, modes: Sequence[str]) -> str:
    """Return a message that a flag makes no sense in a mode, and in which modes it does."""
    shown = [f"{name} (or async with --use-dcasgd 1)" if name in WITH_DCASGD.values() else name for name in modes]
    other = f", whose rate is {RATES[1 - RATES.index(flag)]}" if flag in RATES else ""
    return f"{flag} makes no sense with --mode {mode}{other}; it is for {', '.join(shown)}"


def check(options: Namespace, typed: Set[str], algorithm: type[Algorithm]) -> None:
    """Refuse flags of other modes, and flags of this one that contradict one another."""
    if USE_DCASGD in typed and options.mode not in modes_with_dcasgd():
        raise ValueError(refusal("--use-dcasgd", options.mode, tuple(WITH_DCASGD)))
    if USE_DCASGD in typed and options.mode not in WITH_DCASGD and not options.use_dcasgd:
        raise ValueError(f"--mode {options.mode} is DC-ASGD, --use-dcasgd 0 asks to do without: leave one of them out")
    algorithm_flags = flags_of(algorithm)
    for dest, option in all_flags().items():
        if dest in typed and dest not in algorithm_flags:
            raise ValueError(refusal(option.flag, options.mode, modes_with(dest)))
    algorithm.check_flags(options, typed)


def choose_algorithm(options: Namespace) -> Algorithm:
    """Make the algorithm that the flags describe.

    Raises:
        ValueError: the flags do not describe an algorithm.
    """
    shared = {
        "batch_size": options.batch_size,
        "job": options.job,
        "momentum": options.momentum,
        "state_server": state_server_of(options),
    }
    # Options that keep their defaults are left out, because to give one may mean more than its
    # value does, as with `run_ahead`. That is never so with a switch.
    settings: dict[str, Any] = {}
    for option in options_of(options.algorithm):
        if option.shared:
            if shared[option.shared] is not None:
                settings[option.name] = shared[option.shared]
        elif option.flags:
            value = getattr(options, option.dest)
            if option.switch or value != option.default or option.dest in options.typed:
                settings[option.name] = value
    return options.algorithm(**settings)


def state_server_of(options: Namespace) -> str | None:
    """Return the state server's address if the flags give it, otherwise None."""
    return f"{options.state_server_ip}:{options.state_server_port}" if options.state_server_ip else None


def effective(options: Namespace) -> Mapping[str, Any]:
    """Return the value of every flag, by its name with underscores, in a form for JSON."""
    hidden = {"algorithm", "typed"}
    values = {name: value for name, value in vars(options).items() if name not in hidden}
    return {name: value if _plain(value) else _text(value) for name, value in sorted(values.items())}


def _plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


def _text(value: Any) -> Any:
    return (
        [item if _plain(item) else typed_text(item) for item in value]
        if isinstance(value, list | tuple)
        else typed_text(value)
    )


def typed_text(value: Any) -> str:
    """Return a value as it is typed after a flag."""
    return str(value.value if isinstance(value, enum.Enum) else value)
