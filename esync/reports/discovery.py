"""Find the devices of a mode and their round files, {base}/{network}/{mode}/{host}/{device}/iter-N.txt."""

import os
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..algorithms.registry import FIGURES
from ..runtime import run_names
from ..runtime.files import EARLIER_PREFIX
from .rounds import ROUND_FILE, Category

#: Names of devices: cpu, gpu0, …, and cpu-1 for a second process on the same device. Other folders are
#: ignored, for instance logs of an earlier run that were moved aside.
DEVICE_FOLDER = re.compile(r"(cpu|gpu[0-9]+)(-[0-9]+)?")

#: Files in a device's folder other than rounds: facts of the run and the final model. Locks and
#: unfinished files are hidden.
RUN_FILE = "run.json"
SPEEDUP_FILE = "speedup.json"  # written by plot, beside the figures
MODEL_FOLDER = "model"
CURVES = ("acc.csv", "loss.csv")  # accuracy and loss step by step, of mode sync-switch


@dataclass(frozen=True)
class Skipped:
    """A file or a folder that is not in the summary, and the reason."""

    path: Path
    category: Category
    reason: str

    def __str__(self) -> str:
        return f"skipped ({self.category}) {self.path}: {self.reason}"


@dataclass(frozen=True)
class DeviceFolder:
    """A device's folder.

    Attributes:
        host, device: names of the worker's host and device.
        path: the folder.
        rounds: numbers of the rounds with a file, in ascending order.
        foreign: files that no worker writes.
        earlier: folders with logs of earlier runs that were moved aside.
    """

    host: str
    device: str
    path: Path
    rounds: tuple[int, ...]
    foreign: tuple[Skipped, ...]
    earlier: tuple[Path, ...] = ()

    def round_file(self, number: int) -> Path:
        """Return the path of a round's file."""
        return self.path / f"iter-{number}.txt"


@dataclass(frozen=True)
class Source:
    """The files of a device from which its summary is made.

    Attributes:
        files: number of round files.
        bytes: size of the round files and of run.json.
        newest: time of the last modification, in nanoseconds since 1970.
    """

    files: int
    bytes: int
    newest: int

    @classmethod
    def of(cls, folder: Path) -> "Source":
        """Return the source in a device's folder.

        Raises:
            OSError: the folder cannot be listed.
        """
        files = size = newest = 0
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name != RUN_FILE and not ROUND_FILE.fullmatch(entry.name):
                    continue
                status = entry.stat()
                files += entry.name != RUN_FILE
                size += status.st_size
                newest = max(newest, status.st_mtime_ns)
        return cls(files, size, newest)


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key for natural order: gpu2 before gpu10."""
    return tuple(
        (0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"([0-9]+)", name) if part
    )


def find_devices(mode_folder: Path) -> tuple[list[DeviceFolder], list[Skipped]]:
    """Return the devices below a mode's folder, and the ignored folders.

    Hosts and devices are in natural order.

    Raises:
        OSError: a folder cannot be listed.
    """
    devices: list[DeviceFolder] = []
    skipped: list[Skipped] = []
    for host in subfolders(mode_folder):
        if DEVICE_FOLDER.fullmatch(host.name) and any(ROUND_FILE.fullmatch(name) for name in os.listdir(host)):
            reason = "a device's folder where a host's was expected: HOST/DEVICE/iter-N.txt"
            skipped.append(Skipped(host, "foreign", reason))
            continue
        for device in subfolders(host):
            if DEVICE_FOLDER.fullmatch(device.name):
                devices.append(list_device(host.name, device))
            else:
                skipped.append(Skipped(device, "foreign", "not a device's name (cpu, gpu0, gpu1, cpu-1, …)"))
    return devices, skipped


def mode_folders(network_folder: Path) -> list[str]:
    """Return the names of the folders that may be those of modes.

    Raises:
        OSError: the network's folder cannot be listed.
    """
    if not network_folder.is_dir():
        return []
    return [folder.name for folder in subfolders(network_folder) if folder.name != FIGURES]


def holds_rounds(mode_folder: Path) -> bool:
    """Return whether a mode's folder has a round of any device.

    Raises:
        OSError: a folder cannot be listed.
    """
    return any(
        ROUND_FILE.fullmatch(name)
        for host in subfolders(mode_folder)
        for device in subfolders(host)
        if DEVICE_FOLDER.fullmatch(device.name)
        for name in os.listdir(device)
    )


def others_to_choose(base_dir: Path, network: str) -> str:
    """Return a clause about the other networks in a folder of logs, and how to choose one.

    It is "" if there are none, or if the folder contains the given network.
    """
    networks = [folder.name for folder in subfolders(base_dir) if _is_network(folder)] if base_dir.is_dir() else []
    if not networks or network in networks:
        return ""
    example = shlex.quote(networks[0])
    return f"; {base_dir} holds rounds of {', '.join(networks)}: choose with -n, for instance -n {example}"


def _is_network(folder: Path) -> bool:
    try:
        return any(holds_rounds(folder / mode) for mode in mode_folders(folder))
    except OSError:  # the folder cannot be listed
        return False


def subfolders(folder: Path) -> Iterator[Path]:
    """Yield the visible folders in a folder, in natural order."""
    names = [name for name in os.listdir(folder) if not name.startswith(".") and os.path.isdir(folder / name)]
    return (folder / name for name in sorted(names, key=natural))


def list_device(host: str, folder: Path) -> DeviceFolder:
    """Return a device's folder as it is now.

    Raises:
        OSError: the folder cannot be listed.
    """
    rounds: list[int] = []
    foreign: list[Skipped] = []
    earlier: list[Path] = []
    for name in os.listdir(folder):
        match = ROUND_FILE.fullmatch(name)
        if match:
            rounds.append(int(match[1]))
        elif name.startswith(EARLIER_PREFIX):
            earlier.append(folder / name)
        elif name not in (RUN_FILE, MODEL_FOLDER, *CURVES) and not name.startswith("."):
            foreign.append(Skipped(folder / name, "foreign", "not named iter-N.txt"))
    return DeviceFolder(
        host,
        folder.name,
        folder,
        tuple(sorted(rounds)),
        tuple(sorted(foreign, key=lambda skip: natural(skip.path.name))),
        tuple(sorted(earlier)),
    )


def moved_aside(devices: Iterable[DeviceFolder]) -> str:
    """Return a sentence about logs of earlier runs, which are ignored; "" if there are none."""
    folders = [path for device in devices for path in device.earlier]
    if not folders:
        return ""
    more = f" and {len(folders) - 1} more" if len(folders) > 1 else ""
    return (
        f"logs of an earlier run are in no figure: {folders[0]}{more}; to see that run, too, move them to "
        f"MODE{run_names.SEPARATOR}NAME/HOST/DEVICE; a --name of its own keeps each run's logs"
    )


def missing_ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return the gaps in ascending round numbers, which begin with 1.

    Each gap is a pair: the first and the last number missing.
    """
    gaps = []
    expected = 1
    for number in numbers:
        if number > expected:
            gaps.append((expected, number - 1))
        expected = number + 1
    return gaps
