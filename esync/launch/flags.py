"""The worker's flags as settings, name → value: checked by the worker's own parser, the only place that knows them.

Settings come from the section `train` of a description and from launch's command line, where they are worth more.
"""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from .. import arguments, config
from .yaml_text import shown

Settings = dict[str, Any]

#: Flags that launch gives each worker by itself, and what says it instead.
CHOSEN_BY_LAUNCH = {
    "cpu": "the device of each worker",
    "gpu": "the device of each worker",
    "state_server_ip": "the section state_server",
    "state_server_port": "the section state_server",
    "straggle": "the field straggle of each worker",
}

#: A flag on the command line, and those of the description that would contradict it.
REPLACES = {
    "partition": {"split_by_class"},
    "split_by_class": {"partition"},
    "local_iterations": arguments.FOR_THE_STATE_SERVER,
    "no_evaluation": {"target_accuracy", "eval_duration", "test_images"},
    "resume": {"overwrite"},
    "overwrite": {"resume"},
}


class FlagError(ValueError):
    """The worker would not accept this; the message says why."""


class _Parser(argparse.ArgumentParser):
    """Raises instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        raise FlagError(message)


_PARSER = arguments.build_parser("python -m esync.worker", "", _Parser)

#: Every flag by its long name with underscores → its default.
DEFAULTS: Settings = vars(_PARSER.parse_args([]))


#: Flags that take several values.
LISTS = {action.dest for action in _PARSER._actions if action.nargs == "+"}


def flag(name: str) -> str:
    """As it stands on a command line."""
    return f"--{name.replace('_', '-')}"


def check(name: str, value: object) -> Any:
    """The value as the worker will understand it.

    Raises:
        FlagError: the worker would refuse it, or launch sets it by itself.
    """
    if name in CHOSEN_BY_LAUNCH:
        raise FlagError(f"launch chooses it by itself: {CHOSEN_BY_LAUNCH[name]} says it")
    if isinstance(DEFAULTS[name], bool):
        if not isinstance(value, bool):
            raise FlagError(f"{shown(value)} should be true or false")
        return value
    values = value if name in LISTS and isinstance(value, list) else [value]
    if not values or not all(isinstance(each, str | int | float) for each in values):
        raise FlagError(f"expected {'a list of values' if name in LISTS else 'one value'}, not {shown(value)}")
    words = [f"{flag(name)}={value}"] if name not in LISTS else [flag(name), *map(str, values)]
    try:
        return getattr(_PARSER.parse_args(words), name)
    except FlagError as error:
        _, _, reason = str(error).partition(": ")  # in front of it stands the flag, which the caller names
        raise FlagError(reason or str(error)) from None


def merge(described: Mapping[str, Any], typed: Mapping[str, Any]) -> Settings:
    """What is to be passed on: what was typed, and of the description whatever does not contradict it.

    A description may hold settings of several modes; those of other modes than the one that is run are left out. What
    was typed is kept as it is, so that the worker's parser refuses what makes no sense.
    """
    for name in typed:
        if name in CHOSEN_BY_LAUNCH:
            raise FlagError(f"{flag(name)}: launch chooses it by itself: {CHOSEN_BY_LAUNCH[name]} says it")
    replaced = set().union(*(REPLACES.get(name, set()) for name in typed))
    settings = {name: value for name, value in described.items() if name not in replaced} | dict(typed)
    mode = settings.get("mode", config.MODE)
    other = {name for name, modes in arguments.MODES_OF.items() if mode not in modes}
    if not settings.get("use_dcasgd"):
        other |= arguments.delay.SETTINGS
    return {name: value for name, value in settings.items() if name in typed or name not in other}


def to_arguments(settings: Mapping[str, Any]) -> list[str]:
    """The command line; None and False stand for a flag that is not given."""
    words = []
    for name, value in settings.items():
        if value is True:
            words.append(flag(name))
        elif name in LISTS and value:
            words += [flag(name), *map(str, value)]
        elif name == "lr_decay":  # a tuple of pairs, as the parser has read it
            words += [flag(name), ",".join(f"{share:g}:{factor:g}" for share, factor in value)] if value else []
        elif value is not None and value is not False:
            words += [flag(name), str(value)]
    return words


def parse(words: Sequence[str]) -> argparse.Namespace:
    """What the worker will make of a command line.

    Raises:
        FlagError: it would refuse it.
    """
    return arguments.parse(_PARSER, words)
