"""Deterministic simulation testing: many random schedules of one algorithm, and what must hold in all of them.

    python -m esync.simulate.schedules --mode sync --schedules 1000
    python -m esync.simulate.schedules --mode sync --seed 17         # one of them again

A schedule is drawn from its seed: how many workers and servers, how fast and how steady they are, how long messages
take, which machines crash and when others take over their slots (`drawing`). What must hold is in `invariants`.
"""

import argparse
import sys
import time

from .drawing import MODES, draw
from .invariants import BrokenError, Check


def main(words: list[str] | None = None) -> int:
    """Run schedules; 1 where something did not hold."""
    parser = argparse.ArgumentParser("python -m esync.simulate.schedules", description="Random schedules, checked.")
    parser.add_argument("--mode", choices=MODES, action="append", help="may be given several times (default: all)")
    parser.add_argument("--schedules", type=int, default=100, help="of each mode (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--no-crashes", action="store_true", help="leave crashes out")
    options = parser.parse_args(sys.argv[1:] if words is None else words)
    seeds = range(options.schedules) if options.seed is None else [options.seed]
    broken = 0
    for mode in options.mode or MODES:
        begun, before = time.monotonic(), broken
        for seed in seeds:
            try:
                Check(draw(mode, seed, not options.no_crashes)).run()
            except BrokenError as error:
                broken += 1
                print(f"{mode}, seed {seed}: {error}", flush=True)
        took = time.monotonic() - begun
        print(f"{mode}: {len(seeds)} schedules, {broken - before} broken, in {took:.1f} s", flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
