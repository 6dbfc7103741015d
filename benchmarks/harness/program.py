"""How a benchmark begins and ends: command line, signals, exit code, verdict on a target."""

import argparse
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from esync.runtime.errors import ExpectedError

ROOT = Path(__file__).resolve().parents[2]
CLUSTERS = ROOT / "clusters"
RESULTS = ROOT / "benchmarks" / "results"
# Some programs use parts of the tests, such as key stores in memory and hosts that are network
# namespaces.
sys.path += [str(ROOT), *(str(ROOT / "tests" / folder) for folder in ("data", "launch"))]


def bare_parser(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser whose help is the program's docstring."""
    return argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


def parser(doc: str | None, json: Path | None = None) -> argparse.ArgumentParser:
    """Return such a parser with the option --json, whose default is `json`."""
    made = bare_parser(doc)
    told = "write the figures there, too" if json is None else "write the figures there (default: %(default)s)"
    made.add_argument("--json", type=Path, metavar="FILE", default=json, help=told)
    return made


def command() -> str:
    """Return the command line of this program, which is written beside its figures."""
    return shlex.join(["python", *sys.argv])


def run(main: Callable[[], int | None]) -> NoReturn:
    """Run a program and exit with its code.

    SIGTERM and Ctrl-C end it through its `with` statements.
    """
    exit_on_sigterm()
    try:
        sys.exit(main())
    except ExpectedError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)


def exit_on_sigterm() -> None:
    """Have SIGTERM end this program, and everything that it has started, as Ctrl-C does."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def verdict(met: bool) -> str:
    """Return the word for a target that is met or missed."""
    return "met" if met else "MISSED"
