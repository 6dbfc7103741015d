"""How a benchmark begins and ends: command line, signals, exit code, verdict on a target."""

import argparse
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from esync.runtime.terminal import print_error, run_command

ROOT = Path(__file__).resolve().parents[2]
CLUSTERS = ROOT / "clusters"
RESULTS = ROOT / "results"
# Some programs use parts of the tests, such as key stores in memory and hosts that are network
# namespaces.
sys.path += [str(ROOT), *(str(ROOT / "tests" / folder) for folder in ("data", "launch"))]


def bare_parser(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser whose help is the program's docstring."""
    return argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


def parser(doc: str | None, json: Path | None = None) -> argparse.ArgumentParser:
    """Return such a parser with the option --json, whose default is `json`."""
    options = bare_parser(doc)
    help_text = "write the figures there, too" if json is None else "write the figures there (default: %(default)s)"
    options.add_argument("--json", type=Path, metavar="FILE", default=json, help=help_text)
    return options


def command() -> str:
    """Return the command line of this program, which is written beside its figures."""
    return shlex.join(["python", *sys.argv])


def run(main: Callable[[], int | None]) -> NoReturn:
    """Run a program and exit with its code.

    SIGTERM, SIGHUP and Ctrl-C end it, and everything that it has started, through its `with`
    statements. An `ExpectedError` or an OSError ends it with one line.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP
            signal.signal(number, lambda number, _: sys.exit(128 + number))

    def interruptible() -> int:
        try:
            return main() or 0
        except KeyboardInterrupt as interrupt:
            print(": ".join(["interrupted", *interrupt.args]), file=sys.stderr)
            return 128 + signal.SIGINT

    sys.exit(run_command(interruptible, lambda message: print_error(f"error: {message}")))


def verdict(met: bool) -> str:
    """Return the word for a target that is met or missed."""
    return "met" if met else "MISSED"
