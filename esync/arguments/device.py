"""Flags of the device that a worker computes on."""

import argparse
from collections.abc import Mapping, Set

from .. import config
from ..runtime.straggler_injection import NETWORK, parse_spell
from .mode import Condition
from .values import checked, index, positive

CONDITIONS: Mapping[str, Condition] = {}


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    device = parser.add_argument_group("device")
    add = device.add_argument
    add("-g", "--gpu", type=index, help=f"id of the GPU (default: {config.DEFAULT_GPU_ID}, or the CPU without a GPU)")
    add("-c", "--cpu", type=int, choices=(0, 1), default=config.USE_CPU, help="1: use the CPU")
    add("--step-time", type=positive, help="seconds: make every iteration last that long, to stand for a slower device")
    add(
        "--straggle",
        type=checked(parse_spell),
        nargs="+",
        default=(),
        metavar="KIND:DELAY@AT+LASTING",
        help="be a straggler on purpose: from second AT of the run on, for LASTING seconds, every iteration (compute) "
        "or every message to a parameter server (network) takes DELAY seconds longer",
    )


def check(options: argparse.Namespace, typed: Set[str]) -> None:
    """Refuse a GPU beside the CPU, and delays of messages to parameter servers where there are none."""
    if options.cpu and options.gpu is not None:
        raise ValueError(f"--cpu 1 and --gpu {options.gpu} contradict each other")
    if options.collective != "ps" and any(spell.kind == NETWORK for spell in options.straggle):
        raise ValueError(f"--straggle {NETWORK}: delays messages to parameter servers; --collective ps has those")
