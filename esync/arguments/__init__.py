"""The command line of a worker, which servers and schedulers understand too; every flag is checked here.

A group of flags is a module of this package with three things (see `modes.Group`): in which modes its flags make sense,
the flags, and what must fit together.
"""

import argparse
from collections.abc import Sequence

from .. import __version__
from ..files import expanded
from . import (
    checkpoints,
    cluster,
    collectives,
    compression,
    coordination,
    data,
    delay,
    device,
    logs,
    means,
    overlap,
    sparse,
    stragglers,
    switching,
    training,
)
from .coordination import FOR_THE_STATE_SERVER
from .modes import MEANS, MODES, NETWORKS, OWN_STATISTICS, SPARSE, UPDATES, Group
from .stragglers import watching
from .switching import switch_schedule
from .values import count

__all__ = [
    "FOR_THE_STATE_SERVER",
    "MEANS",
    "MODES",
    "MODES_OF",
    "NETWORKS",
    "OWN_STATISTICS",
    "SPARSE",
    "UPDATES",
    "build_parser",
    "count",
    "expand_paths",
    "given",
    "parse",
    "switch_schedule",
    "watching",
]

#: In the order of --help.
GROUPS: tuple[Group, ...] = (
    training,
    data,
    device,
    logs,
    checkpoints,
    coordination,
    means,
    overlap,
    delay,
    switching,
    stragglers,
    sparse,
    compression,
    collectives,
    cluster,
)
#: Flags that make sense in some modes only; given in another one they are an error.
MODES_OF: dict[str, tuple[str, ...]] = {name: modes for group in GROUPS for name, modes in group.MODES_OF.items()}


def build_parser(
    program: str, description: str, kind: type[argparse.ArgumentParser] = argparse.ArgumentParser
) -> argparse.ArgumentParser:
    """The parser, an object of class `kind`; defaults come from config.py."""
    parser = kind(
        prog=program, description=description, usage="%(prog)s [flags]   (--help lists them)", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    for group in GROUPS:
        group.add_to(parser)
    return parser


def parse(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse and check what one flag alone cannot tell; a mistake ends the program with exit code 2."""
    typed = given(parser, arguments)
    options = parser.parse_args(arguments)
    for name, modes in MODES_OF.items():
        if name in typed and options.mode not in modes:
            flag = f"--{name.replace('_', '-')}"
            parser.error(f"{flag} makes no sense with --mode {options.mode}; it is for {' and '.join(modes)}")
    try:
        for group in GROUPS:
            group.check(options, typed)
    except ValueError as error:
        parser.error(str(error))
    return options


def expand_paths(options: argparse.Namespace) -> None:
    """Replace `~` in the folders of these options by the home directory here, where they are used.

    `parse` leaves it: launch passes the flags on to other machines, where it means another folder. `data_dir` is looked
    up by `data.find_data_dir`, which does the same.

    Raises:
        NoHomeError: no such home directory is known.
    """
    for name in ("log_dir", "checkpoint_dir"):
        if getattr(options, name):
            setattr(options, name, str(expanded(getattr(options, name))))


def given(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> set[str]:
    """The names of the flags that were really typed."""
    names = [action.dest for action in parser._actions]
    namespace = argparse.Namespace(**dict.fromkeys(names, argparse.SUPPRESS))
    parsed, _ = parser.parse_known_args(arguments, namespace)
    return {name for name, value in vars(parsed).items() if value is not argparse.SUPPRESS}
