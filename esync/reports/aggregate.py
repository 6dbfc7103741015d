"""Aggregate the rounds of one mode into its summary, and account for everything left out."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from .discovery import RUN_FILE, DeviceFolder, Skipped, find_devices, missing_ranges
from .facts import facts_of
from .modes import STANDALONE, Mode, mode_of
from .rounds import BadRound, LoggedRound, read_round
from .summary_file import DeviceSummary, Summary, SummaryError, load_run_info, save_summary


@dataclass
class ModeReport:
    """What was read of one mode, and what was not; `path` is its summary."""

    mode: Mode
    path: Path
    summary: Summary = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)
    missing_rounds: int = 0
    warnings: list[str] = field(default_factory=list)

    @property
    def rounds_read(self) -> int:
        """Round files that went into the summary."""
        return sum(len(device.rounds_list) for devices in self.summary.values() for device in devices.values())

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
            "devices": {
                host: {name: _device_facts(device) for name, device in devices.items()}
                for host, devices in self.summary.items()
            },
        }


def _device_facts(device: DeviceSummary) -> dict[str, Any]:
    logged = "estimated" if device.bytes_estimated else "measured"
    return {
        "rounds": len(device.rounds_list),
        "last_round": device.rounds_list[-1],
        "total_time": device.total_time,
        "accuracies": len(device.accuracy_rounds),
        "bytes": logged if device.bytes_sent_list else "unknown",
    }


def summarize_mode(
    network_folder: Path, folder: str, model_bytes: int | None, on_files: Callable[[int, int], None]
) -> ModeReport:
    """Read all rounds of a mode and write its summary, if there is at least one round.

    Args:
        network_folder: {base}/{network}.
        folder: name of the mode's folder.
        model_bytes: size of the model for logs without bytes; None leaves their traffic unknown.
        on_files: called with (files done, files in all) while reading.
    """
    mode = mode_of(folder)
    report = ModeReport(mode, mode.summary_path(network_folder))
    devices, report.skipped = find_devices(network_folder / folder)
    files = sum(len(device.round_files) for device in devices)
    done = 0
    for device in devices:
        rounds = []
        for number, path in device.round_files:
            try:
                rounds.append(read_round(path, number))
            except BadRound as bad:
                report.skipped.append(Skipped(path, bad.category, bad.reason))
            done += 1
            if done % 100 == 0 or done == files:
                on_files(done, files)
        _add_device(report, device, rounds, model_bytes)
    if report.summary:
        said, problems = facts_of(report.summary)
        report.warnings.extend(problems)
        report.mode = mode_of(folder, said)
        report.path = report.mode.summary_path(network_folder)
        save_summary(report.summary, report.path)
    return report


def _add_device(report: ModeReport, folder: DeviceFolder, rounds: list[LoggedRound], model_bytes: int | None) -> None:
    """Put one device into the summary and what is wrong with its folder into the report."""
    name = f"{folder.host}/{folder.device}"
    report.skipped.extend(folder.foreign)
    for first, last in missing_ranges(number for number, _ in folder.round_files):
        report.missing_rounds += last - first + 1
        numbers = f"iter-{first}.txt" if first == last else f"iter-{first}.txt to iter-{last}.txt"
        report.warnings.append(f"{name}: {numbers} missing")
    if not rounds:
        report.skipped.append(Skipped(folder.path, "missing", "no file in it holds a round"))
        return
    for earlier, later in pairwise(rounds):
        if later.total_time < earlier.total_time:
            report.warnings.append(
                f"{name}: total_time falls from {earlier.total_time:.1f} s in round {earlier.number} to "
                f"{later.total_time:.1f} s in round {later.number}: files of two runs?"
            )
            break
    device = device_summary(rounds)
    try:
        device.run = load_run_info(folder.path / RUN_FILE)
    except SummaryError as error:
        report.skipped.append(Skipped(folder.path / RUN_FILE, "foreign", str(error)))
    if device.run and not device.overruns:
        device.overruns = device.run.overruns or 0
        device.iterations = device.run.iterations or device.iterations
    size = (device.run and device.run.model_bytes) or model_bytes
    if not device.bytes_sent_list and report.mode.name != STANDALONE:
        if size:
            device.estimate_bytes(size)
        else:
            report.warnings.append(f"{name}: no bytes in the log and no size of the model: give --model-bytes")
    report.summary.setdefault(folder.host, {})[folder.device] = device


def device_summary(rounds: list[LoggedRound]) -> DeviceSummary:
    """Turn the rounds of one device, in ascending order, into columns."""
    evaluated = [(r.number, r.accuracy, r.accuracy_time, r.total_time) for r in rounds if r.accuracy is not None]
    return DeviceSummary(
        accuracy_list=[round(accuracy, 3) for _, accuracy, _, _ in evaluated],
        num_samples_list=[r.samples for r in rounds],
        self_iters_list=[r.entries for r in rounds],
        elapsed_time_list=[round(r.total_time) for r in rounds],
        aggregate_time_list=[r.aggregate for r in rounds],
        rounds_list=[r.number for r in rounds],
        accuracy_rounds=[number for number, _, _, _ in evaluated],
        accuracy_time_list=[round(total if own is None else own, 3) for _, _, own, total in evaluated],
        accuracy_exact_list=[accuracy for _, accuracy, _, _ in evaluated],
        computing_time_list=[round(r.computing, 6) for r in rounds],
        bytes_sent_list=_complete(r.bytes_sent for r in rounds),
        bytes_received_list=_complete(r.bytes_received for r in rounds),
        wait_list=_where_any(r.wait for r in rounds),
        transfer_list=_where_any(r.transfer for r in rounds),
        total_time=rounds[-1].total_time,
        iterations=sum(r.iterations for r in rounds),
        overruns=sum(r.overruns or 0 for r in rounds),
    )


def _complete(values: Iterable[int | None]) -> list[int]:
    """Return the values if every round has one, else nothing: half a count would pass for a whole one."""
    column = list(values)
    return [] if None in column else [value for value in column if value is not None]


def _where_any(values: Iterable[float | None]) -> list[float | None]:
    """Return the values if any round has one, else nothing."""
    column = list(values)
    return column if any(value is not None for value in column) else []
