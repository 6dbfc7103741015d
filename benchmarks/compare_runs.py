"""How long does it take to compare many long runs?

    python benchmarks/compare_runs.py --runs 200 --rounds 1000

Makes logs as workers write them (two groups over seeds, each run with `--devices` devices), and
compares them twice in processes of their own: from the round files, as after a crash of the
launcher, and from the summaries that the first comparison, or the launcher, has left.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def main() -> int:
    """Make the logs, compare them, print the seconds, and return 1 if the limit was exceeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--limit", type=float, default=30.0, help="seconds from the summaries (default: %(default)g)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result to FILE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="compare-runs-") as folder:
        for number in range(options.runs):
            _write_run(Path(folder), number, options.rounds, options.devices)
        seconds = {name: _timed(folder) for name in ("from round files", "from summaries")}
    for name, took in seconds.items():
        print(f"{options.runs} runs of {options.rounds} rounds, {options.devices} devices, {name}: {took:.1f} s")
    if options.json:
        options.json.write_text(json.dumps({**vars(options), "json": None, "seconds": seconds}, indent=2) + "\n")
    if seconds["from summaries"] > options.limit:
        print(f"more than {options.limit:g} s", file=sys.stderr)
        return 1
    return 0


def _timed(folder: str) -> float:
    """Return the seconds that `esync compare` takes, with all of its files."""
    files = ["--csv", f"{folder}/runs.csv", "--figure", f"{folder}/curves.png"]
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "esync", "compare", folder, *files], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def _write_run(base: Path, number: int, rounds: int, devices: int) -> None:
    """Write one run: its seed, and by turns with and without --overlap."""
    chance, overlap = random.Random(number), number % 2 == 1
    folder = base / "lenet" / f"esync@{'overlap' if overlap else 'base'}-seed{number // 2}"
    for device in range(devices):
        place = folder / f"cloud{device}" / "cpu"
        place.mkdir(parents=True)
        facts: dict[str, Any] = {
            **{"mode": "esync", "network": "lenet", "dataset": "fashion-mnist", "seed": number // 2, "rank": device},
            **{"batch_size": 64, "step_time": 0.2 * (device + 1), "iterations": 4 * rounds, "overruns": 0},
            **{"options": {"overlap": overlap, "seed": number // 2}, "finished": True},
        }
        (place / "run.json").write_text(json.dumps(facts))
        total = 0.0
        for round_ in range(1, rounds + 1):
            total += chance.uniform(0.9, 1.0) if overlap else chance.uniform(1.0, 1.1)
            phases = {"get_batch": 0.001, "forward and backward": 0.2, "local update": 0.01}
            entry: dict[str, Any] = {
                "num_iters": round_,
                "time": {**{str(k): phases for k in range(4)}, "4": {"check ready": 0.001, "global update": 0.1}},
                **{"num_samples": 256, "iteration_times": [0.211] * 4, "total_time": total, "wait": 0.05},
                **{"transfer": 0.05, "bytes_sent": 250_000, "bytes_received": 250_000},
            }
            if device == 0 and round_ % 10 == 0:
                entry["accuracy"] = 0.9 - 0.8 * 0.995**round_ + chance.uniform(-0.005, 0.005)
            (place / f"iter-{round_}.txt").write_text(json.dumps(entry))


if __name__ == "__main__":
    sys.exit(main())
