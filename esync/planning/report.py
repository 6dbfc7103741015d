"""A plan as text for the terminal, and as data for JSON."""

import shlex
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from rich.table import Column
from rich.text import Text

from .. import config
from ..algorithms.registry import ALGORITHMS, flags_of
from ..launch import flags
from ..launch.workers import device_folders
from ..runtime.terminal import UNKNOWN, TerminalTable, right
from .accuracy import measured_accuracy
from .candidates import COLLECTIVE, DESCRIPTION_KEYS, STRIPPED, Candidate, PlanClass
from .forecast import Forecast, batch_size_of
from .ranking import Plan, Ranking

#: Maximum width of a line of text in characters.
_WIDTH = 96
#: Minimum width of the column "method", and width of the other columns of the table.
_METHOD_WIDTH, _FIGURES_WIDTH = 24, 81
#: Factor of a learning rate up to which it counts as the same.
_SAME_RATE = 1.25
#: Width of the column with the time to the target.
_TIME_WIDTH = 10
#: Figures of a forecast under their own names in JSON.
_JSON_FIGURES = (
    *("throughput", "worth", "useful", "efficiency", "round_time", "wait", "traffic"),
    *("learning_rate_factor", "time_to_target", "suited_time"),
)


def method(plan: Plan, candidate: Candidate) -> str:
    """Return the name of a candidate: its mode with its flags, or the devices that take part."""
    if candidate.ranks is None:
        return _settings(candidate)
    if len(candidate.ranks) == 1:
        return f"{_settings(candidate)} on {_devices(plan, candidate.ranks)[0]}"
    return f"{_settings(candidate)}, {len(candidate.ranks)} fastest devices"


def _settings(candidate: Candidate) -> str:
    """Return a candidate's mode with its flags, and what is not a flag: exchanges per host, batches by speed."""
    if candidate.preset:
        return f"--preset {candidate.preset}"
    keys = [key.replace("_", " ") for key in DESCRIPTION_KEYS if getattr(candidate, key)]
    return ", ".join([" ".join([candidate.mode, *_words(candidate)]), *keys])


def _words(candidate: Candidate) -> list[str]:
    """Return the flags of a candidate beside its mode, as words of a command line."""
    settings = {"mode": candidate.mode, **candidate.variation}
    return flags.to_arguments(settings)[2:]


def _devices(plan: Plan, ranks: Sequence[int]) -> list[str]:
    workers = plan.description.workers
    folders = device_folders(workers)
    return [f"{workers[rank].host}/{folders[rank]}" for rank in ranks]


def table(plan: Plan, show_all: bool, width: int) -> TerminalTable:
    """Return the ranking as a table.

    Args:
        plan: the plan.
        show_all: show all methods of each class, not only the best.
        width: characters of a line.
    """
    target = plan.training.target
    room = max(_METHOD_WIDTH, width - _FIGURES_WIDTH - (_TIME_WIDTH if target else 0))
    figures = ["samples/s", "useful", *([f"to {target}"] if target else []), "efficiency", "round", "wait", "MB/s"]
    columns = TerminalTable(
        Column("method", no_wrap=True),  # its cells are wrapped below
        *map(right, figures),
        Column("bottleneck", overflow="fold"),
    )
    blank = [""] * (len(figures) + 1)
    for plan_class, members in plan.ranking.classes.items():
        columns.add(textwrap.fill(plan_class.value, room), *blank, style="bold")
        shown = [
            member
            for index, member in enumerate(members)
            if show_all or index < config.PLAN_SHOWN or not member.candidate.variation or member.candidate.preset
        ]
        for forecast in shown:
            mark = "*" if forecast is plan.ranking.recommended else " "
            name = textwrap.fill(
                f"{mark} {method(plan, forecast.candidate)}", room, subsequent_indent="    ", break_on_hyphens=False
            )
            columns.add(Text(name), *_figures(forecast))
        if len(shown) < len(members):
            columns.add(f"  … and {len(members) - len(shown)} more (--all)"[:room], *blank, style="dim")
    return columns


def _figures(forecast: Forecast) -> tuple[str, ...]:
    bottleneck = forecast.bottleneck
    location = f" {bottleneck.where}" if bottleneck.where else ""
    return (
        rate(forecast.throughput),
        rate(forecast.useful),
        *([] if forecast.time_to_target is None else [seconds(forecast.time_to_target)]),
        f"{forecast.efficiency:.0%}",
        seconds(forecast.round_time),
        seconds(forecast.wait),
        f"{forecast.traffic / 1e6:.3g}",
        f"{bottleneck.cause.value}{location} ({bottleneck.share:.0%})",
    )


def rate(value: float) -> str:
    """Format samples per second with at least three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def seconds(value: float) -> str:
    """Format a time with two or three digits, in milliseconds below 0.1 s."""
    if 0 < value < 0.1:
        return f"{value * 1000:.3g} ms"
    return f"{value:.0f} s" if value >= 100 else f"{value:.3g} s"


#: Name of the description that the user is to write, without the devices that a recommendation leaves out.
COPY = "fast_devices.yaml"


def recommendation(plan: Plan, file: str) -> list[str]:
    """Return the recommendation, and the command to run, as lines of text."""
    best = plan.ranking.recommended
    lines = [f"Recommended: {method(plan, best.candidate)} ({best.plan_class.value}): {reasons(plan.ranking)}"]
    lines += [*left_out(plan, best.candidate), *_chosen(plan, best), *_rate_of(best)]
    for other in plan.ranking.every:
        if other.candidate.preset and other is not best:
            lines += _chosen(plan, other, f"--preset {other.candidate.preset} would choose")
    lines.append("")
    return [*lines, *(f"    {line}" for line in command(plan, best.candidate, file)), ""]


def _chosen(plan: Plan, forecast: Forecast, who: str = "It will choose") -> list[str]:
    """Return a line about the settings that the state server would choose, if it chooses any."""
    settings = forecast.settings
    if not settings:
        return []
    iterations = "1 iteration" if settings["iterations"] == 1 else f"{settings['iterations']} iterations"
    parts = [f"{iterations} of the slowest device that rounds wait for", f"compression {settings['compression']}"]
    resting = settings.get("left_out", [])
    if resting:
        parts.append(f"left out: {', '.join(_devices(plan, resting))}")
    if unawaited := [rank for rank in settings.get("aside", []) if rank not in resting]:
        parts.append(f"rounds do not wait for {', '.join(_devices(plan, unawaited))}")
    return [f"{who}: {'; '.join(parts)}"]


def _rate_of(forecast: Forecast) -> list[str]:
    """Return a line about the learning rate that suits a method, unless it is that of one device alone."""
    factor, times = forecast.learning_rate_factor, (forecast.suited_time, forecast.time_to_target)
    if factor < _SAME_RATE:
        return []
    rate_text = f"{factor:.2g} times the learning rate that suits one device alone"
    if times[0] is None or times[1] is None:
        return [f"Useful samples/s are those with {rate_text}"]
    return [f"With the program's learning rate; with {rate_text}, {seconds(times[0])} instead of {seconds(times[1])}"]


def left_out(plan: Plan, candidate: Candidate) -> list[str]:
    """Return a line about the devices that are not used, with their shares of the speed."""
    alike: dict[str, list[int]] = {}
    for rank, share in enumerate(plan.shares):
        if candidate.ranks is not None and rank not in candidate.ranks:
            alike.setdefault(f"{share:.1%}", []).append(rank)
    if not alike:
        return []
    parts = [
        f"{', '.join(_devices(plan, ranks))} ({share}{' each' * (len(ranks) > 1)})" for share, ranks in alike.items()
    ]
    return [f"Left out, with their shares of the devices' speed: {', '.join(parts)}"]


def reasons(ranking: Ranking) -> str:
    """Return how the recommended method compares with the best of each other class."""
    best = ranking.recommended
    parts = [f"{rate(best.throughput)} samples/s{_worth_of(best)}"]
    before = True
    for plan_class in PlanClass:
        other = ranking.best(plan_class)
        if plan_class is best.plan_class:
            before = False
        elif other is not None and before:
            ratio = best.useful / other.useful
            parts.append(f'{ratio:.3g} times as fast as the best of "{plan_class.value}"')
        elif other is not None:
            more = other.throughput / best.throughput
            but = (
                f"has {more:.3g} times the samples/s{_worth_of(other)}, and " if more > 1 > other.worth + 0.005 else ""
            )
            parts.append(f'the best of "{plan_class.value}" {but}is {_gain(other.useful / best.useful - 1)}')
    return "; ".join(parts)


def _worth_of(forecast: Forecast) -> str:
    """Return the worth of a sample in words; "" if it is that of sequential SGD."""
    return f", each worth {forecast.worth:.0%} of one on one device alone" if forecast.worth < 0.995 else ""


def _gain(share: float) -> str:
    """Return in words how much faster a method of a later class is than the recommended one."""
    if share <= 0:
        return f"{abs(share):.0%} slower"
    return f"only {share:.0%} faster (more than {config.PLAN_GAIN:.0%} would make up for its deviation from SGD)"


def command(plan: Plan, candidate: Candidate, file: str) -> list[str]:
    """Return the command that runs a candidate, after comments on manual preparations."""
    described = plan.description
    lines = []
    if candidate.ranks is not None:
        devices = _devices(plan, candidate.ranks)
        note = f"only {devices[0]}" if len(devices) == 1 else f"only {', '.join(devices)}"
        if len(devices) < len(described.workers):
            lines.append(f"# in a copy of {file}, {COPY}, with {note} among its workers:")
            file = COPY
    if described.state_server is None and ALGORITHMS[candidate.mode].instead_of_state_server:
        lines.append("# with a section state_server: {host: …}")
    for key in DESCRIPTION_KEYS:
        if candidate.preset and key == "per_host" and described.per_host is None:
            continue  # a preset sets it
        if (chosen := getattr(candidate, key)) != bool(getattr(described, key)):
            lines.append(f"# {f'with {key}: true' if chosen else f'without {key}'} in {file}:")
    if COLLECTIVE in candidate.flags:
        lines.append("# needs MPICH and mpi4py on every host (docs/how-to/collectives.md)")
    settings = {"preset": candidate.preset} if candidate.preset else dict(candidate.flags)
    undo, by_hand = _settings_to_undo(plan, candidate)
    if by_hand:
        lines.append(f"# without {', '.join(by_hand)} in the section train of {file}:")
    words = flags.to_arguments({**settings, **({} if described.program else undo)})
    lines.append(shlex.join(["esync", "launch", file, *words, *(["--", *plan.program] if plan.program else [])]))
    return lines


def _settings_to_undo(plan: Plan, candidate: Candidate) -> tuple[dict[str, Any], list[str]]:
    """Return flags that override the description's varied flags, and names of those that none overrides."""
    options = flags_of(ALGORITHMS[candidate.mode])
    undo, by_hand = {}, []
    for name, value in plan.description.train.items():
        if (
            name not in STRIPPED
            or name in candidate.flags
            or (name in flags.all_flags() and name not in {*options, COLLECTIVE})
        ):
            continue
        default = options[name].default if name in options else config.COLLECTIVE
        if value == default:
            continue
        if flags.is_switch(name) or default is None:
            by_hand.append(name)
        elif name != "run_ahead":
            undo[name] = default
    return undo, by_hand


def best_of_classes(plan: Plan, width: int = _WIDTH) -> list[str]:
    """Return the accuracy of the best method of each class, and how to make it faster.

    Args:
        plan: the plan.
        width: characters of a line.
    """
    lines = []
    for members in plan.ranking.classes.values():
        best = members[0]
        accuracy = measured_accuracy(best.candidate)
        lines.append(f"{best.plan_class.value}: {method(plan, best.candidate)}")
        texts = {"i.i.d.": accuracy.iid, "skewed": accuracy.skewed, "faster": best.bottleneck.remedy}
        for title, text in texts.items():
            lines += textwrap.wrap(
                text, min(width, _WIDTH), initial_indent=f"    {title:<9}", subsequent_indent=" " * 13
            )
    return [
        *lines,
        _noise_line(plan),
        "Accuracies, if nothing else is said, are of a perceptron on Fashion-MNIST after equally many samples "
        "(docs/results/beyond.md, docs/results/esync.md); they were measured there, "
        "not predicted for this cluster.",
    ]


def _noise_scale(plan: Plan) -> float:
    """Return the median of the gradient noise scale in samples."""
    return float(np.median(plan.training.noise_scales)) * batch_size_of(plan.description)


def _noise_line(plan: Plan) -> str:
    """Return where the worth of a sample comes from."""
    typical = f"{_noise_scale(plan):,.0f} samples"
    source = f"the default gradient noise scale, {typical}; --from-logs takes the one that a run has measured"
    if plan.training.measured:
        source = f"the gradient noise scale in the logs, {typical} in the median"
    return (
        f"useful: samples/s × what a sample is worth beside one of one device alone, by {source} (docs/how-to/plan.md)."
    )


def what_if_table(plan: Plan) -> TerminalTable:
    """Return a table of the requested changes, by gain."""
    base = plan.ranking.recommended
    figures = map(right, ("gain", "samples/s", "useful"))
    columns = TerminalTable("what if", *figures, Column("recommended then", overflow="fold"))
    columns.add("as described", "", rate(base.throughput), rate(base.useful), method(plan, base.candidate))
    for what_if in plan.what_ifs:
        best = what_if.ranking.best(base.plan_class)
        recommended = what_if.ranking.recommended
        name = _settings(recommended.candidate)
        if recommended.candidate.ranks is not None:
            count = len(recommended.candidate.ranks)
            name += f", {count} fastest devices" if count > 1 else " on one device"
        also = "" if recommended is best else f", {rate(recommended.throughput)} samples/s"
        columns.add(
            what_if.text,
            UNKNOWN if what_if.gain is None else f"{what_if.gain - 1:+.1%}",
            UNKNOWN if best is None else rate(best.throughput),
            UNKNOWN if best is None else rate(best.useful),
            f"{name} ({recommended.plan_class.value}{also})",
        )
    return columns


def notes(plan: Plan) -> list[str]:
    """Return lines about omitted modes and failures, with the reasons."""
    lines = list(plan.notes)
    lines += [f"{name}: as fast as {other}" for name, other in plan.twins.items()]
    lines += [f"{name}: not simulated: {reason}" for name, reason in plan.excluded.items()]
    lines += [f"{method(plan, candidate)}: failed: {reason}" for candidate, reason in plan.ranking.failed]
    return lines


def as_json(plan: Plan, file: str) -> dict[str, Any]:
    """Return the plan as data for JSON; times in seconds, traffic in bytes per second."""
    best = plan.ranking.recommended
    return {
        "cluster": file,
        "target": plan.training.target or None,
        "noise_scale": {"measured": plan.training.measured, "median": _noise_scale(plan)},
        "recommended": {**_row(plan, best), "command": command(plan, best.candidate, file)},
        "shares": dict(zip(_devices(plan, range(len(plan.shares))), plan.shares, strict=True)),
        **_ranking(plan, plan.ranking),
        "what_if": [
            {"change": what_if.text, "gain": what_if.gain, "recommended": _row(plan, what_if.ranking.recommended)}
            | _ranking(plan, what_if.ranking)
            for what_if in plan.what_ifs
        ],
        "not_simulated": dict(plan.excluded),
        "equally_fast": dict(plan.twins),
        "notes": list(plan.notes),
    }


def _ranking(plan: Plan, ranking: Ranking) -> dict[str, Any]:
    return {
        "limit": ranking.limit,
        "classes": {
            plan_class.name.lower(): [_row(plan, member) for member in members]
            for plan_class, members in ranking.classes.items()
        },
        "failed": [{"flags": dict(candidate.flags), "reason": reason} for candidate, reason in ranking.failed],
    }


def _row(plan: Plan, forecast: Forecast) -> dict[str, Any]:
    return {
        "method": method(plan, forecast.candidate),
        "class": forecast.plan_class.name.lower(),
        "flags": dict(forecast.candidate.flags),
        "workers": None if forecast.candidate.ranks is None else list(forecast.candidate.ranks),
        **{key: getattr(forecast.candidate, key) for key in DESCRIPTION_KEYS},
        **{name: getattr(forecast, name) for name in _JSON_FIGURES},
        "chosen_settings": forecast.settings,
        "bottleneck": {
            **asdict(forecast.bottleneck),
            "cause": forecast.bottleneck.cause.name.lower(),
            "remedy": forecast.bottleneck.remedy,
        },
        "accuracy": asdict(measured_accuracy(forecast.candidate)),
    }
