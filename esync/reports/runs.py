"""Load the logs of runs, from folders of any layout.

`find_runs` loads the runs in folders and patterns, `load_network` those of a network, and `load_run`
a single one. The folder of a run is one of

- {network}/{mode} or {network}/{mode}@{name}, with HOST/DEVICE/iter-N.txt in it, or only the
  summary NAME.json,
- a host's folder with DEVICE/iter-N.txt, as a worker without the launcher writes it,
- a device's folder with iter-N.txt.

The summary of a run is a cache of its round files. It is used if it is newer than all of them and was
made from as many files and bytes; otherwise the rounds are read, and it is written again.
"""

import glob
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from .. import config
from ..algorithms.registry import FIGURES, suffix_of
from ..runtime import run_names
from ..runtime.errors import ExpectedError
from ..runtime.files import EARLIER_PREFIX, expanded
from ..runtime.metric import Metric
from .aggregate import read_rounds, summarized_rounds
from .discovery import (
    DEVICE_FOLDER,
    SPEEDUP_FILE,
    DeviceFolder,
    Source,
    find_devices,
    holds_rounds,
    list_device,
    mode_folders,
    moved_aside,
    subfolders,
)
from .metrics_table import RunFigures, common_target, metric_of, run_figures
from .modes import Mode, mode_of
from .style import style_of
from .summary_file import (
    AlgorithmInfo,
    DeviceSummary,
    Summary,
    SummaryError,
    algorithm_info_of,
    columns_of,
    load_summary,
    save_summary,
)

#: Number of levels of folders to search for runs: {log_dir}/{network}/{mode}.
_DEPTH = 2


class RunError(ExpectedError):
    """Raised when a run cannot be found or loaded; the message names the folder."""

    exit_code = 2


class NoRunError(RunError):
    """Raised when no rounds of a run can be read in a folder; the message says why."""

    def __init__(self, text: str, problems: Sequence[str] = ()) -> None:
        super().__init__("; ".join([text, *problems]))
        self.problems = problems


@dataclass(frozen=True)
class LoggedRun:
    """A run, as read from its logs.

    Attributes:
        folder: its folder.
        mode: its algorithm, with label and style.
        summary: the rounds of its devices: host → device → columns.
        target: value of the metric for the time to target; None if there is none.
        problems: sentences about missing and invalid parts of its logs.
    """

    folder: Path
    mode: Mode
    summary: Summary
    target: float | None = None
    problems: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name of the run, as given by `--name`; "" if it has none."""
        return self.mode.run

    @property
    def label(self) -> str:
        """The algorithm, the name of the run, and the kind of data."""
        return self.mode.label

    @property
    def devices(self) -> dict[str, DeviceSummary]:
        """The rounds of each device, by HOST/DEVICE."""
        return {
            f"{host}/{device}": columns for host, group in self.summary.items() for device, columns in group.items()
        }

    @cached_property
    def facts(self) -> Mapping[str, Any]:
        """Content of run.json of rank 0, else of the first device that has one, else {}."""
        facts = [columns.run.model_dump() for columns in self.devices.values() if columns.run]
        return next((content for content in facts if content.get("rank") == 0), facts[0] if facts else {})

    @property
    def options(self) -> Mapping[str, Any]:
        """Every flag in effect, from run.json; {} without."""
        options = self.facts.get("options")
        return options if isinstance(options, dict) else {}

    @property
    def network(self) -> str:
        """Name of the network, or of the user's program."""
        network = self.facts.get("network")
        return network if isinstance(network, str) else self.folder.resolve().parent.name

    @property
    def seed(self) -> int | None:
        """Seed of the run; None if unknown."""
        seed = self.facts.get("seed", self.options.get("seed"))
        return seed if isinstance(seed, int) else None

    @property
    def finished(self) -> bool | None:
        """Whether the run has finished; None if unknown."""
        finished = [columns.run.model_dump().get("finished") for columns in self.devices.values() if columns.run]
        return None if None in finished or not finished else all(finished)

    @property
    def metric(self) -> Metric:
        """What its evaluations compute."""
        return metric_of(self.summary)

    @cached_property
    def figures(self) -> RunFigures:
        """Throughput, efficiency, traffic, waits, curve, time to target, validity."""
        return run_figures(self.mode, self.summary, self.target)

    def with_target(self, target: float | None) -> "LoggedRun":
        """Return the run with another target."""
        return replace(self, target=target)


def find_runs(patterns: Iterable[str | Path], target: float | None = None) -> list[LoggedRun]:
    """Load the runs that folders and patterns name.

    A folder that is not a run's stands for all runs in it, whatever their network and mode. A run
    that is named twice is there once.

    Args:
        patterns: folders, or patterns such as `logs/lenet/esync@base-seed*`.
        target: value of the metric for the time to target.

    Raises:
        RunError: a pattern names no run, or a run cannot be loaded.
    """
    folders: dict[Path, Path] = {}
    for pattern in map(str, patterns):
        matches = [folder for path in _matching_folders(pattern) for folder in run_folders(path)]
        if not matches:
            raise RunError(f"{pattern}: there is no run in it: expected {{network}}/{{mode}}/HOST/DEVICE/iter-N.txt")
        for folder in matches:
            folders.setdefault(folder.resolve(), folder)
    return [load_run(folder, target) for folder in folders.values()]


def load_network(folder: Path, names: Collection[str] = ()) -> tuple[list[LoggedRun], list[str]]:
    """Load the runs of a network in the order of their modes; what cannot be loaded is left out.

    Args:
        folder: {base}/{network}.
        names: the modes to load; none: all of them.

    Returns:
        The runs, and sentences about what is missing or wrong.

    Raises:
        OSError: the folder cannot be listed.
    """
    runs: list[LoggedRun] = []
    problems: list[str] = []
    for name in sorted(mode_folders(folder), key=lambda name: mode_of(name).place()):
        if names and mode_of(name).name not in names:
            continue
        try:
            runs.append(load_run(folder / name))
        except RunError as error:
            if mode_of(name).built_in or not isinstance(error, NoRunError) or error.problems:
                problems.append(f"left out: {error}")
    return runs, [*problems, *(f"{run.folder}: {problem}" for run in runs for problem in run.problems)]


def _matching_folders(pattern: str) -> list[Path]:
    """Return the folders that a pattern names."""
    path = expanded(pattern)
    if path.is_dir():  # also where its name has the characters of a pattern
        return [path]
    paths = [Path(name) for name in sorted(glob.glob(str(path))) if Path(name).is_dir()]
    if not paths:
        is_pattern = glob.has_magic(str(path))
        raise RunError(f"{pattern}: {'no folder matches this pattern' if is_pattern else 'there is no such folder'}")
    return paths


def run_folders(folder: Path, depth: int = _DEPTH) -> list[Path]:
    """Return the folders of the runs in a folder, or the folder itself if it is a run's.

    Raises:
        RunError: a folder cannot be listed.
    """
    try:
        if holds_rounds(folder) or devices_in(folder)[0] or _summary_in(folder, []) is not None:
            return [folder]
        ignored = (EARLIER_PREFIX, FIGURES)
        below = [subfolder for subfolder in subfolders(folder) if not subfolder.name.startswith(ignored)]
    except OSError as error:
        raise RunError(f"{folder}: {error.strerror or error}") from None
    return [run for subfolder in below for run in run_folders(subfolder, depth - 1)] if depth else []


def load_run(folder: str | Path, target: float | None = None) -> LoggedRun:
    """Load a run from its folder.

    Args:
        folder: the run's folder; see the module.
        target: value of the metric for the time to target; None for the usual one of its metric.

    Raises:
        RunError: the folder holds no run, or cannot be read.
    """
    path = expanded(folder)
    if path.name in ("", ".."):
        path = path.resolve()
    try:
        return _load(path, target)
    except OSError as error:
        raise RunError(f"{error.filename or path}: {error.strerror or error}") from None


def _load(folder: Path, target: float | None) -> LoggedRun:
    if not folder.is_dir():
        raise RunError(f"{folder}: there is no such folder")
    devices, by_host, notes = devices_in(folder)
    problems: list[str] = []
    model_bytes = config.PUBLISHED_MODEL_BYTES.get(folder.resolve().parent.name)
    loaded = _summary_in(folder, problems) if by_host else None
    if loaded is not None and (not devices or _is_current(*loaded, devices)):
        report = summarized_rounds(folder, devices, *loaded, model_bytes)
    elif devices:
        problems = []
        report = read_rounds(folder, devices, model_bytes)
        if report.summary and by_host:
            with suppress(OSError):  # a folder of somebody else: its rounds are read again next time
                save_summary(report.summary, report.path)
    else:
        raise NoRunError(f"{folder}: there is no run in it: expected HOST/DEVICE/iter-N.txt", problems)
    summary = report.summary
    problems += [*notes, *report.warnings]
    problems += map(str, report.skipped)
    if not summary:
        raise NoRunError(f"{folder}: no file in it holds a round", problems)
    info = algorithm_info_of(summary)
    mode = _mode(folder, summary, info)
    target = common_target([summary], target)
    return LoggedRun(folder, replace(mode, style=style_of(info, mode.style)), summary, target, tuple(problems))


def devices_in(folder: Path) -> tuple[list[DeviceFolder], bool, list[str]]:
    """Return the devices with rounds in a run's folder, and whether they are in hosts' folders.

    Without any devices the second value is True as well, because the folder may contain only a
    summary. The third is what to say: of logs of earlier runs that were moved aside, of other folders with rounds.
    """
    below_hosts, foreign = find_devices(folder)
    if devices := [device for device in below_hosts if device.rounds]:
        ignored = [str(skip) for skip in foreign if any(skip.path.glob("iter-*.txt"))]
        return devices, True, [*_aside(below_hosts), *ignored]
    itself = list_device(folder.resolve().parent.name, folder)
    below = [subfolder for subfolder in subfolders(folder) if DEVICE_FOLDER.fullmatch(subfolder.name)]
    hosts = [list_device(folder.resolve().name, subfolder) for subfolder in below]
    devices = [device for device in (itself, *hosts) if device.rounds]
    return devices, not devices, _aside([*below_hosts, itself, *hosts])


def _aside(devices: Sequence[DeviceFolder]) -> list[str]:
    note = moved_aside(devices)
    return [note] if note else []


def _summary_in(folder: Path, problems: list[str]) -> tuple[Path, Summary] | None:
    """Return the summary in a mode's folder, and its path; None if there is none.

    A built-in algorithm's summary has a given name; that of another algorithm may have any name.
    """
    mode = mode_of(folder.name)
    expected = mode.summary_path(folder.parent)
    if mode.built_in:
        candidates = [expected] if expected.exists() else []
    elif (folder / SPEEDUP_FILE).exists():
        return None  # results of plot --out
    else:
        candidates = [path for path in sorted(folder.glob("*.json")) if path.is_file() and path.name[0] != "."]
    read: dict[Path, Summary] = {}
    wrong: list[str] = []
    for path in candidates:
        try:
            read[path] = load_summary(path)
        except SummaryError as error:
            wrong.append(str(error))
        except OSError as error:
            wrong.append(f"{path} cannot be read: {error.strerror}")
    if read:
        named = [path for path in read if path.stem == mode_of(folder.name, algorithm_info_of(read[path])).summary]
        path = next(iter(named or read))
        problems += [f"{other} left out: {path} is there, too" for other in read if other != path]
        return path, read[path]
    problems += wrong
    return None


def _is_current(path: Path, summary: Summary, devices: list[DeviceFolder]) -> bool:
    """Return whether a summary has been made from the files that are there now."""
    written = path.stat().st_mtime_ns
    for device in devices:
        columns = summary.get(device.host, {}).get(device.device)
        source = Source.of(device.path)
        if (
            columns is None
            or (columns.source_files, columns.source_bytes) != (source.files, source.bytes)
            or len(columns.rounds_list) != source.files  # else read again, which names the file that is left out
            or source.newest >= written
        ):
            return False
    return len(columns_of(summary)) == len(devices)


def _mode(folder: Path, summary: Summary, info: AlgorithmInfo) -> Mode:
    """Return the mode of a run, by the name of its folder or else by run.json."""
    name = folder.resolve().name
    mode = mode_of(name, info)
    facts = next((columns.run.model_dump() for columns in columns_of(summary) if columns.run), {})
    algorithm = facts.get("mode")
    if mode.built_in or not isinstance(algorithm, str) or algorithm in ("", mode.name):
        return mode
    return mode_of(run_names.folder_name(algorithm + suffix_of(str(facts.get("partition"))), name), info)
