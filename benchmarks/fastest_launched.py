"""Is `--preset fast` slower with real processes than what an expert would have chosen?

    python benchmarks/fastest_launched.py [--seeds 3] [--json FILE]

Three workers of 0.03, 0.05 and 0.3 s an iteration and a host for scheduler, parameter server and state server are
network namespaces of this machine at 200 Mbit/s (it takes root, iproute2 and sshd), in which launch starts the
processes by ssh. They train a narrow ResNet-18 of 2.8 MB on Fashion-MNIST to an accuracy of 0.88 on 2,000 test
images, with batches of 24, so that two cores have done the iterations in time. Compared are the fastest device alone,
with and without averaged weights, at three rates each, `esync`, a grid of mode tiered (interval × compression,
momentum 0.9), and the preset without further flags. Each setting is tried with seed 0; the best one of each method
that reaches the accuracies is run with the seeds 1, 2 and so on. It needs two cores that have nothing else to do, and
takes about half an hour.
"""

import json
import math
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from harness import program
from harness.figures import markdown_table, mean_ratio, mean_time, read_figures, spread_or_missed, write_figures
from harness.machine_cluster import HUB, MachineCluster
from harness.paper_runs import NARROW
from namespaces import Machines, missing

from esync.arguments import count
from esync.reports.runs import find_runs

#: Host → seconds of an iteration of its worker.
WORKERS = {"ant": 0.03, "bee": 0.05, "cat": 0.3}
MEGABITS = 200
#: Rate, on the gradient summed over the batch: the best of one device, which the preset is given.
BATCH_SIZE, RATE = 24, 0.001
#: Accuracies whose times are compared; the last one ends a run.
TARGETS = (0.85, 0.88)
#: Seconds after which a run ends without it.
LONGEST = 120.0
RESULT = program.RESULTS / "fastest-device" / "launched.json"
ALONE, AVERAGED, GRID, PRESET = "alone", "averaged", "grid", "preset"


@dataclass(frozen=True)
class Setting:
    """A method with flags of launch."""

    method: str
    flags: tuple[str, ...]

    @property
    def name(self) -> str:
        """Key of its figures, without the seed."""
        return " ".join([self.method, *self.flags])


def _rates(method: str, *flags: str) -> list[Setting]:
    return [Setting(method, ("--mode=local", f"--learning-rate={RATE * factor:g}", *flags)) for factor in (0.5, 1, 2)]


def _tiered(*flags: str) -> Setting:
    return Setting(GRID, ("--mode=tiered", *flags, "--overlap", "--momentum=0.9"))


SETTINGS = [
    *_rates(ALONE),
    *_rates(AVERAGED, "--weight-average=polynomial"),
    Setting("esync", ("--mode=esync",)),
    *(
        _tiered(f"--slowest-iterations={interval}", f"--compression={bits}", *flags)
        for intervals, flags in (((8, 16), ("--leave-out=2",)), ((2,), ()))
        for interval, bits in product(intervals, ("fp16", "2bit"))
    ),
    Setting(PRESET, ("--preset=fast",)),
]
METHODS = tuple(dict.fromkeys(setting.method for setting in SETTINGS))


def measure(cluster: MachineCluster, setting: Setting, seed: int) -> dict[str, Any]:
    """Launch a run; return its times to the accuracies and its samples per second."""
    file = cluster.describe("cluster.yaml", (0,) if setting.method in (ALONE, AVERAGED) else None)
    logs = cluster.folder / "logs"
    shutil.rmtree(logs, ignore_errors=True)
    words = [*setting.flags, f"--seed={seed}", f"--max-time={LONGEST:g}", f"--log-dir={logs}", "--quiet"]
    cluster.esync("launch", str(file), *words)
    figures = find_runs([logs])[0].figures
    points = list(zip(figures.times, figures.accuracies, strict=True))
    times = [min((at for at, value in points if value >= target), default=None) for target in TARGETS]
    return {"times": times, "throughput": figures.throughput, "late": figures.overrun_share}


def times(figure: Mapping[str, Any]) -> list[float]:
    """Return the seconds to the targets; infinite for one that was not reached."""
    return [math.inf if seconds is None else seconds for seconds in figure["times"]]


def best(figures: Mapping[str, Any], method: str) -> tuple[Setting, bool]:
    """Return the setting of a method that was soonest with seed 0, and whether it reached every accuracy."""
    tried = {s: times(figures[f"{s.name} seed 0"]) for s in SETTINGS if s.method == method}
    chosen = min(tried, key=lambda setting: mean_time(tried[setting], LONGEST))
    return chosen, math.inf not in tried[chosen]


def table(figures: Mapping[str, Any], seeds: int) -> str:
    """Return the mean times of each method's best setting, and how they compare with one device and with the grid.

    A method that missed an accuracy with seed 0 is shown with that seed.
    """
    rows: list[list[str]] = []
    measured: dict[str, list[list[float]]] = {}  # method → times of each seed
    for method in METHODS:
        setting, reached = best(figures, method)
        runs = [figures[f"{setting.name} seed {seed}"] for seed in (range(1, seeds + 1) if reached else (0,))]
        measured[method] = [times(run) for run in runs]
        cells = [spread_or_missed(values) for values in zip(*measured[method], strict=True)]
        throughput = statistics.fmean(run["throughput"] for run in runs)
        rows.append([method, " ".join(setting.flags), *cells, f"{throughput:.0f}"])
    for row in rows:
        row += [ratio(measured[other], measured[row[0]]) for other in (ALONE, AVERAGED)]
        row.append(ratio(measured[row[0]], measured[GRID]))
    heads = ["", "flags", *(f"seconds to {target:g}" for target in TARGETS), "samples/s", "alone ÷ this"]
    return markdown_table([*heads, "averaged ÷ this", "this ÷ best of the grid"], rows)


def ratio(seeds: Sequence[Sequence[float]], others: Sequence[Sequence[float]]) -> str:
    """Return the geometric mean over seeds and accuracies of times by others, as text."""
    return mean_ratio((a, b) for pair in zip(seeds, others, strict=False) for a, b in zip(*pair, strict=True))


def main() -> int:
    """Run what has not been run, and print the table."""
    parser = program.parser(__doc__, RESULT)
    parser.add_argument("--seeds", type=count, default=3, help="that are reported (default: %(default)s)")
    options = parser.parse_args()
    if why := missing():
        print(why, file=sys.stderr)
        return 2
    figures: dict[str, Any] = read_figures(options.json)
    train = {
        "network": NARROW,
        "batch_size": BATCH_SIZE,
        "learning_rate": RATE,
        "local_lr": RATE,
        "test_images": 2000,
        "target_accuracy": TARGETS[-1],
        "no_export": True,
        "data_dir": str(program.ROOT / "data"),
    }
    with (
        tempfile.TemporaryDirectory(prefix="launched-") as name,
        Machines(Path(name) / "network", (HUB, *WORKERS)) as machines,
    ):
        cluster = MachineCluster(Path(name), machines, WORKERS, MEGABITS, train)

        def run(setting: Setting, seed: int) -> None:
            key = f"{setting.name} seed {seed}"
            if key not in figures:
                figures[key] = {"load": os.getloadavg()[0], **measure(cluster, setting, seed)}
                write_figures(options.json, figures)
            print(f"{key}: {json.dumps(figures[key])}", flush=True)

        for setting in SETTINGS:
            run(setting, 0)
        for seed, method in product(range(1, options.seeds + 1), METHODS):
            setting, reached = best(figures, method)
            if reached:
                run(setting, seed)
    print(table(figures, options.seeds))
    return 0


if __name__ == "__main__":
    program.run(main)
