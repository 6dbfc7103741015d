"""Building blocks of groups of flags: `FlagGroup`, and types that check single values."""

import argparse
import math
import sys
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from ..algorithms import Algorithm
from ..runtime.worker_environment import JOB

Condition = Callable[[type[Algorithm]], Any]


def _no_check(options: argparse.Namespace, typed: Set[str]) -> None:
    """Do nothing: no flag depends on another one."""


@dataclass(frozen=True)
class FlagGroup:
    """A group of flags that all modes have.

    Attributes:
        add_to: adds the flags to a parser.
        check: called with the options and the destinations of the flags that were typed; raises
            ValueError if flags contradict one another.
        conditions: for each flag that makes sense with some algorithms only, by its destination, a
            function of the algorithm's class that returns whether it does.
    """

    add_to: Callable[[argparse.ArgumentParser], None]
    check: Callable[[argparse.Namespace, Set[str]], None] = _no_check
    conditions: Mapping[str, Condition] = field(default_factory=dict)


def number(
    kind: Callable[[str], Any], minimum: float, expected: str, above: bool = False, maximum: float = sys.float_info.max
) -> Callable[[str], Any]:
    """Return a type for argparse: numbers from (or above) `minimum` to `maximum`.

    `expected` completes the error message.
    """

    def parse(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not (value > minimum if above else value >= minimum) or value > maximum:
            raise argparse.ArgumentTypeError(f"{text!r} should be {expected}")
        return value

    return parse


def argparse_type(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a type for argparse, made of a function whose ValueError has the error message."""

    def convert(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


positive = number(float, 0, "a number above 0", above=True)
not_negative = number(float, 0, "a number of 0 or more")
count = number(int, 1, "a whole number of 1 or more")
index = number(int, 0, "a whole number of 0 or more")
port = number(int, 1, "a port, 1 to 65535", maximum=65535)
accuracy = number(float, 0, "an accuracy above 0, at most 1", above=True, maximum=1)


def nonempty(text: str) -> str:
    """Return the text if it is not empty, as that of an unset variable of a shell is.

    Raises:
        ArgumentTypeError: it is.
    """
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty; leave the flag out for none")
    return text


def job(text: str) -> str:
    """Return the text if it can be the name of a training.

    Raises:
        ArgumentTypeError: it cannot.
    """
    if not JOB.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} should be a name of letters, digits, '.', '_' and '-'")
    return text
