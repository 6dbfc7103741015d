"""Flags of the delay compensation of DC-ASGD."""

import argparse
from collections.abc import Mapping

from .. import config
from .values import not_negative

MODES_OF: Mapping[str, tuple[str, ...]] = {
    "use_dcasgd": ("async",),
    "dcasgd_lambda": ("async",),
    "dcasgd_adaptive": ("async",),
}


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    delay = parser.add_argument_group("delay compensation (mode async)")
    add = delay.add_argument
    add("-dcasgd", "--use-dcasgd", type=int, choices=(0, 1), default=0, help="1: DC-ASGD")
    add("--dcasgd-lambda", type=not_negative, default=config.DCASGD_LAMBDA, help="strength λ (default: %(default)s)")
    add("--dcasgd-adaptive", action="store_true", help="adaptive λ")


def check(options: argparse.Namespace, typed: set[str]) -> None:
    """Its settings need it."""
    if not options.use_dcasgd and typed & {"dcasgd_lambda", "dcasgd_adaptive"}:
        raise ValueError("--dcasgd-lambda and --dcasgd-adaptive need --use-dcasgd 1")
