"""Flags of the device that a worker computes on."""

import argparse
from collections.abc import Mapping

from .. import config
from .values import index, positive

MODES_OF: Mapping[str, tuple[str, ...]] = {}


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    device = parser.add_argument_group("device")
    add = device.add_argument
    add("-g", "--gpu", type=index, help=f"id of the GPU (default: {config.DEFAULT_GPU_ID}, or the CPU without a GPU)")
    add("-c", "--cpu", type=int, choices=(0, 1), default=config.USE_CPU, help="1: use the CPU")
    add("--step-time", type=positive, help="seconds: make every iteration last that long, to stand for a slower device")


def check(options: argparse.Namespace, typed: set[str]) -> None:
    """A GPU or the processor, not both."""
    if options.cpu and options.gpu is not None:
        raise ValueError(f"--cpu 1 and --gpu {options.gpu} contradict each other")
