"""Worker flags as settings (name → value), checked by the worker's own parser.

Settings come from the `train` section of a description and from launch's command line, which
overrides it.
"""

import argparse
import contextlib
import functools
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NoReturn

from .. import arguments, config
from ..algorithms import ALGORITHMS, Algorithm
from ..algorithms.registry import flags_of
from ..arguments import presets
from ..arguments.mode import USE_DCASGD, WITH_DCASGD, parse_mode, typed_text
from ..runtime.errors import ExpectedError
from ..runtime.files import expanded
from .yaml_text import DescriptionError, load, shown

Settings = dict[str, Any]

#: Flags that launch sets for each worker → the part of the description that decides them.
CHOSEN_BY_LAUNCH = {
    "cpu": "the device of each worker",
    "gpu": "the device of each worker",
    "state_server_ip": "the section state_server",
    "state_server_port": "the section state_server",
    "straggle": "the field straggle of each worker",
}

#: Flag on the command line → the flags of the description that it overrides.
REPLACES = {
    "partition": {"split_by_class"},
    "split_by_class": {"partition"},
    "no_evaluation": {"target_accuracy", "eval_duration", "test_images"},
    "resume": {"overwrite"},
    "overwrite": {"resume"},
}
PROGRAM = "python -m esync.worker"


class FlagError(ValueError):
    """Raised when the worker would not accept a flag; the message says why."""


class TypedFlagError(DescriptionError):
    """Raised when the worker would not accept a flag of the command line; the description is not at fault."""


def refusal(error: FlagError, typed: Collection[str]) -> DescriptionError:
    """Return the error of settings that the worker would refuse: of a typed flag, if it names one."""
    mentioned = {word.replace("-", "_") for word in re.findall(r"--([a-z][a-z0-9-]*)", str(error))}
    return DescriptionError(f"train: {error}") if mentioned.isdisjoint(typed) else TypedFlagError(str(error))


class _Parser(argparse.ArgumentParser):
    """A parser that raises FlagError instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        raise FlagError(message)


@functools.lru_cache(maxsize=8)
def _parser_of(modes: tuple[str, ...]) -> tuple[argparse.ArgumentParser, Mapping[str, argparse.Action]]:
    """Return a parser of the flags of all modes, and those flags by their destinations.

    `modes` are the registered ones: the cached parser is of no use once another is registered.
    """
    parser = arguments.build_parser(PROGRAM, "", None, _Parser)
    return parser, {
        action.dest: action for action in parser._actions if action.dest not in ("help", "version", argparse.SUPPRESS)
    }


def parser_of_all(program: str, description: str, words: Sequence[str]) -> argparse.ArgumentParser:
    """Return a parser of the flags of all modes, including a chosen mode from another package.

    Args:
        program: the program's name, for its help text.
        description: what the program does, for its help text.
        words: the command line. Where it names no mode, the cluster's description does.
    """
    with contextlib.suppress(FlagError, ExpectedError):  # reported later, when the words are parsed or the file is read
        _, typed = parse_mode(_Parser, program, words)
        if not typed:
            for word in words:
                if word.endswith((".yaml", ".yml")):
                    content, _ = load(expanded(word))
                    train = content.get("train") if isinstance(content, dict) else None
                    algorithm_of(train if isinstance(train, dict) else {})
    return arguments.build_parser(program, description)


def all_flags() -> Mapping[str, argparse.Action]:
    """Return every flag of all modes known so far, by its long name with underscores."""
    return _parser_of(tuple(ALGORITHMS))[1]


def is_switch(name: str) -> bool:
    """Return whether a flag takes no value."""
    return all_flags()[name].nargs == 0


def takes_several(name: str) -> bool:
    """Return whether a flag takes several values."""
    return all_flags()[name].nargs == "+"


def flag(name: str) -> str:
    """Return a flag as it is written on a command line."""
    return f"--{name.replace('_', '-')}"


def check(name: str, value: object) -> Any:
    """Return the value of a flag as the worker's parser reads it.

    Raises:
        FlagError: the worker would refuse the value, or launch sets the flag itself.
    """
    if name in CHOSEN_BY_LAUNCH:
        raise FlagError(f"launch chooses it by itself: {CHOSEN_BY_LAUNCH[name]} says it")
    if is_switch(name):
        if not isinstance(value, bool):
            raise FlagError(f"{shown(value)} should be true or false")
        return value
    several = takes_several(name)
    values = value if several and isinstance(value, list) else [value]
    if not values or not all(isinstance(element, str | int | float) for element in values):
        raise FlagError(f"expected {'a list of values' if several else 'one value'}, not {shown(value)}")
    words = [flag(name), *map(str, values)] if several else [f"{flag(name)}={value}"]
    try:
        return getattr(_parser_of(tuple(ALGORITHMS))[0].parse_args(words), name)
    except FlagError as error:
        _, _, reason = str(error).partition(": ")  # the caller names the flag, which comes first
        raise FlagError(reason or str(error)) from None


def merge(described: Mapping[str, Any], typed: Mapping[str, Any]) -> Settings:
    """Return the settings of a job: the typed flags, and the description's flags that fit them.

    A description may hold settings for several modes; those that do not apply to the chosen mode are
    dropped. Typed flags are all kept, so that the worker's parser can refuse invalid ones. The flags
    of a preset have a lower priority than the others of the same source. The preset of a description
    is dropped if the mode is not the preset's.
    """
    for name in typed:
        if name in CHOSEN_BY_LAUNCH:
            raise FlagError(f"{flag(name)}: launch chooses it by itself: {CHOSEN_BY_LAUNCH[name]} says it")
    preset = {} if "preset" in typed else presets.settings_of(described.get("preset"))
    if preset and {**preset, **described, **typed}["mode"] != preset["mode"]:
        described, preset = {name: value for name, value in described.items() if name != "preset"}, {}
    described, typed = {**preset, **described}, {**presets.settings_of(typed.get("preset")), **typed}
    replaced = set().union(*(REPLACES.get(name, set()) for name in typed))
    settings = {name: value for name, value in described.items() if name not in replaced} | dict(typed)
    algorithm = algorithm_of(settings)
    replaced = set().union(*(excluded for name, (excluded, _) in algorithm.excludes.items() if name in typed))
    if "mode" in typed and typed["mode"] not in WITH_DCASGD:
        replaced.add(USE_DCASGD)  # it applies to the description's mode only
    return {
        name: value
        for name, value in settings.items()
        if name in typed or (name not in replaced and _suits(name, algorithm))
    }


def rate_remark(described: Mapping[str, Any], options: argparse.Namespace) -> str:
    """Return a remark if a mode does not use the only learning rate that is given, or ""."""
    used, other = (
        ("local_lr", "learning_rate") if _suits("local_lr", options.algorithm) else ("learning_rate", "local_lr")
    )
    if other not in described or used in options.typed:
        return ""
    return f"mode {options.algorithm.name} does not use the description's {other}: {used} is {getattr(options, used):g}"


def algorithm_of(settings: Mapping[str, Any]) -> type[Algorithm]:
    """Return the class of the algorithm that the settings choose.

    Raises:
        FlagError: the mode does not exist.
    """
    try:
        return arguments.algorithm_of(settings.get("mode", config.MODE), bool(settings.get("use_dcasgd")))
    except ValueError as error:
        raise FlagError(f"mode: {error}") from None


def _suits(name: str, algorithm: type[Algorithm]) -> bool:
    """Return whether a flag makes sense with an algorithm."""
    modes = arguments.modes_of(name)
    return modes is None or algorithm.name in modes


def to_arguments(settings: Mapping[str, Any]) -> list[str]:
    """Return settings as words of a command line.

    None means that the flag is not given. False turns a switch of the algorithm off by its `--no-`
    form; for any other switch it means that the flag is not given.
    """
    algorithm_flags = flags_of(algorithm_of(settings))
    words = []
    for name, value in settings.items():
        if is_switch(name):
            if value:
                words.append(flag(name))
            elif value is False and name in algorithm_flags:
                words.append(flag(f"no_{name}"))
        elif takes_several(name):
            words += [flag(name), *map(typed_text, value)] if value else []
        elif value is not None:
            text = typed_text(value)
            words += [f"{flag(name)}={text}"] if text.startswith("-") else [flag(name), text]
    return words


def understood(settings: Mapping[str, Any]) -> argparse.Namespace:
    """Return the options that a worker reads from settings.

    Raises:
        FlagError: the worker would refuse them, or read back a different value.
    """
    options = parse(to_arguments(settings))
    for name, option in flags_of(options.algorithm).items():
        if name in settings and getattr(options, name) != settings[name]:
            raise FlagError(
                f"{option.flag}: a worker is told {typed_text(settings[name])!r}, and would understand "
                f"{shown(getattr(options, name))} instead of {shown(settings[name])}: its type should read "
                "the text of each of its values as that value"
            )
    return options


def check_workers(options: argparse.Namespace, workers: int) -> None:
    """Raise FlagError if the options of a job's algorithm do not fit its number of workers."""
    try:
        arguments.choose_algorithm(options).check_workers(workers)
    except ValueError as error:
        raise FlagError(str(error)) from None


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Return the options that a worker reads from a command line.

    Raises:
        FlagError: the worker would refuse it.
    """
    return arguments.read(PROGRAM, "", words, _Parser)
