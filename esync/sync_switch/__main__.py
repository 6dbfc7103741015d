"""Find the smallest share of BSP that is as accurate as BSP alone.

    python -m esync.sync_switch search FILE

Every flag of the worker may be given; the trials run with them. An interrupted search is resumed
when it is started again.
"""

import argparse
import sys
from pathlib import Path

from .. import arguments, config
from ..runtime import descriptions, program
from ..runtime.errors import ExpectedError
from ..runtime.files import expanded, write_atomically, write_json
from .report import as_json, as_text
from .search import search
from .trials import ENGINES, Trials


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog=program.name("python -m esync.sync_switch"),
        description="When to switch from synchronous to asynchronous.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    summary = "find the smallest BSP share whose accuracy is within beta of BSP's"
    description = f"{summary}, by bisection: a reconstruction of the paper's search; flags of the worker are passed on."
    command = commands.add_parser("search", help=summary, description=description)
    add = command.add_argument
    descriptions.add_file(command)
    add("--on", choices=sorted(ENGINES), default="simulate", help="where trials run (default: %(default)s)")
    add("--out", type=expanded, default=Path("sync-switch-search"), help="folder of the trials (default: %(default)s)")
    add("--beta", type=float, default=config.SEARCH_BETA, help="accuracy that may be lost (default: %(default)s)")
    add("--repeats", type=arguments.count, default=config.SEARCH_REPEATS, help="runs per share (default: %(default)s)")
    add("--settings", type=arguments.count, default=config.SEARCH_SETTINGS, help="shares tried (default: %(default)s)")
    add("--first-seed", type=int, default=0, help="first seed of each share's runs (default: %(default)s)")
    add("--bsp-accuracy", type=float, help="accuracy of BSP, if known (default: measured by runs of BSP)")
    return parser


def main(words: list[str] | None = None) -> int:
    """Run the search and return its exit code: 0 found, 1 failed, 2 bad usage."""
    parser = build_parser()
    options, flags = parser.parse_known_args(sys.argv[1:] if words is None else words)
    if not 0 <= options.beta < 1:
        parser.error(f"--beta {options.beta:g} should be 0 or more, below 1")
    if options.bsp_accuracy is not None and not 0 < options.bsp_accuracy <= 1:
        parser.error(f"--bsp-accuracy {options.bsp_accuracy:g} should be above 0, at most 1")
    chosen = sorted({"--mode", "-m", "--bsp-share", "--train-steps", "--seed", "--log-dir", "-ld"} & set(flags))
    if chosen:
        parser.error(f"{chosen[0]} is chosen by the search")
    trials = None
    try:
        trials = Trials(
            options.out,
            options.file,
            flags,
            options.repeats,
            options.on,
            options.first_seed,
            lambda line: print(line, file=sys.stderr, flush=True),
        )
        result = search(trials.measure, options.beta, options.settings, options.bsp_accuracy)
        text = as_text(result, trials.core_seconds)
        content = as_json(result, trials.core_seconds)
        write_atomically(options.out / "report.md", f"{text}\n".encode())
        write_json(options.out / "report.json", content)
    except ExpectedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {error.filename or options.out}: {error.strerror or error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"interrupted: finished runs are kept in {options.out}; the same command goes on", file=sys.stderr)
        return 1
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
