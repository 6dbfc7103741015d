"""Log trees as workers write them, made from a few numbers that a test can check by hand."""

import json
import math
from pathlib import Path
from typing import Any

from esync.reports import plot, summarize
from esync.reports.grouping import compare_singly
from esync.reports.metrics_table import RunFigures
from esync.reports.runs import load_network
from tests.support.json_files import read_json

MODEL_BYTES = 44_000_000


def figures_below(network_folder: Path, target: float | None = None) -> list[RunFigures]:
    """Return the figures of a network's runs, as plot shows them."""
    sections = compare_singly(network_folder.name, load_network(network_folder)[0], target)
    return [group.figures for section in sections for group in section.groups]


def plot_logs(base: Path, *words: str, network: str = "lenet") -> int:
    """Run plot on a network's logs."""
    return plot.main(["-b", str(base), "-n", network, *words])


def summarize_logs(base: Path, *words: str, network: str = "lenet") -> int:
    """Run summarize on a network's logs."""
    return summarize.main(["-b", str(base), "-n", network, *words])


def speedups(network_folder: Path) -> dict[str, Any]:
    """Return what plot has written to speedup.json."""
    return read_json(network_folder / "figures/speedup.json")


def write_round(folder: Path, number: int, content: dict | str) -> Path:
    """Write one iter-N.txt; a string is written as it is."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"iter-{number}.txt"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def esync_round(
    number: int,
    total_time: float,
    *,
    iterations: int = 2,
    step_time: float = 1.0,
    exchange: float = 0.5,
    batch_size: int = 64,
    accuracy: float | None = None,
    **added: float,
) -> dict:
    """Return a round of mode esync.

    Without `added` fields, it is what the published implementation writes.
    """
    times: dict[str, dict[str, float]] = {
        str(k): {
            "check ready": 0.001,
            "get_batch": round(0.02 * step_time, 6),
            "forward and backward": round(0.9 * step_time, 6),
            "local update": round(0.05 * step_time, 6),
        }
        for k in range(iterations)
    }
    times[str(iterations)] = {"check ready": 0.001, "global update": exchange}
    return _round(number, times, iterations * batch_size, total_time, accuracy, added)


def sync_round(
    number: int,
    total_time: float,
    *,
    step_time: float = 1.0,
    exchange: float = 0.5,
    batch_size: int = 64,
    accuracy: float | None = None,
    ending: str = "global aggregate",
    **added: float,
) -> dict:
    """A round of mode sync or async, or with ending="local update" of mode local."""
    times = {"0": {"get_batch": round(0.02 * step_time, 6), "forward and backward": step_time, ending: exchange}}
    return _round(number, times, batch_size, total_time, accuracy, added)


def _round(number: int, times: dict, samples: int, total_time: float, accuracy: float | None, added: dict) -> dict:
    log = {"num_iters": number, "time": times, "num_samples": samples, "total_time": total_time}
    if accuracy is not None:
        log["accuracy"] = accuracy
    return log | added


def write_run(
    mode_folder: Path,
    devices: dict[str, float],
    seconds: float,
    *,
    final_accuracy: float = 0.9,
    half_time: float = 60.0,
    overruns: int = 0,
    published: bool = False,
    evaluate_every: int = 1,
    algorithm: Any = None,
    options: dict[str, Any] | None = None,
) -> None:
    """Write a whole run of a mode; the first device evaluates.

    `devices` maps "host/device" to the seconds of an iteration.

    `algorithm` and `options` are what run.json says about these, if anything.
    """
    mode = mode_folder.name.removesuffix("-niid")
    slowest = max(devices.values())
    for index, (name, step_time) in enumerate(devices.items()):
        folder = mode_folder / name
        exchange = 0.4
        lockstep = mode in ("esync", "sync")
        period = (slowest if lockstep else step_time) + exchange
        iterations = math.floor(slowest / step_time) if mode == "esync" else 1
        rounds = math.floor(seconds / period)
        for number in range(1, rounds + 1):
            total = round(number * period, 3)
            waiting = slowest - iterations * step_time if lockstep else 0.0
            added: dict[str, float] = {}
            if not published:
                size = MODEL_BYTES if mode != "local" else 0
                added = {"bytes_sent": size, "bytes_received": size, "wait": waiting, "transfer": exchange}
            accuracy = None
            if index == 0 and number % evaluate_every == 0:
                accuracy = round(0.1 + (final_accuracy - 0.1) * (1 - 0.5 ** (total / half_time)), 4)
            common = {"step_time": step_time, "exchange": exchange + waiting, "accuracy": accuracy, **added}
            if mode == "esync":
                log = esync_round(number, total, iterations=iterations, **common)
            else:
                ending = "local update" if mode == "local" else "global aggregate"
                log = sync_round(number, total, ending=ending, **common)
            write_round(folder, number, log)
        if not published:
            facts = {
                "device": name.split("/")[1],
                "rank": index,
                "workers": len(devices),
                "mode": mode,
                "batch_size": 64,
                "step_time": step_time,
                "iterations": rounds * iterations,
                "overruns": overruns,
                "model_bytes": MODEL_BYTES,
            }
            if algorithm is not None:
                facts["algorithm"] = algorithm
            if options is not None:
                facts["options"] = options
            (folder / "run.json").write_text(json.dumps(facts))
