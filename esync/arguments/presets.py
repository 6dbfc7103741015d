"""Presets: sets of flags under one name, which `--preset` stands for.

A preset is what the flags would be if they were typed in front of all others, so that any of them
can be overridden. `coordination.automatic_settings` says where the automatic choices come from.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .. import config


@dataclass(frozen=True)
class Preset:
    """A set of flags.

    Attributes:
        purpose: what it is for, as part of a sentence.
        settings: name of each flag, with underscores → its value; True stands for a switch.
        batch_by_speed: whether batches follow the devices' speeds, unless the description says otherwise.
    """

    purpose: str
    settings: Mapping[str, Any]
    batch_by_speed: bool = False

    @property
    def words(self) -> list[str]:
        """The flags as words of a command line."""
        words: list[str] = []
        for name, value in self.settings.items():
            flag = f"--{name.replace('_', '-')}"
            words += [flag] if value is True else [flag, str(value)]
        return words


_MEASURED: Mapping[str, Any] = {
    "mode": "tiered",
    "slowest_iterations": "auto",
    "compression": "auto",
    "overlap": True,
}
PRESETS: Mapping[str, Preset] = {
    "fast": Preset(
        "least time to an accuracy on unequal devices: measured times decide who exchanges, when, and how",
        {**_MEASURED, "momentum": "auto", "weight_average": "polynomial"},
    ),
    "skewed-data": Preset(
        "data that differ from worker to worker, as classes or users do, and stay where they are",
        {
            "mode": "esync",
            "decay_iterations": config.ROUND_ITERATIONS,
            "compression": "auto",
            "weight_average": "polynomial",
            "normalization": "auto",
        },
        batch_by_speed=True,
    ),
    "skewed-data-shared": Preset(
        "the same, where the data of devices that are too slow may be dealt to the others",
        {**_MEASURED, "normalization": "auto"},
    ),
}


def add_to(add: Any) -> None:
    """Add the flag to an argument group, given its `add_argument`."""
    meanings = "; ".join(f"{name} ({preset.purpose}): {' '.join(preset.words)}" for name, preset in PRESETS.items())
    add(
        "--preset",
        choices=tuple(PRESETS),
        help=f"begin with a set of flags, each of which can still be given: {meanings}",
    )


def expanded(words: Sequence[str], kind: type[argparse.ArgumentParser], program: str) -> list[str]:
    """Return a command line with the flags of its preset in front, if it names one."""
    parser = kind(prog=program, add_help=False, allow_abbrev=False)
    add_to(parser.add_argument)
    options, _ = parser.parse_known_args(words)
    return [*(PRESETS[options.preset].words if options.preset else ()), *words]


def settings_of(name: Any) -> Mapping[str, Any]:
    """Return the flags that a preset stands for, by their names with underscores.

    There are none where there is no such preset, which the parser then says.
    """
    return PRESETS[name].settings if isinstance(name, str) and name in PRESETS else {}


def remark(name: str | None) -> str:
    """Return what a preset stands for, as the end of an error message; "" where none was given."""
    return f" (--preset {name} stands for {' '.join(PRESETS[name].words)})" if name else ""
