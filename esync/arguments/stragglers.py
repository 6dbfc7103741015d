"""Flags of stragglers: when this worker is one on purpose."""

import argparse
from collections.abc import Mapping

from ..straggle import parse_spell
from .values import checked

MODES_OF: Mapping[str, tuple[str, ...]] = {}


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    stragglers = parser.add_argument_group("stragglers")
    add = stragglers.add_argument
    add(
        "--straggle",
        type=checked(parse_spell),
        nargs="+",
        default=(),
        metavar="KIND:DELAY@AT+LASTING",
        help="be a straggler on purpose: from second AT of the run on, for LASTING seconds, every iteration (compute) "
        "or every message to a parameter server (network) takes DELAY seconds longer",
    )


def check(options: argparse.Namespace, typed: set[str]) -> None:
    """Nothing that one flag alone cannot tell."""
