"""Aggregate the rounds of one mode into its summary, and report omitted files."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..runtime.metric import TEST_ACCURACY
from .discovery import RUN_FILE, DeviceFolder, Skipped, Source, find_devices, missing_ranges, moved_aside
from .modes import STANDALONE, Mode, mode_of
from .rounds import BadRound, LoggedRound, read_round
from .summary_file import (
    DeviceSummary,
    RunInfo,
    Summary,
    SummaryError,
    algorithm_info_of,
    columns_of,
    load_run_info,
    save_summary,
)

Track = Callable[[Sequence[int]], Iterable[int]]


@dataclass
class ModeReport:
    """The summary of one mode, and what is missing in it.

    Attributes:
        mode: the mode.
        path: the summary's file.
        summary: the rounds that were read.
        skipped: files and folders that are not in the summary.
        missing_rounds: number of rounds before the last one without a file.
        earlier: a sentence about logs of earlier runs that were moved aside; "" if there are none.
        warnings: sentences about other problems.
    """

    mode: Mode
    path: Path
    summary: Summary = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)
    missing_rounds: int = 0
    earlier: str = ""
    warnings: list[str] = field(default_factory=list)

    @property
    def rounds_read(self) -> int:
        """Number of round files in the summary."""
        return sum(len(device.rounds_list) for device in columns_of(self.summary))

    def as_json(self) -> dict[str, Any]:
        """Return the report for --json."""
        return {
            "summary": str(self.path) if self.summary else None,
            "rounds_read": self.rounds_read,
            "rounds_missing": self.missing_rounds,
            "files_skipped": len(self.skipped),
            "skipped": [
                {"path": str(skip.path), "category": skip.category, "reason": skip.reason} for skip in self.skipped
            ],
            "warnings": self.warnings,
            "earlier": self.earlier or None,
            "devices": {
                host: {name: _device_facts(device) for name, device in devices.items()}
                for host, devices in self.summary.items()
            },
        }


def _device_facts(device: DeviceSummary) -> dict[str, Any]:
    logged = "estimated" if device.bytes_estimated else "measured"
    return {
        "rounds": device.rounds,
        "last_round": device.rounds_list[-1],
        "total_time": device.total_time,
        "accuracies": len(device.accuracy_rounds),
        "bytes": logged if device.bytes_sent_list else "unknown",
    }


def summarize_mode(network_folder: Path, folder: str, model_bytes: int | None, track: Track) -> ModeReport:
    """Read all rounds of a mode and write its summary, if there is at least one round.

    Args:
        network_folder: {base}/{network}.
        folder: name of the mode's folder.
        model_bytes: size of the model for logs without bytes; None leaves their traffic unknown.
        track: yields the rounds of each device and shows the progress, as `rich.progress.track` does.
    """
    devices, skipped = find_devices(network_folder / folder)
    report = read_rounds(network_folder / folder, devices, model_bytes, track)
    report.skipped[:0] = skipped
    if report.summary:
        save_summary(report.summary, report.path)
    return report


def read_rounds(
    folder: Path, devices: Sequence[DeviceFolder], model_bytes: int | None, track: Track = iter
) -> ModeReport:
    """Read all rounds of a run's devices.

    Args:
        folder: the run's folder, such as {base}/{network}/{mode}.
        devices: its devices.
        model_bytes: size of the model for logs without bytes; None leaves their traffic unknown.
        track: yields the rounds of each device and shows the progress, as `rich.progress.track` does.
    """
    mode = mode_of(folder.name)
    report = ModeReport(mode, mode.summary_path(folder.parent), earlier=moved_aside(devices))
    for device in devices:
        source = Source.of(device.path)  # before the files are read, because they may change meanwhile
        info = _run_info(report, device)
        metric = info.metric if info else TEST_ACCURACY
        rounds = []
        for number in track(device.rounds):
            path = device.round_file(number)
            try:
                rounds.append(read_round(path, number, metric))
            except BadRound as bad:
                report.skipped.append(Skipped(path, bad.category, bad.reason))
        _add_device(report, device, rounds, info, model_bytes)
        if device.device in report.summary.get(device.host, {}):
            summary = report.summary[device.host][device.device]
            summary.source_files, summary.source_bytes = source.files, source.bytes
    if report.summary:
        report.mode = mode_of(folder.name, algorithm_info_of(report.summary))
        report.path = report.mode.summary_path(folder.parent)
    return report


def summarized_rounds(
    folder: Path, devices: Sequence[DeviceFolder], path: Path, summary: Summary, model_bytes: int | None
) -> ModeReport:
    """Return the result of `read_rounds` from a summary, without reading the rounds.

    Args:
        folder: the run's folder.
        devices: its devices, or none if there is only the summary.
        path: the summary's path.
        summary: its content, with all of the devices.
        model_bytes: as for `read_rounds`.
    """
    report = ModeReport(mode_of(folder.name), path, summary)
    for name, device_summary_ in (item for group in summary.values() for item in group.items()):
        _complete_device(report, device_summary_, model_bytes)
        if device_summary_.accuracy_list and not device_summary_.accuracy_rounds:
            report.warnings.append(f"the accuracies of {name} in {path} have no times; run summarize again")
    for device in devices:
        columns = summary[device.host][device.device]
        _check_device(report, device, columns, columns.run)
    return report


def _run_info(report: ModeReport, folder: DeviceFolder) -> RunInfo | None:
    """Return the content of a device's run.json; None if it is missing or invalid."""
    try:
        return load_run_info(folder.path / RUN_FILE)
    except SummaryError as error:
        report.skipped.append(Skipped(folder.path / RUN_FILE, "foreign", str(error)))
        return None


def _add_device(
    report: ModeReport, folder: DeviceFolder, rounds: list[LoggedRound], info: RunInfo | None, model_bytes: int | None
) -> None:
    """Add one device to the summary, and problems of its folder to the report."""
    device = device_summary(rounds, info) if rounds else None
    if device is not None:
        _complete_device(report, device, model_bytes)
        report.summary.setdefault(folder.host, {})[folder.device] = device
    _check_device(report, folder, device, info)


def _complete_device(report: ModeReport, device: DeviceSummary, model_bytes: int | None) -> None:
    """Complete the columns of a device from its run.json."""
    if device.run and not device.overruns:
        device.overruns = device.run.overruns or 0
        device.iterations = device.run.iterations or device.iterations
    size = (device.run and device.run.model_bytes) or model_bytes
    if not device.bytes_sent_list and size and report.mode.name != STANDALONE:
        device.estimate_bytes(size)


def _check_device(report: ModeReport, folder: DeviceFolder, device: DeviceSummary | None, info: RunInfo | None) -> None:
    """Add problems of a device's rounds to the report; `device` is None if there are no rounds."""
    name = f"{folder.host}/{folder.device}"
    report.skipped.extend(folder.foreign)
    everywhere = info is None or info.tier is None
    for first, last in missing_ranges(folder.rounds) if everywhere else ():
        report.missing_rounds += last - first + 1
        numbers = f"iter-{first}.txt" if first == last else f"iter-{first}.txt to iter-{last}.txt"
        report.warnings.append(f"{name}: {numbers} missing")
    if device is None and not everywhere and not folder.rounds:
        report.warnings.append(f"{name}: this device has taken part in no round, as it may in mode tiered")
        return
    if device is None:
        report.skipped.append(Skipped(folder.path, "missing", "no file in it holds a round"))
        return
    ends = zip(device.rounds_list, device.total_time_list, strict=False)  # published summaries have no such times
    for (earlier, before), (later, after) in pairwise(ends):
        if after < before:
            report.warnings.append(
                f"{name}: total_time falls from {before:.1f} s in round {earlier} to {after:.1f} s in round {later}: "
                "files of two runs?"
            )
            break
    if not device.bytes_sent_list and report.mode.name != STANDALONE:
        report.warnings.append(f"{name}: no bytes in the log and no size of the model: give --model-bytes")


def device_summary(rounds: list[LoggedRound], info: RunInfo | None) -> DeviceSummary:
    """Return the columns of one device, from its rounds in ascending order and its run.json."""
    metric = info.metric if info else TEST_ACCURACY
    logged = {name: None for r in rounds for name in r.logged}  # in the order of the log
    evaluated = [(r, r.accuracy) for r in rounds if r.accuracy is not None]
    part_names = {name: None for r, _ in evaluated for name in r.parts}
    return DeviceSummary(
        accuracy_list=[round(value, 3) if metric.is_accuracy else value for _, value in evaluated],
        num_samples_list=[r.samples for r in rounds],
        self_iters_list=[r.entries for r in rounds],
        elapsed_time_list=[round(r.total_time) for r in rounds],
        aggregate_time_list=[r.aggregate for r in rounds],
        rounds_list=[r.number for r in rounds],
        run_rounds_list=_complete(r.run_round for r in rounds),
        accuracy_rounds=[r.number for r, _ in evaluated],
        accuracy_time_list=[round(r.total_time, 3) for r, _ in evaluated],
        accuracy_exact_list=[accuracy for _, accuracy in evaluated],
        evaluation_time_list=_where_any(r.evaluation_time for r, _ in evaluated),
        parts={name: [r.parts.get(name) for r, _ in evaluated] for name in part_names},
        computing_time_list=[round(r.computing, 6) for r in rounds],
        bytes_sent_list=_complete(r.bytes_sent for r in rounds),
        bytes_received_list=_complete(r.bytes_received for r in rounds),
        wait_list=_where_any(r.wait for r in rounds),
        transfer_list=_where_any(r.transfer for r in rounds),
        total_time_list=[round(r.total_time, 3) for r in rounds],
        logged={name: [r.logged.get(name) for r in rounds] for name in logged},
        total_time=rounds[-1].total_time,
        iterations=sum(r.iterations for r in rounds),
        overruns=sum(r.overruns or 0 for r in rounds),
        metric=metric,
        run=info,
    )


def _complete(values: Iterable[int | None]) -> list[int]:
    """Return the values if every round has one, otherwise an empty list."""
    column = list(values)
    return [] if None in column else [value for value in column if value is not None]


def _where_any(values: Iterable[float | None]) -> list[float | None]:
    """Return the values if any round has one, otherwise an empty list."""
    column = list(values)
    return column if any(value is not None for value in column) else []
