"""Draw a run's accuracy before and after a change of the program: `python benchmarks/reproduction_before_after.py`.

Reads the JSON files that `reproduce_paper.py` writes, of the same runs in two folders, and draws a
panel for each run.
"""

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt


def curve(path: Path) -> tuple[list[float], list[float]]:
    """Return the minutes and the accuracies of a run's evaluations."""
    points = json.loads(path.read_text())["accuracies"]
    return [seconds / 60 for _, seconds, _ in points], [accuracy for _, _, accuracy in points]


def main() -> None:
    """Draw what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="name of a JSON file in both folders, without .json")
    parser.add_argument("--before", type=Path, default=Path("results/reproduction/earlier"))
    parser.add_argument("--after", type=Path, default=Path("results/reproduction"))
    parser.add_argument("--out", type=Path, required=True, help="PNG file to write")
    given = parser.parse_args()
    columns = min(2, len(given.runs))
    rows = -(-len(given.runs) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(5.5 * columns, 3.2 * rows), sharey=True, squeeze=False)
    for panel, run in zip(axes.flat, given.runs, strict=False):
        panel.plot(*curve(given.before / f"{run}.json"), color="0.6", label="before")
        panel.plot(*curve(given.after / f"{run}.json"), color="tab:blue", label="after")
        panel.set(title=run, xlabel="virtual time (min)", ylim=(0, 1))
        panel.grid(alpha=0.3)
    for row in axes:
        row[0].set_ylabel("test accuracy")
    axes[0][0].legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(given.out, dpi=110)


if __name__ == "__main__":
    main()
