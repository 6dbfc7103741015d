"""Compare runs as text: one table of the runs, one of their devices, in Markdown."""

from collections.abc import Iterator

from ..runtime.terminal import NOT_KNOWN, markdown, number, right
from .metrics_table import RunFigures, speedup
from .modes import BASELINE_LABEL


def comparison_text(network: str, target: float, runs: list[RunFigures]) -> str:
    """Return both tables with their headings."""
    return (
        f"{network}: time to test accuracy {target:g}, and speedup = time of {BASELINE_LABEL} ÷ time of the method\n\n"
        f"{_runs_table(runs)}\n"
        "Devices: share of the time spent computing (published: 1 − aggregation ÷ total), wait for the last commit\n\n"
        f"{_devices_table(runs)}"
    )


def _runs_table(runs: list[RunFigures]) -> str:
    figures = ("time to target", "speedup", "final accuracy", "samples/s", "efficiency", "MB/s")
    return markdown(["method", *map(right, figures), "note"], _run_rows(runs))


def _run_rows(runs: list[RunFigures]) -> Iterator[list[str]]:
    for run in runs:
        compared = speedup(run, runs)
        notes = [run.invalid] if run.invalid else []
        if run.bytes_estimated:
            notes.append("traffic estimated, push only")
        if run.missing_rounds:
            notes.append(f"{run.missing_rounds} rounds missing from the logs: samples/s and MB/s are too low")
        cells = (
            "not reached" if run.time_to_target is None else duration(run.time_to_target),
            f"{compared.value:.2f}×" if compared.value is not None else compared.reason or NOT_KNOWN,
            number(run.final_accuracy, ".3f"),
            number(run.throughput, ",.1f"),
            NOT_KNOWN if run.efficiency is None else f"{100 * run.efficiency:.1f} %",
            NOT_KNOWN if run.bytes_per_second is None else f"{run.bytes_per_second / 1e6:,.1f}",
        )
        yield [run.mode.label, *(run.bracketed(cell) for cell in cells), "; ".join(notes)]


def _devices_table(runs: list[RunFigures]) -> str:
    figures = ("rounds", "samples", "computing", "published", "mean wait s", "max wait s", "overruns")
    return markdown(["method", "device", *map(right, figures)], _device_rows(runs))


def _device_rows(runs: list[RunFigures]) -> Iterator[list[str]]:
    for run in runs:
        for device in run.devices:
            overruns = device.overrun_share
            cells = (
                f"{device.rounds:,}",
                f"{device.samples:,}",
                number(device.computing_ratio, ".3f"),
                number(device.published_computing_ratio, ".3f"),
                number(device.wait_mean, ".3f"),
                number(device.wait_max, ".3f"),
                NOT_KNOWN if overruns is None else f"{100 * overruns:.1f} %",
            )
            yield [run.mode.label, device.name, *(run.bracketed(cell) for cell in cells)]


def duration(seconds: float) -> str:
    """Format a duration: 48.3 s, 12 min 05 s, 2 h 03 min."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 120:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min"
