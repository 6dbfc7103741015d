"""The tables of plot as text in Markdown: the runs, their devices, and the smoothed curves."""

from collections.abc import Iterator, Sequence

from ..runtime.terminal import UNKNOWN, markdown, number, right
from .comparison_text import results_text
from .metrics_table import RunFigures
from .published_smoothing import CHANCE, window, window_is_filled
from .run_groups import Section
from .speedups import speedup


def runs_text(sections: Sequence[Section]) -> str:
    """Return the tables of the runs, and one of all devices, with their headings."""
    runs = [group.figures for section in sections for group in section.groups]
    return (
        "".join(f"{results_text(section)}\n" for section in sections)
        + "Devices: share of the time computing (published: 1 − aggregation ÷ total), wait for the last commit\n\n"
        + _devices_table(runs)
    )


def smoothed_text(runs: Sequence[RunFigures]) -> str:
    """Return a table of runs with smoothed curves; runs that are too short for the filter are marked."""
    short = [run for run in runs if not window_is_filled(run)]
    rows = (
        [run.mode.label, *map(run.bracketed, _results(run, runs)), "too short for the filter" if run in short else ""]
        for run in runs
    )
    table = markdown(["method", *map(right, ("time to target", "speedup", "final value")), "note"], rows)
    lines = "".join(f"{_too_short(run)}\n" for run in short)
    return f"Smoothed as in the published figures\n\n{table}" + (f"\n{lines}" if lines else "")


def _too_short(run: RunFigures) -> str:
    """Return why the smoothed values of a run are lower than its evaluations."""
    last = run.round_ends[-1][0]
    first = f", evaluated from round {run.accuracy_rounds[0]} on," if last >= window(run) else ""
    return (
        f"{run.mode.label}: {last} round{'s' * (last != 1)}{first} are too few for the filter's window of "
        f"{window(run)} rounds: its last mean still contains the {CHANCE:g} with which the curve begins; "
        "compare the curve that is not smoothed"
    )


def _results(run: RunFigures, runs: Sequence[RunFigures]) -> tuple[str, str, str]:
    """Return the time to the target, the speedup over SSGD, and the final value of the metric."""
    return (
        "not reached" if run.time_to_target is None else duration(run.time_to_target),
        speedup(run, runs).text,
        UNKNOWN if run.final_accuracy is None else run.metric.text(run.final_accuracy),
    )


def _devices_table(runs: Sequence[RunFigures]) -> str:
    figures = ("rounds", "samples", "computing", "published", "mean wait s", "max wait s", "overruns")
    return markdown(["method", "device", *map(right, figures)], _device_rows(runs))


def _device_rows(runs: Sequence[RunFigures]) -> Iterator[list[str]]:
    for run in runs:
        for device in run.devices:
            overruns = device.overrun_share
            cells = (
                f"{device.rounds:,}{' exchanges' if device.unit == 'exchange' else ''}",
                f"{device.samples:,}",
                number(device.computing_ratio, ".3f"),
                number(device.published_computing_ratio, ".3f"),
                number(device.wait_mean, ".3f"),
                number(device.wait_max, ".3f"),
                UNKNOWN if overruns is None else f"{100 * overruns:.1f} %",
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
