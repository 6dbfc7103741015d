"""Search for moments of death that a job does not survive, or run one schedule again.

python -m tests.search                                   # a few schedules of every kind
python -m tests.search --schedules 10000 --jobs 2        # the search as it is done before a release
python -m tests.search --kinds sync,ssp --schedules 500 --first 1000
python -m tests.search --mode mine.py:Mine               # an algorithm of one's own
python -m tests.search sync 17 --deaths 213:worker:1     # one schedule, with what happens
"""

import argparse
import shlex
import sys
from dataclasses import fields

from .faults import table
from .schedule import KINDS, MODE, Schedule, draw, with_words
from .search import failure, report, search, shrink


def main() -> int:
    """Search, or run one schedule; exit code 1 where something must not be."""
    parser = argparse.ArgumentParser(prog="python -m tests.search", description=__doc__.splitlines()[0])
    parser.add_argument("kind", nargs="?", help="of one schedule")
    parser.add_argument("seed", nargs="?", type=int, help="of one schedule")
    parser.add_argument("--kinds", help="to be searched (default: all)")
    parser.add_argument("--mode", action="append", help="to be searched, as the worker takes it; any number of them")
    parser.add_argument("--schedules", type=int, default=100, help="of each kind (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="seed (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="processes that search (default: %(default)s)")
    parser.add_argument(
        "--faults", type=int, help="put faults back that were mended, and search so many schedules for each"
    )
    parser.add_argument("--no-shrink", action="store_true", help="show failures as they were found")
    drawn = [field.name for field in fields(Schedule) if field.name not in ("kind", "seed")]
    for name in drawn:
        parser.add_argument(f"--{name}", help="of one schedule, instead of what is drawn from the seed")
    options = parser.parse_args()
    if options.faults:
        return table(options.faults)
    words = {name: value for name in drawn if (value := getattr(options, name)) is not None}
    kinds = options.kinds.split(",") if options.kinds else [MODE + mode for mode in options.mode or ()] or KINDS
    arguments = tuple(shlex.split(options.options or ""))
    try:
        for kind in kinds if options.kind is None else [options.kind]:
            draw(kind, options.seed or 0, arguments)
    except ValueError as error:
        parser.error(str(error))
    if options.kind is None:
        return report(search(kinds, options.first, options.schedules, options.jobs, arguments), not options.no_shrink)
    schedule = with_words(draw(options.kind, options.seed or 0), words)
    print(schedule)
    finding = failure(schedule)
    print("\n".join(f"{number:5} {line}" for number, line in enumerate(finding.history)))
    print(finding.error or f"nothing is wrong: {finding.steps} steps, {finding.jobs} jobs")
    if finding.error and not options.no_shrink:
        print(shrink(schedule).command)
    return bool(finding.error)


if __name__ == "__main__":
    sys.exit(main())
