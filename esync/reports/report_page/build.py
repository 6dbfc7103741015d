"""Make the content of a report from a comparison of runs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from ...runtime.terminal import UNKNOWN
from ...version import __version__
from ..comparison import Comparison
from ..comparison_text import LIMIT, speedup_rows
from ..estimates import LEVEL
from ..grouping import shown
from ..phases import time_use
from ..run_groups import FINAL, MIN_RECALL, THROUGHPUT, TIME, TRAFFIC, Group
from ..run_groups import Section as Compared
from ..runs import LoggedRun
from ..speedups import over_fastest
from ..summary_file import DeviceSummary
from ..tables import duration
from .charts import charts, group_label, line_style
from .content import Cell, Events, Report, Section, Table, Tile
from .evaluation_parts import parts_table
from .timeline import timelines
from .verdict import mean_efficiency, time_with_spread, verdict, with_spread

#: Most runs of which timelines are shown; they take most of the file.
TIMELINES = 12
BLANK = "Gaps in a lane are none of the three: the device loads data, or asks the state server."
#: Most problems that are listed.
PROBLEMS = 40
#: Folder of a run → its events, pairs of time and event.
RunEvents = Mapping[Path, Sequence[tuple[str, str]]]


def build_report(comparison: Comparison, created: str, events: RunEvents | None = None) -> Report:
    """Return the report of one or more runs.

    Args:
        comparison: the runs, in groups.
        created: time at which the report was made, in words.
        events: events of the runs, if known.
    """
    compared = comparison.sections
    groups = [group for section in compared for group in section.groups]
    sections: list[Section] = []
    for section in compared:
        suffix = f" – {_context(section)}" if len(compared) > 1 else ""
        sections += _sections(section, suffix)
    if listed := _events(comparison.runs, events or {}):
        sections.append(Section("Events", [Events(listed)]))
    only = compared[0] if len(compared) == 1 and len(compared[0].groups) == 1 else None
    return Report(
        title=_title(groups),
        subtitle=" · ".join([*dict.fromkeys(_context(section) for section in compared), _count(groups)]),
        verdict=[sentence for section in compared for sentence in verdict(section)],
        warnings=_shortened([*_overruns(comparison.runs), *comparison.problems]),
        tiles=_tiles(only) if only else (),
        sections=sections,
        colophon=f"Made by esync {__version__}, {created}. Times are in seconds, "
        "traffic is counted at the workers' sockets.",
    )


# --- words ----------------------------------------------------------------------------------------


def _title(groups: Sequence[Group]) -> str:
    labels = [group.label for group in groups]
    return " vs. ".join(labels) if len(labels) <= 3 else f"{labels[0]} and {len(labels) - 1} others"


def _context(section: Compared) -> str:
    run = section.groups[0].runs[0]
    devices = len(run.devices)
    parts = [section.network, section.dataset, f"{devices} device{'s' * (devices > 1)}"]
    return ", ".join([*filter(None, parts), *(["simulated"] if run.facts.get("simulated") else [])])


def _count(groups: Sequence[Group]) -> str:
    runs = sum(len(group.runs) for group in groups)
    if runs == 1:
        run = groups[0].runs[0]
        return f"{run.figures.rounds} rounds in {duration(run.figures.total_time)}"
    return f"{runs} runs in {len(groups)} group{'s' * (len(groups) > 1)}"


def _overruns(runs: Sequence[LoggedRun]) -> list[str]:
    """Return why runs are not valid: too many iterations took longer than the emulated ones."""
    reason = "the machine is too slow for so many emulated devices"
    return [f"{run.folder}: overruns: {run.figures.overruns}: {reason}" for run in runs if run.figures.overruns]


def _shortened(problems: Sequence[str]) -> list[str]:
    """Return the first problems, and the number of the others."""
    more = len(problems) - PROBLEMS
    return [*problems[:PROBLEMS], *([f"… and {more} more, which esync compare --json lists"] if more > 0 else [])]


# --- figures at the top ---------------------------------------------------------------------------


def _tiles(section: Compared) -> list[Tile]:
    """Return the most important figures of the only group."""
    group = section.groups[0]
    reached, ended, speeds, bytes_, lowest = (
        group.estimate(quantity) for quantity in (TIME, FINAL, THROUGHPUT, TRAFFIC, MIN_RECALL)
    )
    efficiency, use = mean_efficiency(group), _mean_shares(_all_devices(group))
    figures = group.counted[0].figures
    tiles = []
    if section.target is not None and ended is not None:
        goal = f"{section.target:g}"
        tiles.append(
            Tile(f"time to {goal}", time_with_spread(reached) if reached else "not reached", "", section.metric.label)
        )
    if ended is not None:
        best = section.metric.best(
            [run.figures.best_accuracy for run in group.counted if run.figures.best_accuracy is not None]
        )
        note = f"best {section.metric.text(best)}" if best is not None else ""
        tiles.append(Tile(f"final {section.metric.label}", with_spread(ended, section.metric.text), "", note))
    if lowest is not None:
        tiles.append(Tile("lowest recall", with_spread(lowest, MIN_RECALL.text), "", "of a class, at the end"))
    limit = f"of {figures.speed_limit:,.0f} if nobody waited" if figures.speed_limit else ""
    if speeds is not None:
        tiles.append(Tile("throughput", f"{speeds.mean:,.{0 if speeds.mean >= 1000 else 1}f}", "samples/s", limit))
    if efficiency is not None:
        tiles.append(Tile("efficiency", f"{100 * efficiency:.0f} %", "", "of the devices' speed"))
    if alone := over_fastest(group.figures.throughput, {device.name: device.speed for device in group.figures.devices}):
        note = f"{alone.name} alone; limit {alone.limit:.2f} ×"
        tiles.append(Tile("samples/s over", f"{alone.value:.2f} ×", "", note))
    tiles.append(Tile("waiting", _percent(use[1]), "", f"of the devices' time, {_percent(use[2])} transferring"))
    if bytes_ is not None:
        note = "estimated, push only" if figures.bytes_estimated else "sent and received by all workers"
        tiles.append(Tile("traffic", f"{bytes_.mean / 1e6:,.2f}", "MB/s", note))
    return tiles


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if 0 < share < 0.0995 else f"{100 * share:.0f} %"


# --- sections -------------------------------------------------------------------------------------


def _sections(section: Compared, suffix: str) -> list[Section]:
    several = len(section.runs) > 1
    sections = [Section(f"Results{suffix}", [_results(section)])] if several else []
    sections.append(Section(f"Curves{suffix}", charts(section)))
    tables = [parts_table(_run_label(group, group.counted[0]), group.counted[0].figures) for group in section.groups]
    if detailed := [table for table in tables if table is not None][:TIMELINES]:
        title = f"Evaluations in detail{suffix}"
        sections.append(Section(title, detailed, folded=len(detailed) > 1))
    drawn, folded = _timelines(section)
    sections.append(Section(f"What the devices did{suffix}", [*drawn, BLANK]))
    if folded:
        sections.append(Section(f"What the devices did, further runs{suffix}", folded, folded=True))
    sections.append(Section(f"Devices{suffix}", [_devices(group, several) for group in section.groups]))
    if several:
        sections.append(Section(f"Runs{suffix}", [_runs(section)]))
    return [*sections, *_options(section, suffix)]


def _results(section: Compared) -> Table:
    rows = []
    quantities = section.quantities
    speedups, compared = speedup_rows(section)
    for index, group in enumerate(section.groups):
        seeds = [str(run.seed) for run in group.runs if run.seed is not None]
        about = f"{len(group.runs)} run{'s' * (len(group.runs) > 1)}"
        name = Cell(
            group_label(group), f"{about}{f', seeds {_short_list(seeds)}' if len(seeds) > 1 else ''}", line_style(group)
        )
        cells = [Cell(*section.mean_texts(group, quantity)) for quantity in quantities]
        cells += [Cell(text) for text in compared[index][1:]] if compared else []
        use = _mean_shares(_all_devices(group))
        cells.append(Cell(" / ".join(f"{100 * share:.0f}" for share in use) + " %", shares=use))
        rows.append([name, *cells])
    titles = [quantity.heading for quantity in quantities]
    note = (
        ""
        if all(len(group.runs) == 1 for group in section.groups)
        else f"± one standard deviation; in brackets the {100 * LEVEL:g} % confidence interval of the mean (Student)."
    )
    if compared:
        note = f"{note} Speedups are of the mean times to the target; {LIMIT}.".strip()
    return Table(["group", *titles, *speedups[1:], "computing / waiting / transferring"], rows, note=note)


def _short_list(words: Sequence[str]) -> str:
    return ", ".join(words) if len(words) <= 8 else f"{', '.join(words[:8])}, …"


def _timelines(section: Compared) -> tuple[list[Any], list[Any]]:
    """Return the timelines of the first run of each group, and those of further runs."""
    first = [group.counted[0] for group in section.groups]
    further = [run for group in section.groups for run in group.runs if run is not group.counted[0]]
    labels = {id(run): _run_label(group, run) for group in section.groups for run in group.runs}
    shown_first, shown_others = first[:TIMELINES], further[: max(0, TIMELINES - len(first))]
    drawn: list[Any] = [timeline for run in shown_first for timeline in timelines(labels[id(run)], run.summary)]
    left_out = len(first) + len(further) - len(shown_first) - len(shown_others)
    if left_out:
        drawn.append(f"Timelines of {left_out} further runs are left out; a report of those runs alone has them.")
    folded = [timeline for run in shown_others for timeline in timelines(labels[id(run)], run.summary)]
    return drawn, folded


def _run_label(group: Group, run: LoggedRun) -> str:
    if len(group.runs) == 1:
        return group.label
    return f"{group.label}, {f'seed {run.seed}' if run.seed is not None else run.folder.name}"


def _mean_shares(devices: Iterable[DeviceSummary]) -> tuple[float, float, float]:
    """Return computing, waiting and transferring as shares of all devices' time."""
    shares = [time_use(device).shares(device.total_time) for device in devices]
    compute, wait, exchange = (fmean(column) for column in zip(*shares, strict=True))
    return compute, wait, exchange


def _all_devices(group: Group) -> Iterator[DeviceSummary]:
    return (device for run in group.counted for device in run.devices.values())


def _devices(group: Group, several: bool) -> Table:
    """Return the devices of a group: their speeds, and how they spent their time."""
    columns: dict[str, list[DeviceSummary]] = {}
    for run in group.counted:
        for name, device in run.devices.items():
            columns.setdefault(name, []).append(device)
    overruns = {device.name.replace(" ", "/", 1): device for device in group.counted[0].figures.devices}
    unit = group.counted[0].figures.devices[0].unit
    rows: list[list[str | Cell]] = []
    for name, devices in columns.items():
        uses = [time_use(device) for device in devices]
        compute = fmean(use.compute for use in uses)
        iterations = fmean(device.iterations for device in devices)
        samples = fmean(sum(device.num_samples_list) for device in devices)
        shares = _mean_shares(devices)
        host, _, device_name = name.rpartition("/")
        step, whole = (devices[0].run.step_time, devices[0].run.whole_batch) if devices[0].run else (None, None)
        waits = [wait for device in devices for wait in device.wait_list if wait is not None]
        hidden = fmean(use.hidden for use in uses)
        figures = overruns.get(name)
        share = figures.overrun_share if figures else None
        missing = sum(device.missing_rounds for device in devices)
        sent, received = (
            fmean(sum(getattr(device, f"bytes_{kind}_list")) for device in devices)
            if all(getattr(device, f"bytes_{kind}_list") for device in devices)
            else None
            for kind in ("sent", "received")
        )
        rows.append(
            [
                Cell(device_name, host),
                Cell(
                    _step(compute / iterations) if iterations and compute else UNKNOWN,
                    f"emulates {_step(step)}{f' for {whole} samples' if whole else ''}" if step else "",
                ),
                Cell(f"{samples / compute:,.1f}" if compute else UNKNOWN, "while it computes" if compute else ""),
                Cell(f"{fmean(device.rounds for device in devices):,.0f}", f"{missing} missing" if missing else ""),
                f"{samples:,.0f}",
                Cell(" / ".join(f"{100 * part:.0f}" for part in shares) + " %", shares=shares),
                Cell(_step(fmean(waits)) if waits else UNKNOWN, f"longest {_step(max(waits))}" if waits else ""),
                Cell(
                    duration(fmean(use.exchange for use in uses)),
                    f"and {duration(hidden)} hidden" if hidden > 0.05 else "",
                ),
                Cell(_bytes_text(sent), f"{_bytes_text(received)} received" if received is not None else ""),
                UNKNOWN if share is None else f"{100 * share:.1f} %",
            ]
        )
    return Table(
        [
            group_label(group) if several else "device",
            "an iteration",
            "samples/s",
            f"{unit}s",
            "samples",
            "computing / waiting / transferring",
            f"wait {'an' if unit == 'exchange' else 'a'} {unit}",
            "transferring",
            "sent",
            "overruns",
        ],
        rows,
        note="Means of the group's runs." if len(group.counted) > 1 else "",
    )


def _step(seconds: float) -> str:
    if seconds >= 0.1:
        return f"{seconds:.2f} s" if seconds < 100 else duration(seconds)
    return f"{1000 * seconds:.{1 if seconds < 0.0995 else 0}f} ms"


def _bytes_text(amount: float | None) -> str:
    if amount is None:
        return UNKNOWN
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:.3g} TB"


def _runs(section: Compared) -> Table:
    rows: list[list[str | Cell]] = []
    for group in section.groups:
        for run in group.runs:
            figures = run.figures
            notes = [figures.invalid or "", "" if run.finished is not False else "not finished"]
            rows.append(
                [
                    Cell(str(run.folder), "; ".join(filter(None, notes)), line_style(group)),
                    group.label,
                    UNKNOWN if run.seed is None else str(run.seed),
                    f"{figures.rounds:,}",
                    duration(figures.total_time),
                    "not reached" if figures.time_to_target is None else duration(figures.time_to_target),
                    UNKNOWN if figures.final_accuracy is None else figures.metric.text(figures.final_accuracy),
                    UNKNOWN if figures.throughput is None else f"{figures.throughput:,.1f}",
                    UNKNOWN if figures.efficiency is None else f"{100 * figures.efficiency:.1f} %",
                ]
            )
    final = f"final {section.metric.name}"
    return Table(
        ["run", "group", "seed", "rounds", "duration", "to the target", final, "samples/s", "efficiency"], rows, 2
    )


def _options(section: Compared, suffix: str) -> list[Section]:
    """Return the options that differ between the groups, and those that all runs have in common."""
    sections = []
    if section.differing:
        differing: list[list[str | Cell]] = [
            [name, *(shown(value) for value in values)] for name, values in section.differing.items()
        ]
        columns = ["option", *(group.label for group in section.groups)]
        sections.append(Section(f"What differs{suffix}", [Table(columns, differing, len(columns))]))
    runs = section.runs
    common: list[list[str | Cell]] = [*_facts(runs)]
    for name, value in sorted(runs[0].options.items()):
        if name != "seed" and all(run.options.get(name) == value for run in runs):
            common.append([name, shown(value)])
    if common:
        title = "Options, versions and seeds" if len(runs) == 1 else "Common options, versions and seeds"
        sections.append(Section(f"{title}{suffix}", [Table(["what", "value"], common, 2)], folded=True))
    return sections


def _facts(runs: Sequence[LoggedRun]) -> list[list[str | Cell]]:
    """Return seeds, versions, and the size of the model."""
    values: dict[str, dict[str, None]] = {}  # ordered sets
    for run in runs:
        if run.seed is not None:
            values.setdefault("seed" if len(runs) == 1 else "seeds", {})[str(run.seed)] = None
        versions = run.facts.get("versions")
        for program, version in (versions if isinstance(versions, dict) else {}).items():
            values.setdefault(f"version of {program}", {})[str(version)] = None
        for name, words in (("parameters", "parameters of the model"), ("model_bytes", "bytes of the model")):
            if isinstance(size := run.facts.get(name), int):
                values.setdefault(words, {})[f"{size:,}"] = None
    return [[name, ", ".join(distinct)] for name, distinct in values.items()]


def _events(runs: Sequence[LoggedRun], events: RunEvents) -> list[tuple[str, str]]:
    many = len(runs) > 1
    return [
        (when, f"{run.folder}: {text}" if many else text) for run in runs for when, text in events.get(run.folder, ())
    ]
