"""What hidden exchanges give back: `python benchmarks/overlap.py [--json FILE]`.

The real engine on this machine: four emulated workers of unequal speed train a network with ESync, plain and with
--overlap, turn by turn. Efficiency is what all of them have computed ÷ the sum of their speeds, from the end of the
warm-up rounds to the end of the run; a run with too many overruns is not valid.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml
from harness import program
from harness.figures import write_figures

from esync import config
from esync.reports import metrics

TARGET = 0.95
STEP_TIMES = (1.0, 1.5, 3.0, 6.0)  # seconds; four workers must leave the machine some time to spare
BATCH = 8  # little to compute, as much to exchange
WARM_UP = 2  # rounds before those that count
KINDS = {"plain": False, "overlap": True}


def job(overlap: bool, network: str, rounds: int) -> tuple[float, float, float]:
    """Run one job; its efficiency, seconds of an exchange (transfer, mean), and share of overruns."""
    with tempfile.TemporaryDirectory() as folder:
        train = {
            "mode": "esync",
            "network": network,
            "batch_size": BATCH,
            "local_lr": 0.0005,
            "rounds": rounds + WARM_UP,
            "no_evaluation": True,
            "log_dir": folder,
            "overlap": overlap,
        }
        description = {
            "scheduler": {"host": "localhost"},
            "servers": [{"host": "localhost"}],
            "state_server": {"host": "localhost"},
            "workers": [{"host": "localhost", "device": "cpu", "step_time": seconds} for seconds in STEP_TIMES],
            "train": train,
        }
        path = Path(folder) / "cluster.yaml"
        path.write_text(yaml.safe_dump(description), encoding="utf-8")
        subprocess.run([sys.executable, "-m", "esync.launch", str(path)], check=True, stdout=subprocess.DEVNULL)
        speed, transfers, iterations, overruns = 0.0, [], 0, 0
        for device in sorted((Path(folder) / network / "esync" / "localhost").glob("cpu*")):
            files = [device / f"iter-{number}.txt" for number in range(WARM_UP, rounds + WARM_UP + 1)]
            first, *entries = [json.loads(file.read_text()) for file in files]
            lasted = entries[-1]["total_time"] - first["total_time"]
            speed += sum(entry["num_samples"] for entry in entries) / lasted
            transfers += [entry["transfer"] for entry in entries]
            facts = json.loads((device / "run.json").read_text())
            iterations, overruns = iterations + facts["iterations"], overruns + facts["overruns"]
    limit = sum(BATCH / seconds for seconds in STEP_TIMES)
    return speed / limit, statistics.mean(transfers), metrics.share(overruns, iterations)


def main() -> int:
    """Run both kinds in turn and print the medians; 1 where the target is missed, or a figure is not valid."""
    parser = program.parser(__doc__)
    parser.add_argument("--network", default="resnet18-v1", help="(default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=12, help="rounds that count in each job (default: %(default)s)")
    parser.add_argument("--turns", type=int, default=1, help="jobs of each kind (default: %(default)s)")
    arguments = parser.parse_args()
    figures: dict[str, list[tuple[float, float, float]]] = {kind: [] for kind in KINDS}
    for turn in range(arguments.turns):
        for kind, overlap in KINDS.items():
            print(f"turn {turn + 1} of {arguments.turns}: {kind} …", flush=True)
            figures[kind].append(job(overlap, arguments.network, arguments.rounds))
    medians = {
        kind: [statistics.median(column) for column in zip(*jobs, strict=True)] for kind, jobs in figures.items()
    }
    for kind, (efficiency, transfer, overruns) in medians.items():
        valid = "" if overruns <= config.OVERRUN_LIMIT else "   NOT VALID: too many overruns"
        print(f"{kind:8} efficiency {efficiency:.3f}, exchange {transfer:.2f} s, overruns {overruns:.1%}{valid}")
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
