"""The ESync paper's experiments in virtual time: `python benchmarks/reproduce_paper.py [--full] [--parity]`.

Simulates the paper's cluster (clusters/paper*.yaml, 1 Gbit/s) with real gradients on Fashion-MNIST: ESync, SSGD, ASGD
and DC-ASGD, i.i.d. and by class; SSGD also at two and four times the published learning rate, until it is at 0.8. All
others train for the same number of samples, `--epochs` times the training set over all workers (ESync to the end of its
round), two hours of virtual time at most as in the paper. An i.i.d. one that is not at 0.8 by then is followed by a
longer one that goes on until it is, `--most-epochs` at most. A run that is done is not done again, so this can be
stopped at any time and started anew.

Writes into `--out`: a JSON file for every run, its round files (logs/) and their summaries (summaries/, all that the
figures need), figures for each network, and table.md. `--parity` adds ESync and sequential SGD with five seeds each,
sequential SGD with exactly the samples that ESync had.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from reproduction_runs import Run, runs, to_continue
from reproduction_table import table

from esync.runtime.files import write_whole

#: Seconds between two lines of progress.
TELL_EVERY = 10.0


def carry_out(chosen: Sequence[Any], given: argparse.Namespace, lacks: Callable[[Any], str] = lambda run: "") -> bool:
    """Do what is not done yet, `--jobs` at a time; whether all went well. Those that still lack something wait."""
    out: Path = given.out
    waiting = [run for run in chosen if not (out / f"{run.name}.json").exists()]
    done, failed = len(chosen) - len(waiting), 0
    cores = len(os.sched_getaffinity(0))
    environment = {**os.environ, "OMP_NUM_THREADS": str(max(1, cores // given.jobs))}
    under_way: dict[Any, subprocess.Popen[bytes]] = {}
    told = 0.0
    try:
        while waiting or under_way:
            while waiting and len(under_way) < given.jobs:
                run = next((run for run in waiting if not lacks(run)), None)
                if run is None and not under_way:
                    print(f"{waiting[0].name} needs {lacks(waiting[0])}, which is not there", flush=True)
                    return False
                if run is None:
                    break
                waiting.remove(run)
                with (out / f"{run.name}.log").open("wb") as log:
                    under_way[run] = subprocess.Popen(run.words(given), stdout=log, stderr=log, env=environment)
            for run, process in list(under_way.items()):
                if process.poll() is not None:
                    del under_way[run]
                    done, failed = done + (process.returncode == 0), failed + (process.returncode != 0)
                    print(f"{done} of {len(chosen)} done: {run.name}: {_last_line(out, run)}", flush=True)
            if time.monotonic() - told > TELL_EVERY:
                told = time.monotonic()
                for run in under_way:
                    print(f"{done} of {len(chosen)} done; {run.name}: {_last_line(out, run)}", flush=True)
            time.sleep(0.5)
    finally:
        for process in under_way.values():
            process.terminate()
        for process in under_way.values():
            process.wait()
    return not failed


def _last_line(out: Path, run: Any) -> str:
    lines = (out / f"{run.name}.log").read_text(errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "begins")


def draw(out: Path, networks: Sequence[str]) -> None:
    """Summaries and figures of what there is."""
    for network in networks:
        if (out / "logs" / network).is_dir():
            words = ["logs_tools/summarize.py", "-b", str(out / "logs"), "-n", network]
            subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
        for summary in (out / "logs" / network).glob("*/*.json"):
            kept = out / "summaries" / summary.relative_to(out / "logs")
            write_whole(kept, summary.read_bytes())
        if (out / "summaries" / network).is_dir():
            words = ["logs_tools/plot.py", "-b", str(out / "summaries"), "-n", network, "--out", str(out / network)]
            subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)


def main(words: Sequence[str] | None = None) -> int:
    """Run, draw, write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="four more networks")
    parser.add_argument("--parity", action="store_true", help="ESync and sequential SGD with several seeds, too")
    parser.add_argument("--seeds", type=int, default=5, help="of --parity (default: %(default)s)")
    parser.add_argument("--epochs", type=float, default=2.0, help="samples of all workers (default: %(default)s)")
    parser.add_argument(
        "--most-epochs", type=float, default=20.0, help="of a run that is not at 0.8 before (default: %(default)s)"
    )
    parser.add_argument("--test-images", type=int, default=2500, help="of an evaluation (default: %(default)s)")
    parser.add_argument("--only", default="", help="runs whose name contains this")
    parser.add_argument("--jobs", type=int, default=2, help="simulations at a time (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("results/reproduction"))
    parser.add_argument("--list", action="store_true", help="name the runs and whether they are done; do nothing")
    given = parser.parse_args(words)
    given.out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # takes the simulations with it, as Ctrl-C does
    everything = runs(given.full, given.parity, given.seeds)
    chosen = [run for run in everything if given.only in run.name]
    if given.list:
        for run in [*chosen, *to_continue(given.out, chosen)]:
            print(f"{'done' if (given.out / f'{run.name}.json').exists() else '–':5} {run.name}")
        return 0

    def lacks(run: Run) -> str:
        there = run.after is None or (given.out / f"{run.after.name}.json").exists()
        return "" if there else "the number of samples of ESync's run"

    well = carry_out(chosen, given, lacks) and carry_out(to_continue(given.out, chosen), given)
    draw(given.out, list(dict.fromkeys(run.network for run in chosen)))
    (given.out / "table.md").write_text(table(given.out, everything))
    print((given.out / "table.md").read_text())
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
