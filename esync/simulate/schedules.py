"""Deterministic simulation testing: check invariants in many random schedules of an algorithm.

    python -m esync.simulate.schedules --mode sync --schedules 1000
    python -m esync.simulate.schedules --mode sync --seed 17         # one of them again
    python -m esync.simulate.schedules --mode diloco --overlap       # this option in all of them

A schedule is drawn from the algorithm's name and a seed: how many workers and servers there are,
how fast and how steady they are, how long messages take, which machines crash and when others take
over their slots, and options of the algorithm (`schedule_generator`). `invariants` has what must
hold. Not every schedule can show that everything committed was applied; the last line says in how
many this was not checked, and why.
"""

import argparse
import logging
import sys
import time
from collections import Counter

from ..algorithms.registry import names
from .invariants import InvariantCheck, InvariantError
from .schedule_generator import draw, schedulable


def main(words: list[str] | None = None) -> int:
    """Run the schedules; return 1 if an invariant did not hold in one of them, otherwise 0."""
    parser = argparse.ArgumentParser(
        "python -m esync.simulate.schedules",
        usage="%(prog)s [flags] [options of the algorithm, as the worker takes them]",
        description="Check invariants in random schedules.",
        allow_abbrev=False,
    )
    modes = names(schedulable)
    parser.add_argument(
        "-m",
        "--mode",
        action="append",
        help=f"algorithm: {', '.join(modes)}, or another one as the worker takes it; may be given several times "
        "(default: all)",
    )
    parser.add_argument(
        "--schedules", type=int, default=100, help="number of schedules of each mode (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, help="run only the schedule of this seed")
    parser.add_argument("--no-crashes", action="store_true", help="leave crashes out")
    options, given = parser.parse_known_args(sys.argv[1:] if words is None else words)
    seeds = range(options.schedules) if options.seed is None else [options.seed]
    broken = 0
    for mode in options.mode or modes:
        begun, before = time.monotonic(), broken
        uncounted = Counter[str]()
        for seed in seeds:
            try:
                check = InvariantCheck(draw(mode, seed, not options.no_crashes, given))
            except ValueError as error:
                parser.error(str(error))
            try:
                check.run()
            except InvariantError as error:
                broken += 1
                print(f"{mode}, seed {seed}: {error}", flush=True)
            uncounted[check.uncounted] += 1
        took = time.monotonic() - begun
        del uncounted[""]
        told = ", ".join(f"{count} × {reason}" for reason, count in uncounted.most_common())
        print(
            f"{mode}: {len(seeds)} schedules, {broken - before} broken, in {took:.1f} s"
            f"{f'; commits were not counted in {told}' if told else ''}",
            flush=True,
        )
    return 1 if broken else 0


if __name__ == "__main__":
    logging.getLogger("esync").setLevel(logging.ERROR)  # what algorithms warn of is drawn on purpose
    sys.exit(main())
