"""What do the policies against transient stragglers save?

    python benchmarks/stragglers.py [--job switch] [--json FILE]

Eight simulated workers of clusters/stragglers.yaml train LeNet on Fashion-MNIST synchronously, with
real gradients in virtual time; two of them are stragglers four times. The same training, with the
same seeds, without stragglers, with stragglers for whom all wait, and with policy elastic. Policy
greedy takes its detours from the asynchronous share of the schedule, so it is compared in a
schedule that has one: 75 % synchronous. `--job switch` is a job as Sync-Switch is meant for
(clusters/stragglers-switch.yaml): a small network, the learning rate falls, and the first half is
synchronous, in which the two are stragglers once. Every finished run is kept in the folder:
interrupted, the same command goes on where it was. The target is that elastic takes less time than
waiting, with an accuracy within one standard deviation of it (the larger one of the two).
"""

import json
import sys
import time
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from harness import program
from harness.figures import write_figures

from esync.arguments import count
from esync.simulate.job import SimulationJob, run

PLANNED = {"train.bsp_share": 0.75}
#: Name → the flag --online-policy, and what is changed in the description.
Settings = dict[str, tuple[str, dict[str, Any]]]
POLICIES: Settings = {
    "undisturbed": ("none", {"workers.1.straggle": []}),
    "none": ("none", {}),
    "elastic": ("elastic", {}),
}
BSP: Settings = {
    **POLICIES,
    "undisturbed, 75 % BSP": ("none", {"workers.1.straggle": [], **PLANNED}),
    "none, 75 % BSP": ("none", PLANNED),
    "elastic, 75 % BSP": ("elastic", PLANNED),
    "greedy, 75 % BSP": ("greedy", PLANNED),
}
#: Its synchronous part is short, so stragglers are looked for more often than by default.
OFTEN = {"train.straggler_window": 5, "train.straggler_stride": 2}
SWITCH: Settings = {**POLICIES, "elastic": ("elastic", OFTEN), "greedy": ("greedy", OFTEN)}
#: Value of --job → description, and settings.
JOBS: dict[str, tuple[Path, Settings]] = {
    "bsp": (program.CLUSTERS / "stragglers.yaml", BSP),
    "switch": (program.CLUSTERS / "stragglers-switch.yaml", SWITCH),
}


def outcome(folder: Path, job: str, setting: str, seed: int) -> dict[str, float]:
    """Return virtual seconds, accuracy and processor seconds of a run.

    The run is carried out unless its file exists.
    """
    cluster, settings = JOBS[job]
    name = setting.replace(" %", "").replace(", ", "-").replace(" ", "-")
    place = folder / f"{'' if job == 'bsp' else f'{job}-'}{name}-{seed}.json"
    if not place.exists():
        policy, changes = settings[setting]
        print(f"{setting}, seed {seed} …", file=sys.stderr, flush=True)
        before = time.process_time()
        typed = {"online_policy": policy, "seed": seed}
        result = run(SimulationJob(cluster, typed=typed, changes=changes, logs=False, quiet=True)).result
        spent = time.process_time() - before
        write_figures(
            place,
            {
                "seconds": result["seconds"],
                "accuracy": result["final_accuracy"],
                "bsp_share_done": result["bsp_share_done"],
                "core_seconds": spent,
            },
        )
    return dict(json.loads(place.read_text(encoding="utf-8")))


def main() -> int:
    """Carry out the runs and print the table; return 1 if the target is missed."""
    parser = program.parser(__doc__)
    parser.add_argument("--out", type=Path, default=Path("straggler-runs"), help="folder (default: %(default)s)")
    parser.add_argument("--seeds", type=count, default=3, help="how many (default: %(default)s)")
    parser.add_argument("--job", choices=JOBS, default="bsp", help="what is trained (default: %(default)s)")
    options = parser.parse_args()
    cluster, settings = JOBS[options.job]
    options.out.mkdir(parents=True, exist_ok=True)
    # Seed by seed: what is there of an interrupted comparison can be compared.
    for seed in range(options.seeds):
        for setting in settings:
            outcome(options.out, options.job, setting, seed)
    table: dict[str, dict[str, Any]] = {}
    print("| | time s | accuracy | share in BSP |")
    print("|---|---:|---:|---:|")
    for setting in settings:
        runs = [outcome(options.out, options.job, setting, seed) for seed in range(options.seeds)]
        accuracies = [each["accuracy"] for each in runs]
        seconds = [each["seconds"] for each in runs]
        shares = [each["bsp_share_done"] for each in runs]
        table[setting] = {
            "seconds": seconds,
            "accuracies": accuracies,
            "mean_seconds": fmean(seconds),
            "accuracy": fmean(accuracies),
            "deviation": pstdev(accuracies),
            "bsp_shares_done": [each["bsp_share_done"] for each in runs],
            "core_seconds": sum(each["core_seconds"] for each in runs),
        }
        print(
            f"| {setting} | {fmean(seconds):.1f} | {fmean(accuracies):.4f} ± {pstdev(accuracies):.4f} | "
            f"{fmean(shares):.2%} |"
        )
    elastic, none = table["elastic"], table["none"]
    faster = all(ours < theirs for ours, theirs in zip(elastic["seconds"], none["seconds"], strict=True))
    allowed = max(elastic["deviation"], none["deviation"])
    met = faster and none["accuracy"] - elastic["accuracy"] <= allowed
    print(f"target: {program.verdict(met)}")
    facts = {"command": program.command(), "cluster": cluster.name, "seeds": options.seeds}
    write_figures(options.json, {**facts, "settings": table, "met": met})
    return 0 if met else 1


if __name__ == "__main__":
    program.run(main)
