"""Does `esync plan` foretell what a cluster does, and is what it recommends the best?

    python benchmarks/plan_accuracy.py [--json FILE]            # what has not been measured yet
    python benchmarks/plan_accuracy.py --clusters "100 Mbit"    # one of the clusters
    python benchmarks/plan_accuracy.py --again                  # everything anew
    python benchmarks/plan_accuracy.py --times                  # times to an accuracy, in virtual time
    python benchmarks/plan_accuracy.py --launched-times         # the same of launched programs of examples/

Clusters of workers and a host for scheduler, parameter server and state server. Each host is a
network namespace of this machine with an sshd (it takes root, iproute2 and sshd), whose bandwidth
tc limits; launch and plan run in one more. Devices are emulated by step times.

* equal: four nearly equal devices on a fast network, which nothing limits.
* 1 Gbit: four devices of 1:10 on a network of 1 Gbit/s.
* 100 Mbit: the same devices on a network of 100 Mbit/s.
* two: two workers at 1 Gbit/s. A collective takes a core of each host; two cores have as many hosts.

A run with ResNet-18 would take minutes for a few rounds at 100 Mbit/s. So everything is a fifth of
it: the model, a perceptron of 8.9 MB, and the step times, 0.06 to 0.6 s. The ratios of exchanges to
iterations are those of ResNet-18 (44.7 MB) on devices of 0.3 to 3 s, and the perceptron's own
computing is short enough for two cores, if they have nothing else to do.

On each cluster `esync plan` measures and foretells. Then plain sync and esync, and the first ones
of each class, run for real. Printed are the predicted samples per second by the measured ones, both
without the start, and whether the first of each class is within 5 % of the best one of its class
that has run. For the cluster of 100 Mbit/s the plan also foretells what 1 Gbit/s would bring, which
the second cluster has shown. Exits with 1 where a forecast is further than 10 % from its run.

`--times`: three networks with their optimizers train to 0.82 of Fashion-MNIST on two modelled clusters
with gradients, in modes local, sync and esync, with the same learning rate. From the logs of esync's
run `esync plan` predicts the times of all three. Exits with 1 where one is not within 0.75 and 1.33 of
the run's, or the order is wrong.

`--launched-times`: three programs of examples/ on two clusters of padded devices of this machine, one run of
each mode, two at a time. It takes about 15 minutes.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from harness import plan_times, program
from harness.figures import read_figures, write_figures
from harness.jobs import devices, entries
from harness.machine_cluster import HUB, MachineCluster
from namespaces import Machines, missing
from tiny_dataset import write as write_tiny_dataset

from esync.arguments import count
from esync.planning.candidates import DESCRIPTION_KEYS

WORKERS = ("ant", "bee", "cat", "dog")
EQUAL, UNEQUAL = (0.60, 0.61, 0.62, 0.63), (0.06, 0.12, 0.2, 0.6)
#: Allowed difference of a forecast, and of the first of a class from the best of it.
RATE, FIRST = 0.10, 0.05
#: How many of each class run.
FIRST_OF_CLASS = 2
#: Rounds at the beginning that do not count: processes are still starting.
WARM_UP = 2
RESULT = program.RESULTS / "plan_accuracy.json"
TIMES, LAUNCHED_TIMES = program.RESULTS / "plan_times.json", program.RESULTS / "plan_launched_times.json"
NETWORK = """\
import mxnet as mx

def fifth(classes):
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Dense(2812, activation="relu"), mx.gluon.nn.Dense(classes))
    return net
"""


@dataclass(frozen=True)
class Case:
    """A cluster.

    Attributes:
        steps: seconds of an iteration of each worker.
        megabits: of every host's port; None: nothing limits it.
        seconds: of each real run.
        what_if: a change that is predicted, and the cluster that has it.
    """

    steps: Sequence[float]
    megabits: int | None
    seconds: float = 25.0
    what_if: tuple[str, str] | None = None


CASES = {
    "equal": Case(EQUAL, None),
    "1 Gbit": Case(UNEQUAL, 1000),
    # A synchronous round takes six seconds.
    "100 Mbit": Case(UNEQUAL, 100, 75.0, ("network=1Gbit", "1 Gbit")),
    "two": Case((0.1, 0.12), 1000),
}


class Cluster(MachineCluster):
    """A cluster of a case, whose workers train a perceptron on a tiny dataset.

    Args:
        folder: of all its files.
        case: what it is like.
        machines: the hosts.
    """

    def __init__(self, folder: Path, case: Case, machines: Machines) -> None:
        write_tiny_dataset(folder / "data")
        (folder / "nets.py").write_text(NETWORK)
        train = {
            "network": f"{folder / 'nets.py'}:fifth",
            "batch_size": 8,
            "learning_rate": 1e-4,
            "local_lr": 1e-4,
            "no_evaluation": True,
            "no_export": True,
            "data_dir": str(folder / "data"),
        }
        super().__init__(folder, machines, dict(zip(WORKERS, case.steps, strict=False)), case.megabits, train)

    def plan(self, *flags: str) -> dict[str, Any]:
        """Measure the cluster; return the plan."""
        written = self.folder / "plan.json"
        self.esync("plan", str(self.describe("cluster.yaml")), "--json", str(written), *flags)
        plan: dict[str, Any] = json.loads(written.read_text())
        return plan

    def rate(self, row: Mapping[str, Any], seconds: float) -> float:
        """Run what a row of a plan stands for; return its samples per second after the start."""
        file = self.describe("run.yaml", row["workers"], **{key: True for key in DESCRIPTION_KEYS if row[key]})
        shutil.rmtree(self.folder / "logs", ignore_errors=True)
        words = ["--max-time", str(seconds), "--log-dir", "logs", "--overwrite", "--quiet"]
        for name, value in row["flags"].items():
            flag = f"--{name.replace('_', '-')}"
            words += [flag] if value is True else [flag, str(value)]
        self.esync("launch", str(file), *words)
        return sum(_rate(device) for device in devices(self.folder))


def _rate(device: Path) -> float:
    """Return the samples per second that a worker has logged, without its first rounds."""
    rounds = list(entries(device).values())
    if len(rounds) < 2:
        raise RuntimeError(f"{device.parent.name} has logged {len(rounds)} round(s): too few")
    first = min(WARM_UP, len(rounds) - 2)
    lasted = rounds[-1]["total_time"] - rounds[first]["total_time"]
    return float(sum(entry["num_samples"] for entry in rounds[first + 1 :]) / lasted)


def chosen(plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a plan that run for real: plain sync and esync, and the first of each class."""
    rows = []
    for members in plan["classes"].values():
        plain = [row for row in members if row["method"] in ("sync", "esync")]
        rows += [row for number, row in enumerate(members) if number < FIRST_OF_CLASS or row in plain]
    return rows


def measure(case: Case) -> dict[str, Any]:
    """Plan and run a cluster; return forecasts and rates."""
    with (
        tempfile.TemporaryDirectory(prefix="plan-") as name,
        Machines(Path(name) / "network", (HUB, *WORKERS)) as machines,
    ):
        cluster = Cluster(Path(name), case, machines)
        plan = cluster.plan(*(["--what-if", case.what_if[0]] if case.what_if else []))
        print(f"  recommended: {plan['recommended']['method']}", flush=True)
        rows = []
        for row in chosen(plan):
            shown = {key: row[key] for key in ("method", "class", "flags", "workers", *DESCRIPTION_KEYS)}
            try:
                rate = cluster.rate(row, case.seconds)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                print(f"  {row['method']}: failed: {str(error)[-500:]}", flush=True)
                rows.append({**shown, "predicted": row["throughput"], "error": str(error)})
                continue
            rows.append({**shown, "predicted": row["throughput"], "measured": rate})
            print(
                f"  {row['class']:12} {row['method']:45} predicted {row['throughput']:7.1f} samples/s, measured "
                f"{rate:7.1f} ({row['throughput'] / rate:.3f})",
                flush=True,
            )
        what_ifs = [
            {"change": change["change"], "method": row["method"], "predicted": row["throughput"]}
            for change in plan["what_if"]
            for members in change["classes"].values()
            for row in members
        ]
        calibrated = yaml.safe_load((Path(name) / "cluster.calibrated.yaml").read_text())
    parts = {name: calibrated.get(name) for name in ("workers", "servers", "state_server", "network", "simulate")}
    outcome = {"recommended": plan["recommended"]["method"], "rows": rows, "what_if": what_ifs, "calibrated": parts}
    return {**outcome, "load": os.getloadavg()[0]}


def firsts(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return, for each class, the rate of its first by that of its best, as measured."""
    ratios = {}
    for name in dict.fromkeys(row["class"] for row in rows):
        rates = [row["measured"] for row in rows if row["class"] == name and "measured" in row]
        if rates:
            ratios[name] = rates[0] / max(rates)
    return ratios


def verdicts(results: Mapping[str, Mapping[str, Any]]) -> bool:
    """Print what holds of all clusters measured so far; return whether every forecast does."""
    holds = True
    for name, outcome in results.items():
        ratios = {row["method"]: row["predicted"] / row["measured"] for row in outcome["rows"] if "measured" in row}
        wrong = [f"{method} {ratio:.3f}" for method, ratio in ratios.items() if abs(ratio - 1) > RATE]
        holds &= not wrong
        print(f"{name}: forecasts within {RATE:.0%}: {program.verdict(not wrong)} {', '.join(wrong)}")
        behind = [f"{kind} {ratio:.3f}" for kind, ratio in firsts(outcome["rows"]).items() if ratio < 1 - FIRST]
        print(
            f"{name}: first of each class within {FIRST:.0%} of its best: {program.verdict(not behind)} {behind or ''}"
        )
        print(f"{name}: recommended: {outcome['recommended']}")
        what_if = CASES[name].what_if
        if what_if and what_if[1] in results:
            measured = {row["method"]: row.get("measured") for row in results[what_if[1]]["rows"]}
            for row in outcome["what_if"]:
                if rate := measured.get(row["method"]):
                    ratio = row["predicted"] / rate
                    holds &= abs(ratio - 1) <= RATE
                    print(
                        f"{name}, {row['change']}: {row['method']}: predicted {row['predicted']:.1f} samples/s, "
                        f"measured {rate:.1f} ({ratio:.3f})"
                    )
    return holds


def main() -> int:
    """Measure what has not been measured, and print what holds; return 1 if a forecast does not."""
    parser = program.parser(__doc__, RESULT)
    parser.add_argument("--clusters", nargs="+", choices=CASES, default=list(CASES), help="only these clusters")
    parser.add_argument("--again", action="store_true", help="measure these clusters anew")
    parser.add_argument("--times", action="store_true", help="times to an accuracy instead")
    parser.add_argument("--launched-times", action="store_true", help="the same of launched programs")
    parser.add_argument("--seeds", type=count, default=2, help="of --times (default: %(default)s)")
    options = parser.parse_args()
    if options.times:
        return 0 if plan_times.carry_out(TIMES, options.seeds) else 1
    if options.launched_times:
        return 0 if plan_times.carry_out(LAUNCHED_TIMES, 1, launched=True) else 1
    if why := missing():
        print(why, file=sys.stderr)
        return 2
    results: dict[str, Any] = read_figures(options.json)
    for name in options.clusters:
        if name in results and not options.again:
            continue
        print(f"{name} (load {os.getloadavg()[0]:.1f})", flush=True)
        results[name] = measure(CASES[name])
        write_figures(options.json, results)
    return 0 if verdicts(results) else 1


if __name__ == "__main__":
    program.run(main)
