"""Types for argparse: what one flag may be, checked by itself."""

import argparse
import math
import re
import sys
from collections.abc import Callable
from typing import Any

#: What a training may be called on the state server.
JOB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def number(
    kind: Callable[[str], Any], least: float, expected: str, above: bool = False, most: float = sys.float_info.max
) -> Callable[[str], Any]:
    """Make a type for numbers from (or above) `least` to `most`; `expected` completes the error message."""

    def parse(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not (value > least if above else value >= least) or value > most:
            raise argparse.ArgumentTypeError(f"{text!r} should be {expected}")
        return value

    return parse


def checked(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Make a type for argparse of a function that raises ValueError; its message is kept."""

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
port = number(int, 1, "a port, 1 to 65535", most=65535)
accuracy = number(float, 0, "an accuracy above 0, at most 1", above=True, most=1)


def job(text: str) -> str:
    """Return the text itself where it can be the name of a training."""
    if not JOB_NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} should be a name of letters, digits, '.', '_' and '-'")
    return text
