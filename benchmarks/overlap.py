"""What do overlapped exchanges give back?

    python benchmarks/overlap.py [--json FILE]

The real engine on this machine: four emulated workers of unequal speed train a network with ESync,
plain and with --overlap, turn by turn. Efficiency is what all of them have computed ÷ the sum of
their speeds, from the end of the warm-up rounds to the end of the run; a run with too many overruns
is not valid.
"""

import statistics
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from harness import program
from harness.figures import write_figures
from harness.jobs import describe, devices, entries, facts, launch
from harness.timing import in_turns

from esync import config
from esync.reports import metrics

TARGET = 0.95
STEP_TIMES = (1.0, 1.5, 3.0, 6.0)  # seconds; four workers must leave the machine some time to spare
BATCH = 8  # little to compute, as much to exchange
WARM_UP = 2  # rounds before those that count
KINDS = {"plain": False, "overlap": True}


def job(overlap: bool, network: str, rounds: int) -> tuple[float, float, float]:
    """Run one job; return its efficiency, its mean seconds of transfer, and its overruns' share."""
    train: dict[str, Any] = {"mode": "esync", "network": network, "batch_size": BATCH, "local_lr": 0.0005}
    train |= {"rounds": rounds + WARM_UP, "no_evaluation": True, "overlap": overlap}
    with tempfile.TemporaryDirectory() as name:
        launch(describe(STEP_TIMES, hosts=["h0"] * len(STEP_TIMES), threads=None, **train), Path(name))
        logged = [(entries(device), facts(device)) for device in devices(Path(name))]
    speed, transfers = 0.0, []
    for each, _ in logged:
        first, *counted = [each[number] for number in range(WARM_UP, rounds + WARM_UP + 1)]
        lasted = counted[-1]["total_time"] - first["total_time"]
        speed += sum(entry["num_samples"] for entry in counted) / lasted
        transfers += [entry["transfer"] for entry in counted]
    iterations, overruns = (sum(run[name] for _, run in logged) for name in ("iterations", "overruns"))
    limit = sum(BATCH / seconds for seconds in STEP_TIMES)
    return speed / limit, statistics.mean(transfers), metrics.share(overruns, iterations)


def main() -> int:
    """Run both kinds in turn and print the medians.

    Returns 1 if the target is missed, or a figure is not valid.
    """
    parser = program.parser(__doc__)
    parser.add_argument("--network", default="resnet18-v1", help="(default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=12, help="rounds that count in each job (default: %(default)s)")
    parser.add_argument("--turns", type=int, default=1, help="jobs of each kind (default: %(default)s)")
    arguments = parser.parse_args()
    kinds = {kind: partial(job, overlap, arguments.network, arguments.rounds) for kind, overlap in KINDS.items()}
    found = in_turns(kinds, arguments.turns, tell="")
    medians = {kind: [statistics.median(column) for column in zip(*jobs, strict=True)] for kind, jobs in found.items()}
    for kind, (efficiency, transfer, overruns) in medians.items():
        told = "" if overruns <= config.OVERRUN_LIMIT else "   NOT VALID: too many overruns"
        print(f"{kind:8} efficiency {efficiency:.3f}, exchange {transfer:.2f} s, overruns {overruns:.1%}{told}")
    valid = all(overruns <= config.OVERRUN_LIMIT for _, _, overruns in medians.values())
    met = valid and medians["overlap"][0] >= TARGET
    print(f"efficiency with --overlap {medians['overlap'][0]:.3f}; target: {TARGET}: {program.verdict(met)}")
    names = ("efficiency", "exchange_seconds", "overruns")
    content = {
        "command": program.command(),
        "network": arguments.network,
        "step_times": STEP_TIMES,
        "rounds": arguments.rounds,
        "turns": arguments.turns,
        "figures": {kind: dict(zip(names, values, strict=True)) for kind, values in medians.items()},
        "target": TARGET,
        "valid": valid,
        "met": met,
    }
    write_figures(arguments.json, content)
    return 0 if met else 1


if __name__ == "__main__":
    program.run(main)
