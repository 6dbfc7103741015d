"""What this project adds to ESync, on the paper's cluster in virtual time: `python benchmarks/beyond_paper.py`.

Simulates clusters/paper.yaml (ResNet-18-v1, 1 Gbit/s) with real gradients on Fashion-MNIST: plain ESync, and ESync with
other means, smaller exchanges and hidden ones, i.i.d. and by class, each beside SSGD with the same exchanges. A run
ends at an accuracy of 0.8, or after `--epochs` times the training set. Efficiency and computing time ratio come from
simulations without gradients of 100 rounds each. A run that is done is not done again.

Writes into `--out`: a JSON file for every run, and table.md.
"""

import argparse
import json
import math
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reproduce_paper import PARTITIONS, RATE, TARGET, carry_out

#: Name → flags.
VARIANTS: dict[str, tuple[str, ...]] = {
    "esync": (),
    "esync-samples": ("--weighting=samples",),
    "esync-normalized": ("--weighting=normalized",),
    "esync-outer": ("--weighting=samples", "--outer-momentum=0.3"),
    "esync-fp16": ("--compression=fp16",),
    "esync-fp16-samples": ("--compression=fp16", "--weighting=samples"),
    "esync-2bit-samples": ("--compression=2bit", "--weighting=samples"),
    "esync-topk": ("--compression=topk:0.01",),
    "esync-topk-samples": ("--compression=topk:0.01", "--weighting=samples"),
    "esync-topk-back-samples": ("--compression=topk:0.01:0.01", "--weighting=samples"),
    "esync-overlap": ("--overlap",),
    "esync-overlap-fp16-samples": ("--overlap", "--compression=fp16", "--weighting=samples"),
    "sync": ("--mode=sync",),
    "sync-fp16": ("--mode=sync", "--compression=fp16"),
    "sync-topk": ("--mode=sync", "--compression=topk:0.01"),
    "local-sgd": ("--mode=local-sgd",),
    "diloco": ("--mode=diloco",),
}


@dataclass(frozen=True)
class Run:
    """One simulation.

    Attributes:
        variant: one of VARIANTS.
        data: "iid" or "niid".
        seed: of data and weights.
        timing: without gradients, 100 rounds.
    """

    variant: str
    data: str = "iid"
    seed: int = 0
    timing: bool = False

    @property
    def name(self) -> str:
        """Of its files."""
        return f"{self.variant}-timing" if self.timing else f"{self.variant}-{self.data}-seed{self.seed}"

    def words(self, out: Path, epochs: float, images: int) -> list[str]:
        """The command line."""
        words = [sys.executable, "-m", "esync.simulate", "clusters/paper.yaml", *VARIANTS[self.variant]]
        words += [f"--json={out / self.name}.json", "--no-logs"]
        if self.timing:
            return [*words, "--numerics=none", "--rounds=100"]
        rates = "--learning-rate" if "--mode=sync" in words else "--local-lr"
        words += [f"{rates}={RATE:g}", f"--seed={self.seed}", f"--partition={PARTITIONS[self.data]}"]
        return [*words, f"--epochs={epochs:g}", f"--target-accuracy={TARGET}", f"--test-images={images}"]


def runs(seeds: int) -> list[Run]:
    """All of them, in the order of their worth."""
    chosen = [Run(variant, timing=True) for variant in VARIANTS]
    for seed in range(seeds):
        for data in PARTITIONS:
            chosen += [Run(variant, data, seed) for variant in VARIANTS]
    return chosen


def table(out: Path, chosen: Sequence[Run]) -> str:
    """What came out, as Markdown."""
    lines = [
        "| run | efficiency | computing | MB sent a round | to 0.8 | rounds | accuracy then |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for run in chosen:
        path = out / f"{run.name}.json"
        if path.exists():
            lines.append(_row(run, json.loads(path.read_text())))
    return "\n".join(lines) + "\n"


def _row(run: Run, result: dict[str, Any]) -> str:
    ratios = [device["computing_ratio"] for device in result["devices"]]
    sent = sum(result["traffic"][server]["received"] for server in result["servers"]) / result["rounds"] / 1e6
    at = result["time_to"].get(TARGET)
    accuracy = result["final_accuracy"]
    return (
        f"| {run.name} | {result['efficiency']:.3f} | {min(ratios):.3f}–{max(ratios):.3f} | {sent:.1f} | "
        f"{'–' if at is None else f'{at:.0f} s'} | {result['rounds']} | "
        f"{'–' if accuracy is None or math.isnan(accuracy) else f'{accuracy:.3f}'} |"
    )


def main(words: Sequence[str] | None = None) -> int:
    """Run, write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1, help="of every run (default: %(default)s)")
    parser.add_argument("--epochs", type=float, default=3.0, help="samples of all workers (default: %(default)s)")
    parser.add_argument("--test-images", type=int, default=2500, help="of an evaluation (default: %(default)s)")
    parser.add_argument("--only", default="", help="runs whose name contains this")
    parser.add_argument("--jobs", type=int, default=2, help="simulations at a time (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("results/beyond"))
    given = parser.parse_args(words)
    given.out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # takes the simulations with it, as Ctrl-C does
    everything = runs(given.seeds)
    well = carry_out([run for run in everything if given.only in run.name], given)
    (given.out / "table.md").write_text(table(given.out, everything))
    print((given.out / "table.md").read_text())
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
