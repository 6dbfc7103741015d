"""Does an evaluation hold anybody up? `python benchmarks/evaluation.py [--json FILE]`.

Three emulated devices train ResNet-18; worker 0 evaluates 10,000 images again and again, in a process of its own, and
the rounds of the *other* workers are compared with those of jobs that never evaluate. Devices that really are on other
machines share nothing with that process; here all of them share one, which is the worst that can happen to them.

Two cases: ESync's rounds (six local iterations), and as the worst case synchronous SGD, where every iteration ends in
an exchange for which all processes need the machine at the same time.
"""

import itertools
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml
from harness import program
from harness.figures import write_figures

TARGET = 1.02  # times a round without evaluations
STEP_TIME = 1.0  # seconds; three devices must leave the machine some time to spare
WARM_UP = 3  # rounds before those that count
CASES = {
    "esync": {"mode": "esync", "local_iterations": 4, "local_lr": 0.0005},
    "sync": {"mode": "sync", "learning_rate": 0.0005},
}
KINDS = ("alone", "evaluations")


def job(case: str, kind: str, rounds: int) -> tuple[list[float], int]:
    """Run one job; the seconds of every round of the workers that do not evaluate, and the number of evaluations."""
    with tempfile.TemporaryDirectory() as folder:
        train = {**CASES[case], "network": "resnet18-v1", "rounds": rounds + WARM_UP, "log_dir": folder}
        if kind != "evaluations":
            train["no_evaluation"] = True
        description = {
            "scheduler": {"host": "localhost"},
            "servers": [{"host": "localhost"}],
            "workers": [{"host": "localhost", "device": "cpu", "step_time": STEP_TIME}] * 3,
            "train": train,
        }
        path = Path(folder) / "cluster.yaml"
        path.write_text(yaml.safe_dump(description), encoding="utf-8")
        subprocess.run([sys.executable, "-m", "esync.launch", str(path)], check=True, stdout=subprocess.DEVNULL)
        logs = Path(folder) / "resnet18-v1" / case / "localhost"
        seconds: list[float] = []
        for device in ("cpu-1", "cpu-2"):
            files = [logs / device / f"iter-{number}.txt" for number in range(WARM_UP, rounds + WARM_UP + 1)]
            ends = [json.loads(file.read_text())["total_time"] for file in files]
            seconds += [after - before for before, after in itertools.pairwise(ends)]
        evaluations = sum('"accuracy"' in file.read_text() for file in (logs / "cpu").glob("iter-*.txt"))
    return seconds, evaluations


def main() -> int:
    """Run all kinds of job, print the medians and the ratios; 1 where the target is missed."""
    parser = program.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="rounds that count in each job (default: %(default)s)")
    parser.add_argument("--turns", type=int, default=2, help="jobs of each kind (default: %(default)s)")
    arguments = parser.parse_args()
    figures: dict[str, dict[str, float]] = {}
    for case in CASES:
        seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
        evaluations = 0
        for turn in range(arguments.turns):
            for kind in KINDS:
                print(f"{case}, turn {turn + 1} of {arguments.turns}: {kind} …", flush=True)
                rounds, done = job(case, kind, arguments.rounds)
                seconds[kind] += rounds
                evaluations += done
        medians = {kind: statistics.median(values) for kind, values in seconds.items()}
        ratio = medians["evaluations"] / medians["alone"]
        figures[case] = {**medians, "number of evaluations": evaluations, "ratio": ratio}
        print(f"{case}: median round of the workers that do not evaluate")
        for kind, median in medians.items():
            print(f"  {kind:12} {median:.4f} s   {median / medians['alone']:.3f} of alone")
    met = all(figure["ratio"] <= TARGET for figure in figures.values())
    told = ", ".join(f"{case} {figure['ratio']:.3f}" for case, figure in figures.items())
    print(f"evaluations ÷ alone: {told}; target: at most {TARGET}: {program.verdict(met)}")
    content = {"seconds": figures, "target": TARGET, "met": met}
    write_figures(arguments.json, content)
    return 0 if met else 1


if __name__ == "__main__":
    program.run(main)
