"""What does one exchange of each host bring on the paper's cluster, in virtual time?

    OMP_NUM_THREADS=1 python benchmarks/per_host_simulation.py
    python benchmarks/per_host_simulation.py --accuracy-rounds 0

Three workers on each of two hosts, 1 Gbit/s, messages of ResNet-18 (clusters/paper.yaml), with and
without `per_host: true`: efficiency and seconds of a round of ESync and of synchronous SGD, with
and without fp16, and the bytes that reach the server's host. Then ResNet-18 with a quarter of its
channels is really trained (clusters/paper-narrow.yaml), and its accuracy is compared after the same
rounds, with several seeds: payloads are added in another order, and the first rounds, with their
large steps, make rounding errors grow.
"""

from dataclasses import replace
from typing import Any

from harness import program
from harness.figures import spread, write_figures

from esync.arguments import count
from esync.simulate.job import SimulationJob, run

SERVER = "cloud2"
#: Mode and compression of what is timed.
WAYS = (("esync", "none"), ("esync", "fp16"), ("sync", "none"), ("sync", "fp16"))
#: Targets of the efficiency of ESync, by compression, of the seconds of a synchronous round, and of
#: the bytes at the server, as a share of those without per_host.
EFFICIENCY = {"none": 0.65, "fp16": 0.78}
ROUND, BYTES = 5.2, 0.36


def job(cluster: str, per_host: bool, **flags: Any) -> SimulationJob:
    """Return a simulation of one of the paper's clusters."""
    path = program.CLUSTERS / cluster
    typed = {"max_time": None, **flags}
    return SimulationJob(path, "none", typed, {"per_host": per_host}, logs=False, quiet=True)


def timed(mode: str, compression: str, per_host: bool, rounds: int) -> dict[str, float]:
    """Return the figures of a run without gradients; bytes are those of a round."""
    done = run(job("paper.yaml", per_host, mode=mode, compression=compression, rounds=rounds)).result
    return {
        "efficiency": done["efficiency"],
        "round": done["seconds"] / done["rounds"],
        "bytes": done["traffic"][SERVER]["received"] / done["rounds"],
    }


def accuracies(per_host: bool, rounds: int, seeds: int, images: int) -> list[float]:
    """Return the accuracies after so many rounds of synchronous SGD, by seed."""
    chosen = job("paper-narrow.yaml", per_host, mode="sync", rounds=rounds, test_images=images)
    runs = (replace(chosen, numerics="real", typed={**chosen.typed, "seed": seed}) for seed in range(seeds))
    return [run(each).result["final_accuracy"] for each in runs]


def main() -> int:
    """Simulate, print and write; return 1 if a target is missed."""
    parser = program.parser(__doc__, program.RESULTS / "per_host_simulation.json")
    parser.add_argument("--rounds", type=int, default=50, help="of runs without gradients (default: %(default)s)")
    parser.add_argument("--accuracy-rounds", type=int, default=60, help="of training; 0: none (default: %(default)s)")
    parser.add_argument("--seeds", type=count, default=3, help="of the training (default: %(default)s)")
    parser.add_argument("--test-images", type=int, default=2000, help="of evaluations (default: %(default)s)")
    given = parser.parse_args()
    figures: dict[str, Any] = {"command": program.command(), "rounds": given.rounds, "timing": {}, "accuracy": {}}
    missed = False
    for mode, compression in WAYS:
        flat, by_host = (timed(mode, compression, per_host, given.rounds) for per_host in (False, True))
        figures["timing"][f"{mode}, {compression}"] = {"flat": flat, "per_host": by_host}
        share = by_host["bytes"] / flat["bytes"]
        met = share <= BYTES
        met = met and (mode != "esync" or by_host["efficiency"] >= EFFICIENCY[compression])
        met = met and (mode != "sync" or by_host["round"] <= ROUND)
        missed = missed or not met
        print(
            f"{mode}, {compression}: efficiency {flat['efficiency']:.3f} → {by_host['efficiency']:.3f}, round "
            f"{flat['round']:.2f} → {by_host['round']:.2f} s, {flat['bytes'] / 1e6:.0f} → {by_host['bytes'] / 1e6:.0f} "
            f"MB a round reach the server: {program.verdict(met)}",
            flush=True,
        )
    if given.accuracy_rounds:
        alone, together = (
            accuracies(each, given.accuracy_rounds, given.seeds, given.test_images) for each in (False, True)
        )
        figures["accuracy"] = {"rounds of sync": given.accuracy_rounds, "flat": alone, "per_host": together}
        print(
            f"accuracy after {given.accuracy_rounds} rounds of sync: {spread(alone, 3)}, with per_host "
            f"{spread(together, 3)}"
        )
    write_figures(given.json, figures)
    return int(missed)


if __name__ == "__main__":
    program.run(main)
