"""Load the runs of one network from the summaries of its modes."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from .. import config
from ..runtime.metric import Metric
from .algorithm_info import algorithm_info_of
from .discovery import SPEEDUP_FILE, find_devices, holds_rounds, mode_folders, moved_aside
from .metrics_table import RunFigures, common_target, metric_of, run_figures
from .modes import STANDALONE, Mode, mode_of
from .style import checked_style, distinguishable
from .summary_file import Summary, SummaryError, load_summary


def load_runs(
    network_folder: Path, target: float | None, names: Collection[str] = ()
) -> tuple[list[RunFigures], list[str]]:
    """Return the figures of every mode with a usable summary, and the problems of the others.

    Args:
        network_folder: folder of the network's modes.
        target: value of the metric; None: `common_target` chooses one for the runs of each metric.
        names: the modes to load; empty: all of them.
    """
    found: list[tuple[Mode, Summary]] = []
    problems: list[str] = []
    model_bytes = config.PUBLISHED_MODEL_BYTES.get(network_folder.name)
    folders = [folder for folder in mode_folders(network_folder) if not names or mode_of(folder).name in names]
    for folder in sorted(folders, key=lambda folder: mode_of(folder).place()):
        try:
            there = summary_in(network_folder / folder, problems)
            if there and (earlier := moved_aside(find_devices(network_folder / folder)[0])):
                problems.append(f"{folder}: {earlier}")
        except OSError as error:
            problems.append(f"{network_folder / folder} left out: {error.strerror or error}")
            continue
        if there is None:
            continue
        path, summary = there
        facts, wrong = algorithm_info_of(summary)
        mode = mode_of(folder, facts)
        style, wrong_style = checked_style(facts.style, mode.style)
        problems += [f"{path}: {one}" for one in (*wrong, *wrong_style)]
        for name, device in ((name, d) for group in summary.values() for name, d in group.items()):
            if not device.bytes_sent_list and model_bytes and mode.name != STANDALONE:
                device.estimate_bytes(model_bytes)
            if device.accuracy_list and not device.accuracy_rounds:
                problems.append(f"{mode.label}: the accuracies of {name} in {path} have no times; run summarize again")
        found.append((replace(mode, style=style), summary))
    modes = distinguishable([mode for mode, _ in found])
    by_metric: dict[Metric, list[Summary]] = defaultdict(list)
    for _, summary in found:
        by_metric[metric_of(summary)].append(summary)
    targets = {metric: common_target(summaries, target) for metric, summaries in by_metric.items()}
    runs = [
        run_figures(mode, summary, targets[metric_of(summary)]) for mode, (_, summary) in zip(modes, found, strict=True)
    ]
    return runs, problems


def summary_in(folder: Path, problems: list[str]) -> tuple[Path, Summary] | None:
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
        named = [path for path in read if path.stem == mode_of(folder.name, algorithm_info_of(read[path])[0]).summary]
        path = next(iter(named or read))
        problems += [f"{other} left out: {path} is there, too" for other in read if other != path]
        return path, read[path]
    if not candidates and (mode.built_in or holds_rounds(folder)):
        wrong = [f"{expected} is missing; run summarize -m {folder.name} first"]
    problems += [f"{mode.label} left out: {one}" for one in wrong]
    return None
