"""Flags of the delay compensation of DC-ASGD."""

import argparse
from collections.abc import Mapping

from .. import config
from .values import not_negative

MODES_OF: Mapping[str, tuple[str, ...]] = {
    "use_dcasgd": ("async",),
    "dcasgd_lambda": ("async",),
    "dcasgd_adaptive": ("async",),
    "dcasgd_lambda_on": ("async",),
}

#: Settings of the compensation, which mean nothing without it.
SETTINGS = frozenset(MODES_OF) - {"use_dcasgd"}


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    delay = parser.add_argument_group("delay compensation (mode async)")
    add = delay.add_argument
    add("-dcasgd", "--use-dcasgd", type=int, choices=(0, 1), default=0, help="1: DC-ASGD")
    add("--dcasgd-lambda", type=not_negative, default=config.DCASGD_LAMBDA, help="strength λ (default: %(default)s)")
    add("--dcasgd-adaptive", action="store_true", help="adaptive λ")
    add(
        "--dcasgd-lambda-on",
        choices=config.DCASGD_LAMBDA_ONS,
        default=config.DCASGD_LAMBDA_ON,
        help="gradient that λ is relative to: the mean of a batch, as in DC-ASGD's paper, or the sum over it, as in "
        "the public implementation of ESync, where λ acts batch size times as strongly (default: %(default)s)",
    )


def check(options: argparse.Namespace, typed: set[str]) -> None:
    """Its settings need it."""
    if not options.use_dcasgd and typed & SETTINGS:
        raise ValueError("--dcasgd-lambda, --dcasgd-adaptive and --dcasgd-lambda-on need --use-dcasgd 1")
