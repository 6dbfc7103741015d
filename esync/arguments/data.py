"""Flags of the data: which, from where, and who trains on what."""

import argparse
from collections.abc import Mapping, Set

from .. import config
from ..data.partitions import GRAMMAR, parse_partition
from ..data.registry import REGISTRY
from .mode import Condition
from .values import checked

CONDITIONS: Mapping[str, Condition] = {}


def partition(text: str) -> str:
    """Return the text itself where it is a partition; ValueError otherwise."""
    parse_partition(text)
    return text


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    data = parser.add_argument_group("data")
    add = data.add_argument
    add("-d", "--dataset", choices=sorted(REGISTRY), default=config.DATASET, help="data set (default: %(default)s)")
    add(
        "-dd",
        "--data-dir",
        help=f"folder that holds the data set's folder (default: the first that does: {', '.join(config.DATA_DIRS)})",
    )
    add("--partition", type=checked(partition), help=f"who trains on what: {GRAMMAR} (default: {config.PARTITION})")
    add("-s", "--split-by-class", type=int, choices=(0, 1), default=0, help="1: the same as --partition class")


def check(options: argparse.Namespace, typed: Set[str]) -> None:
    """Refuse a contradiction between the two flags for partitions; afterwards `partition` alone counts."""
    if options.split_by_class and options.partition not in (None, "class"):
        raise ValueError(f"--split-by-class 1 and --partition {options.partition} contradict each other")
    options.partition = options.partition or ("class" if options.split_by_class else config.PARTITION)
