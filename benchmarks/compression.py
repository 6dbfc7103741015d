"""What does `--compression` save, and what does it cost?

    python benchmarks/compression.py [PART …] [--json FILE]

* wire: a real cluster on this machine, two workers and one server, ResNet-18's 11 million weights:
  bytes of an exchange counted at the workers' sockets, its seconds with and without the local step
  before it, and seconds of processor time on a worker and on the server. Three clusters of each
  kind take turns, because a machine's speed changes;
* traffic: the paper's cluster (clusters/paper.yaml, 1 Gbit/s) in virtual time without gradients:
  efficiency, computing time ratio, and bytes per second at the server beside ASGD's;
* accuracy: the same real cluster trains lenet on Fashion-MNIST, with ESync, with and without fp16.

What `--json FILE` has already is not measured again, so this can be stopped at any time and started
anew.
"""

import argparse
import json
import os
import re
import statistics
import tempfile
from collections.abc import Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from harness import program
from harness.clusters import Cluster
from harness.exchanges import exchanges
from harness.figures import read_figures, write_figures
from harness.timing import in_turns, medians

KINDS = ("none", "fp16", "4bit", "2bit")
PARTS = ("wire", "traffic", "accuracy")
WIRE_ROUNDS, WIRE_WARM_UP, WIRE_TURNS = 20, 3, 3
ROUNDS = 100
SEEDS = (0, 1)
#: On the gradient summed over the batch.
RATE = 0.001


# --- wire -----------------------------------------------------------------------------------------


def wire_worker(kind: str) -> None:
    """Run a worker of the real cluster, which prints its figures of each exchange as JSON."""
    from esync.algorithms import ESync

    exchanges(ESync(local_iterations=1, compression=kind), WIRE_WARM_UP, WIRE_ROUNDS)


def wire(kind: str, workers: int = 2) -> dict[str, float]:
    """Run a real cluster; return the medians of one exchange and the server's processor time."""
    with Cluster(workers) as cluster:
        cluster.start(*[(__file__, "--worker", kind)] * workers)
        for process in cluster.workers:
            assert process.stdout is not None
            process.stdout.readline()  # its warm-up is over
        server = cluster.processes["server-0"].pid
        before = processor_time(server)
        times = list(chain.from_iterable(cluster.results()))
        spent = (processor_time(server) - before) / WIRE_ROUNDS
    names = ("seconds", "exchange", "processor", "sent", "received")
    return {**medians({name: [row[name] for row in times] for name in names}), "server_processor": spent}


def wires(kinds: Sequence[str]) -> dict[str, dict[str, float]]:
    """Run clusters of these kinds in turns; return the median of each figure."""
    runs = in_turns({kind: partial(wire, kind) for kind in kinds}, WIRE_TURNS)
    return {kind: medians({name: [turn[name] for turn in turns] for name in turns[0]}) for kind, turns in runs.items()}


def processor_time(pid: int) -> float:
    """Return the seconds of processor time that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- traffic --------------------------------------------------------------------------------------


def traffic(name: str) -> dict[str, Any]:
    """Return the figures of a case MODE or MODE,KIND on the paper's cluster, simulated without gradients."""
    from esync.simulate.job import SimulationJob, run

    mode, _, kind = name.partition(",")
    flags = {"mode": mode, "rounds": ROUNDS, **({"compression": kind} if kind else {})}
    file = program.CLUSTERS / "paper.yaml"
    result = run(SimulationJob(file, "none", typed=flags, logs=False, quiet=True)).result
    server = result["traffic"][result["servers"][0]]
    return {
        "rounds": result["rounds"],
        "seconds": result["seconds"],
        "efficiency": result["efficiency"],
        "computing": min(device["computing_ratio"] for device in result["devices"]),
        "server_received": server["received"],
        "server_sent": server["sent"],
    }


# --- accuracy -------------------------------------------------------------------------------------


def accuracy(name: str) -> dict[str, float]:
    """Return final accuracy and bytes of a case KIND,SEED, on a real cluster.

    Two workers do 32 local iterations of 64 images in each round.
    """
    kind, seed = name.split(",")
    with tempfile.TemporaryDirectory() as folder:
        flags = ["-m", "esync", "-n", "lenet", "-c", "1", "--local-iterations", "32", "-ll", f"{RATE:g}", "-e", "1000"]
        flags += ["--seed", seed, "--epochs", "2", "--compression", kind, "--no-export", "--quiet", "-ld"]
        words = [["-m", "esync.worker", *flags, f"{folder}/{worker}"] for worker in range(2)]

        with Cluster(len(words)) as cluster:
            cluster.start(*words)
            cluster.outputs()
        files = list(Path(folder).glob("*/*/iter-*.txt"))
        rounds = [json.loads(file.read_text()) for file in files]
    last = max(entry["num_iters"] for entry in rounds)
    return {
        "rounds": last,
        "accuracy": max(entry.get("accuracy", 0.0) for entry in rounds if entry["num_iters"] == last),
        "sent": statistics.median(entry["bytes_sent"] for entry in rounds),
        "received": statistics.median(entry["bytes_received"] for entry in rounds),
    }


# --- all of it ------------------------------------------------------------------------------------


def cases(part: str) -> list[str]:
    """Return the names of the cases of a part."""
    if part == "traffic":
        return ["async", *(f"{mode},{kind}" for mode in ("esync", "sync") for kind in KINDS)]
    if part == "accuracy":
        return [f"{kind},{seed}" for seed in SEEDS for kind in ("none", "fp16")]
    return list(KINDS)


def targets(figures: dict[str, Any]) -> list[tuple[str, bool]]:
    """Return the targets of what was measured, and whether they are met."""
    verdicts = []
    if {"none", "fp16"} <= set(figures.get("wire", {})):
        plain, half = figures["wire"]["none"], figures["wire"]["fp16"]
        share = (half["sent"] + half["received"]) / (plain["sent"] + plain["received"])
        verdicts.append((f"fp16: half of the bytes: {share:.3f}", share < 0.51))
        times = half["exchange"] / plain["exchange"]
        verdicts.append((f"fp16: no slower, on loopback: {times:.2f} times as long", times <= 1))
    return verdicts


def main() -> int:
    """Measure what is missing, and print everything; return the exit code."""
    parser = program.parser(__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} (default: all of them)")
    parser.add_argument("--only", default="", help="cases whose name matches this regular expression")
    parser.add_argument("--worker", choices=KINDS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        wire_worker(arguments.worker)
    if wrong := set(arguments.parts) - set(PARTS):
        parser.error(f"{min(wrong)!r} is not a part; there are {', '.join(PARTS)}")
    figures = read_figures(arguments.json)
    measure = {"traffic": traffic, "accuracy": accuracy}
    for part in arguments.parts or PARTS:
        known = figures.setdefault(part, {})
        missing = [name for name in cases(part) if name not in known and re.search(arguments.only, name)]
        together = wires(missing) if part == "wire" and missing else {}
        for name in missing:
            known[name] = together[name] if part == "wire" else measure[part](name)
            write_figures(arguments.json, figures)
            shown = {key: round(value, 4) for key, value in known[name].items()}
            print(f"{part} {name}: {shown}", flush=True)
    for text, met in targets(figures):
        print(f"target: {text}: {program.verdict(met)}")
    return 0


if __name__ == "__main__":
    program.run(main)
