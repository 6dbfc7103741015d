"""Compare runs as text in Markdown: one table of the runs, and one of their devices."""

from collections.abc import Iterator

from ..runtime.metric import Metric
from ..runtime.terminal import NOT_KNOWN, markdown, number, right
from .metrics_table import RunFigures
from .modes import BASELINE_LABEL, STANDALONE, STANDALONE_LABEL
from .published_smoothing import CHANCE, window, window_is_filled
from .speedups import Speedup, slower_than_fastest, speedup


def runs_text(network: str, runs: list[RunFigures]) -> str:
    """Return a table of the runs for each metric, and one of all devices, with their headings."""
    tables = ""
    for metric in dict.fromkeys(run.metric for run in runs):
        same = [run for run in runs if run.metric == metric]
        target = "its target (none is known)" if same[0].target is None else f"{same[0].target:g}"
        tables += (
            f"{network}: time to {metric.label} {target}, and speedup = time of {BASELINE_LABEL} ÷ time of the method"
            f"{_standalone_heading(same)}\n\n{_runs_table(metric, same, runs)}\n{_limits(same)}"
        )
    return (
        f"{tables}"
        "Devices: share of the time spent computing (published: 1 − aggregation ÷ total), wait for the last commit\n\n"
        f"{_devices_table(runs)}"
    )


def smoothed_text(runs: list[RunFigures]) -> str:
    """Return a table of the runs whose curves are smoothed as the published ones are.

    Runs that are too short for the filter are marked in it, and named in a line below it.
    """
    short = [run for run in runs if not window_is_filled(run)]
    rows = (
        [run.mode.label, *map(run.bracketed, _results(run, runs)), "too short for the filter" if run in short else ""]
        for run in runs
    )
    table = markdown(["method", *map(right, ("time to target", "speedup", "final value")), "note"], rows)
    lines = "".join(f"{_too_short(run)}\n" for run in short)
    return f"Smoothed as in the published figures\n\n{table}" + (f"\n{lines}" if lines else "")


def _too_short(run: RunFigures) -> str:
    """Say why the smoothed values of a run do not show what it has reached."""
    last = run.round_ends[-1][0]
    first = f", evaluated from round {run.accuracy_rounds[0]} on," if last >= window(run) else ""
    return (
        f"{run.mode.label}: {last} round{'s' * (last != 1)}{first} are too few for the filter's window of "
        f"{window(run)} rounds: its last mean still contains the {CHANCE:g} with which the curve begins; "
        "compare the curve that is not smoothed"
    )


def _standalone_heading(runs: list[RunFigures]) -> str:
    if not _standalone(runs):
        return ""
    return (
        f"\nover {STANDALONE_LABEL} = time of {STANDALONE_LABEL}, which is one device alone, ÷ time of the method; "
        f"limit = sum of the devices' speeds ÷ speed of {STANDALONE_LABEL}'s device"
    )


def _limits(runs: list[RunFigures]) -> str:
    """Return a line for each cluster whose fastest device no run was on alone; "" if there is none."""
    if _standalone(runs):
        return ""
    clusters = {run.fastest.name: run.speedup_limit for run in runs if run.fastest and len(run.devices) > 1}
    return "".join(
        f"limit = {limit:.2f}: sum of the devices' speeds ÷ that of the fastest one, {name}; "
        "a run of --mode local on it alone is the baseline to compare with\n\n"
        for name, limit in sorted(clusters.items())
    )


def _standalone(runs: list[RunFigures]) -> bool:
    """Return whether there is a run of sequential SGD with which others can be compared."""
    return any(run.mode.name == STANDALONE for run in runs)


def _runs_table(metric: Metric, shown: list[RunFigures], runs: list[RunFigures]) -> str:
    figures = ["time to target", "speedup", f"final {metric.name}", "samples/s", "efficiency", "MB/s"]
    if _standalone(shown):
        figures[2:2] = [f"over {STANDALONE_LABEL}", "limit"]
    return markdown(["method", *map(right, figures), "note"], _run_rows(shown, runs))


def _run_rows(shown: list[RunFigures], runs: list[RunFigures]) -> Iterator[list[str]]:
    for run in shown:
        notes = [run.invalid] if run.invalid else []
        if run.bytes_estimated:
            notes.append("traffic estimated, push only")
        if run.missing_rounds:
            notes.append(f"{run.missing_rounds} rounds missing from the logs: samples/s and MB/s are too low")
        if run.mode.name == STANDALONE and (faster := slower_than_fastest(run, runs)):
            notes.append(f"not on the fastest device, which is {faster.name}")
        time, over_baseline, final = _results(run, runs)
        over_standalone = []
        if _standalone(shown):
            alone = speedup(run, runs, STANDALONE)
            limit = NOT_KNOWN if alone.limit is None else f"{alone.limit:.2f}×"
            over_standalone = [_times(alone), limit]
        cells = (
            time,
            over_baseline,
            *over_standalone,
            final,
            number(run.throughput, ",.1f"),
            NOT_KNOWN if run.efficiency is None else f"{100 * run.efficiency:.1f} %",
            NOT_KNOWN if run.bytes_per_second is None else f"{run.bytes_per_second / 1e6:,.1f}",
        )
        yield [run.mode.label, *(run.bracketed(cell) for cell in cells), "; ".join(notes)]


def _results(run: RunFigures, runs: list[RunFigures]) -> tuple[str, str, str]:
    """Return the time to the target, the speedup over SSGD, and the final value of the metric."""
    return (
        "not reached" if run.time_to_target is None else duration(run.time_to_target),
        _times(speedup(run, runs)),
        NOT_KNOWN if run.final_accuracy is None else run.metric.text(run.final_accuracy),
    )


def _times(compared: Speedup) -> str:
    return f"{compared.value:.2f}×" if compared.value is not None else compared.reason or NOT_KNOWN


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
