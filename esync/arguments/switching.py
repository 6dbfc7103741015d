"""Flags of Sync-Switch: when it switches, and what each segment trains with."""

import argparse
from collections.abc import Mapping

from .. import config
from ..algorithms.switch_schedule import HYPER_PARAMETERS, Schedule, parse_decay
from .values import checked, count, share

MODES_OF: Mapping[str, tuple[str, ...]] = {
    "switch_order": ("sync-switch",),
    "train_steps": ("sync-switch",),
    "bsp_share": ("sync-switch",),
    "ckpt_frequency": ("sync-switch",),
    "hparams": ("sync-switch",),
    "lr_decay": ("sync-switch",),
}


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    switching = parser.add_argument_group(
        "switching (mode sync-switch)",
        "Lists have one entry for each segment of --switch-order. A global step is one batch of every worker in "
        "synchronous training, one batch of one worker in asynchronous training.",
    )
    add = switching.add_argument
    add(
        "--switch-order",
        default=config.SWITCH_ORDER,
        help="of the segments, 1 is synchronous, 0 asynchronous: 10, 101, … (default: %(default)s)",
    )
    add("--train-steps", type=count, nargs="+", metavar="STEP", help="global step at which each segment ends")
    add(
        "--bsp-share",
        type=share,
        help=f"instead of --train-steps: synchronous share of --epochs, 0 to 1 (default: {config.BSP_SHARE})",
    )
    add("--ckpt-frequency", type=count, nargs="+", metavar="STEPS", help="evaluate every that many global steps")
    add(
        "--hparams",
        nargs="+",
        metavar="NAME=NUMBER",
        help=f"of each segment, joined by commas, from {', '.join(HYPER_PARAMETERS)}; - for none; the learning rate "
        "is a worker's own, and multiplies the gradient summed over its batch",
    )
    add(
        "--lr-decay",
        type=checked(parse_decay),
        metavar="SHARE:FACTOR",
        default=(),
        help="learning rate by the share of all samples that has been used: 0.5:0.1,0.75:0.01 (default: it stays)",
    )


def check(options: argparse.Namespace, typed: set[str]) -> None:
    """The lists fit each other, and something says when to switch."""
    if options.mode != "sync-switch":
        return
    if not switch_schedule(options).train_steps and not options.epochs:
        raise ValueError("--mode sync-switch needs --train-steps, or --epochs of which --bsp-share is synchronous")


def switch_schedule(options: argparse.Namespace) -> Schedule:
    """The schedule that the flags of mode sync-switch describe; ValueError where they do not fit each other."""
    return Schedule(
        options.switch_order,
        tuple(options.train_steps or ()),
        options.bsp_share,
        tuple(options.ckpt_frequency or ()),
        tuple(options.hparams or ()),
    )
