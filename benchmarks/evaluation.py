"""Does an evaluation hold anybody up?

    python benchmarks/evaluation.py [--json FILE]

Three emulated devices train ResNet-18; worker 0 evaluates 10,000 images again and again, in a
process of its own, and the rounds of the *other* workers are compared with those of jobs that never
evaluate. Devices that really are on other machines share nothing with that process; here all of
them share one, which is the worst that can happen to them.

Two cases: ESync's rounds (six local iterations), and as the worst case synchronous SGD, where every
iteration ends in an exchange for which all processes need the machine at the same time.
"""

import itertools
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from harness import program
from harness.figures import write_figures
from harness.jobs import describe, devices, entries, launch
from harness.timing import in_turns, medians

TARGET = 1.02  # times a round without evaluations
STEP_TIME = 1.0  # seconds; three devices must leave the machine some time to spare
WARM_UP = 3  # rounds before those that count
CASES = {
    "esync": {"mode": "esync", "local_iterations": 4, "local_lr": 0.0005},
    "sync": {"mode": "sync", "learning_rate": 0.0005},
}
KINDS = ("alone", "evaluations")


def job(case: str, kind: str, rounds: int) -> tuple[list[float], int]:
    """Run one job.

    Returns the seconds of every round of the workers that do not evaluate, and the number of
    evaluations.
    """
    train: dict[str, Any] = {**CASES[case], "network": "resnet18-v1", "rounds": rounds + WARM_UP}
    if kind != "evaluations":
        train["no_evaluation"] = True
    description = describe([STEP_TIME] * 3, hosts=["h0"] * 3, threads=None, **train)
    del description["state_server"]  # ESync's workers do a fixed number of iterations here
    with tempfile.TemporaryDirectory() as name:
        launch(description, Path(name))
        first, *others = [entries(device) for device in devices(Path(name))]
    seconds: list[float] = []
    for logged in others:
        ends = [logged[number]["total_time"] for number in range(WARM_UP, rounds + WARM_UP + 1)]
        seconds += [after - before for before, after in itertools.pairwise(ends)]
    return seconds, sum("accuracy" in entry for entry in first.values())


def main() -> int:
    """Run all jobs, print the medians and the ratios; return 1 if the target is missed."""
    parser = program.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="rounds that count in each job (default: %(default)s)")
    parser.add_argument("--turns", type=int, default=2, help="jobs of each kind (default: %(default)s)")
    arguments = parser.parse_args()
    figures: dict[str, dict[str, float]] = {}
    for case in CASES:
        jobs = {kind: partial(job, case, kind, arguments.rounds) for kind in KINDS}
        found = in_turns(jobs, arguments.turns, tell=f"{case}, ")
        seconds = medians({kind: [each for rounds, _ in turns for each in rounds] for kind, turns in found.items()})
        evaluations = sum(done for turns in found.values() for _, done in turns)
        ratio = seconds["evaluations"] / seconds["alone"]
        figures[case] = {**seconds, "number of evaluations": evaluations, "ratio": ratio}
        print(f"{case}: median round of the workers that do not evaluate")
        for kind, median in seconds.items():
            print(f"  {kind:12} {median:.4f} s   {median / seconds['alone']:.3f} of alone")
    met = all(figure["ratio"] <= TARGET for figure in figures.values())
    told = ", ".join(f"{case} {figure['ratio']:.3f}" for case, figure in figures.items())
    print(f"evaluations ÷ alone: {told}; target: at most {TARGET}: {program.verdict(met)}")
    content = {"seconds": figures, "target": TARGET, "met": met}
    write_figures(arguments.json, content)
    return 0 if met else 1


if __name__ == "__main__":
    program.run(main)
