"""Find the devices of a mode and their round files: {base}/{network}/{mode}/{host}/{device}/iter-N.txt."""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..algorithms.registry import FIGURES
from .rounds import ROUND_FILE, Category

#: cpu, gpu0, …, and cpu-1 for a second process on the same device. Folders of another name are no
#: devices: logs of an earlier run that were moved aside must not be counted as a worker of this
#: one.
DEVICE_FOLDER = re.compile(r"(cpu|gpu[0-9]+)(-[0-9]+)?")

#: What a worker writes into its device's folder beside the rounds: facts of the run, the final
#: model, a folder into which it moved the logs of an earlier run. Its lock and files half written
#: are hidden.
RUN_FILE = "run.json"
SPEEDUP_FILE = "speedup.json"  # by plot, beside the figures
MODEL_FOLDER = "model"
EARLIER_PREFIX = "earlier-"
CURVES = ("acc.csv", "loss.csv")  # accuracy and loss step by step, of mode sync-switch


@dataclass(frozen=True)
class Skipped:
    """A file or a folder that is not in the summary, and why."""

    path: Path
    category: Category
    reason: str


@dataclass(frozen=True)
class DeviceFolder:
    """One device's folder: its round files in the order of their numbers, and what else lies there."""

    host: str
    device: str
    path: Path
    round_files: tuple[tuple[int, Path], ...]
    foreign: tuple[Skipped, ...]


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Key for sorting names as people do: gpu2 before gpu10."""
    return tuple(
        (0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"([0-9]+)", name) if part
    )


def find_devices(mode_folder: Path) -> tuple[list[DeviceFolder], list[Skipped]]:
    """Return the devices below a mode's folder, hosts and devices in natural order, and the folders left out.

    Raises:
        OSError: a folder cannot be listed.
    """
    devices: list[DeviceFolder] = []
    skipped: list[Skipped] = []
    for host in _subfolders(mode_folder):
        if DEVICE_FOLDER.fullmatch(host.name) and any(ROUND_FILE.fullmatch(name) for name in os.listdir(host)):
            reason = "a device's folder where a host's was expected: HOST/DEVICE/iter-N.txt"
            skipped.append(Skipped(host, "foreign", reason))
            continue
        for device in _subfolders(host):
            if DEVICE_FOLDER.fullmatch(device.name):
                devices.append(_list_device(host.name, device))
            else:
                skipped.append(Skipped(device, "foreign", "no device's name (cpu, gpu0, gpu1, cpu-1, …)"))
    return devices, skipped


def mode_folders(network_folder: Path) -> list[str]:
    """Return the names of the folders that may be a mode's.

    Raises:
        OSError: the network's folder cannot be listed.
    """
    if not network_folder.is_dir():
        return []
    return [folder.name for folder in _subfolders(network_folder) if folder.name != FIGURES]


def holds_rounds(mode_folder: Path) -> bool:
    """Return whether there is a round of any device.

    Raises:
        OSError: a folder cannot be listed.
    """
    return any(
        ROUND_FILE.fullmatch(name)
        for host in _subfolders(mode_folder)
        for device in _subfolders(host)
        if DEVICE_FOLDER.fullmatch(device.name)
        for name in os.listdir(device)
    )


def _subfolders(folder: Path) -> Iterator[Path]:
    names = [name for name in os.listdir(folder) if not name.startswith(".") and os.path.isdir(folder / name)]
    return (folder / name for name in sorted(names, key=natural))


def _list_device(host: str, folder: Path) -> DeviceFolder:
    """Sort the content of a device's folder into rounds, in numeric order, and other things."""
    rounds: list[tuple[int, Path]] = []
    foreign: list[Skipped] = []
    for name in os.listdir(folder):
        match = ROUND_FILE.fullmatch(name)
        if match:
            rounds.append((int(match[1]), folder / name))
        elif name not in (RUN_FILE, MODEL_FOLDER, *CURVES) and not name.startswith((".", EARLIER_PREFIX)):
            foreign.append(Skipped(folder / name, "foreign", "not named iter-N.txt"))
    return DeviceFolder(
        host,
        folder.name,
        folder,
        tuple(sorted(rounds)),
        tuple(sorted(foreign, key=lambda skip: natural(skip.path.name))),
    )


def missing_ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return the gaps in ascending round numbers, counted from 1, as (first, last) of what is missing."""
    gaps = []
    expected = 1
    for number in numbers:
        if number > expected:
            gaps.append((expected, number - 1))
        expected = number + 1
    return gaps
