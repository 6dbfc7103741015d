"""A comparison of runs as text in Markdown: differing options, means, and differences."""

from collections.abc import Iterator

from rich.table import Column

from ..runtime.terminal import UNKNOWN, UNLIMITED, markdown, right
from .comparison import Comparison
from .estimates import LEVEL, Difference
from .grouping import shown
from .modes import BASELINE, BASELINE_LABEL, STANDALONE, STANDALONE_LABEL
from .run_groups import Group, Quantity, Section
from .speedups import best_alone, slower_than_fastest

#: Explanation of the column "limit" of the speedups.
LIMIT = "limit = sum of the devices' speeds ÷ that of the one device alone"
#: Largest length of an option's value in characters; longer ones, such as lists of devices, are cut.
_VALUE_LENGTH = 60


def comparison_text(comparison: Comparison, width: int = UNLIMITED) -> str:
    """Return the tables of all sections, in lines of that many characters."""
    return "\n".join(section_text(section, width) for section in comparison.sections)


def section_text(section: Section, width: int = UNLIMITED) -> str:
    """Return the tables of runs that can be compared with one another."""
    text = results_text(section, width)
    if section.differing:
        text += f"\nWhat differs in their options\n\n{_options_table(section, width)}"
    if len(section.groups) > 1:
        reference = section.groups[0].label
        text += f"\nDifference from {reference} [{LEVEL:.0%} confidence interval]\n\n"
        text += _differences_table(section, width)
        tested = sum(1 for _, _, difference in _differences(section) if difference.beyond_chance is not None)
        if tested > 1:
            text += (
                f"\nEach of these {tested} verdicts is wrong in up to {1 - LEVEL:.0%} of the cases where there is no "
                "difference.\n"
            )
    return text


def results_text(section: Section, width: int = UNLIMITED) -> str:
    """Return the table of the groups' means, and that of their speedups."""
    title = ", ".join(part for part in (section.network, section.dataset, section.metric.label) if part)
    runs = len(section.runs)
    text = f"{title}: {runs} run{'s' * (runs > 1)}"
    if runs > len(section.groups):
        text += f", mean ± standard deviation [{LEVEL:.0%} confidence interval of the mean]"
    return f"{text}\n\n{means_table(section, width)}{_speedups_text(section, width)}"


def means_table(section: Section, width: int = UNLIMITED) -> str:
    """Return the table of the groups' means: one row per group, or per mean if that is too wide."""
    columns: list[str | Column] = [
        "runs",
        right("n"),
        *(right(quantity.heading) for quantity in section.quantities),
        "note",
    ]
    rows = [_means_row(section, group) for group in section.groups]
    text = markdown(columns, rows)
    if max(map(len, text.splitlines())) <= width:
        return text
    headings = [column.header if isinstance(column, Column) else column for column in columns]
    means = [
        [row[0], row[1], str(heading), cell]
        for row in rows
        for heading, cell in zip(headings[2:], row[2:], strict=True)
        if cell not in ("", UNKNOWN)
    ]
    return markdown(["runs", right("n"), "figure", "mean"], means, width)


def _means_row(section: Section, group: Group) -> list[str]:
    cells = [" ".join(filter(None, section.mean_texts(group, quantity))) for quantity in section.quantities]
    if group.invalid:
        cells = [f"({cell})" if cell != UNKNOWN else cell for cell in cells]
    left_out = len(group.runs) - len(group.counted)
    notes = [group.invalid] if group.invalid else []
    notes += [f"{left_out} invalid run{'s' * (left_out > 1)} left out"] if left_out else []
    if any(run.figures.bytes_estimated for run in group.counted):
        notes.append("traffic estimated, push only")
    if missing := sum(run.figures.missing_rounds for run in group.counted):
        notes.append(f"{missing} rounds missing from the logs: samples/s and MB/s are too low")
    return [group.label, str(len(group.counted)), *cells, "; ".join(notes)]


def _speedups_text(section: Section, width: int) -> str:
    """Return the table of speedups, or the limits if no run was on the fastest device alone."""
    figures = [group.figures for group in section.groups]
    columns, rows = speedup_rows(section)
    text = ""
    if rows:
        headings: list[str | Column] = [columns[0], *map(right, columns[1:])]
        target = "the target" if section.target is None else f"{section.target:g}"
        text = f"\nSpeedup: mean time to {target} of the baseline ÷ own; {LIMIT}\n\n{markdown(headings, rows, width)}"
    if (alone := best_alone(figures)) and (faster := slower_than_fastest(alone, figures)):
        text += f"\n{alone.mode.label} was not on the fastest device, which is {faster.name}.\n"
    if alone is None:
        clusters = {
            figure.fastest.name: figure.speedup_limit
            for figure in figures
            if figure.fastest and len(figure.devices) > 1
        }
        text += "".join(
            f"\nlimit = {limit:.2f}: sum of the devices' speeds ÷ that of the fastest one, {name}; "
            "a run of --mode local on it alone is the baseline to compare with\n"
            for name, limit in sorted(clusters.items())
        )
    return text


def speedup_rows(section: Section) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows of the speedups over the baselines among the groups.

    There are no rows without a baseline, or with a single group.
    """
    names = {group.mode.name for group in section.groups}
    baselines = [name for name in (STANDALONE, BASELINE) if name in names]
    if len(section.groups) < 2 or not baselines:
        return [], []
    rows = []
    for group in section.groups:
        cells = [group.label]
        for name in baselines:
            cells.append(section.speedup(group, name).text)
        limit = section.speedup(group, STANDALONE).limit or group.figures.speedup_limit
        rows.append([*cells, UNKNOWN if limit is None else f"{limit:.2f}×"])
    labels = {STANDALONE: f"over {STANDALONE_LABEL}", BASELINE: f"over {BASELINE_LABEL}"}
    return ["runs", *(labels[name] for name in baselines), "limit"], rows


def _options_table(section: Section, width: int) -> str:
    columns = ["option", *(group.label for group in section.groups)]
    return markdown(columns, ([name, *map(_value, values)] for name, values in section.differing.items()), width)


def _value(value: object) -> str:
    text = shown(value)
    return text if len(text) <= _VALUE_LENGTH else f"{text[: _VALUE_LENGTH - 1]}…"


def _differences_table(section: Section, width: int) -> str:
    columns: list[str | Column] = ["runs", "figure", right("difference"), right("share"), right("interval"), "verdict"]
    rows = []
    for group, quantity, difference in _differences(section):
        share = UNKNOWN if difference.share is None else f"{difference.share:+.1%}"
        rows.append(
            [
                group.label,
                quantity.heading,
                quantity.text(difference.value, True) + quantity.unit.replace("%", "points"),
                share,
                quantity.interval_text(difference, True) or UNKNOWN,
                verdict(difference),
            ]
        )
    return markdown(columns, rows, width)


def _differences(section: Section) -> Iterator[tuple[Group, Quantity, Difference]]:
    for group in section.groups[1:]:
        for quantity in section.quantities:
            difference = section.difference(group, quantity)
            if difference is not None:
                yield group, quantity, difference


def verdict(difference: Difference) -> str:
    """Return in words whether a difference is significant."""
    match difference.beyond_chance:
        case None:
            return "not known: a single run"
        case True:
            return "more than chance"
        case _:
            return "may be chance"
