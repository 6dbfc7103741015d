"""Predict which mode suits a cluster: `esync plan CLUSTER.yaml`."""

import argparse
import signal
import sys
import textwrap
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from .. import arguments
from ..algorithms import find
from ..launch import user_program
from ..launch.description import read
from ..runtime import descriptions, program
from ..runtime.files import expanded, write_json
from ..runtime.progress_view import ProgressView
from ..runtime.terminal import messages_of, run_command
from ..samples import UNKNOWN, Training
from . import report
from .calibration import set_true
from .candidates import DESCRIPTION_KEYS
from .log_training import read_training
from .measured_description import write_measured
from .ranking import Plan, plan

_notify, _print_error = messages_of("plan"), messages_of("plan: error")

#: Characters of a line where the output is no terminal.
WIDTH = 100


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    command_parser = argparse.ArgumentParser(
        prog=program.name("python -m esync.planning"),
        description="Predict how fast each mode would train on a cluster, and recommend one.",
        allow_abbrev=False,
    )
    add = command_parser.add_argument
    descriptions.add_file(command_parser)
    command_parser.usage = f"{command_parser.prog} FILE [flags] [-- python train.py [its own flags]]"
    command_parser.epilog = (
        "Without --no-measure and --from-logs, devices, network and servers are measured on their hosts, which takes "
        "about half a minute (docs/how-to/plan.md). Behind -- stands a program of your own, as with esync launch."
    )
    times = command_parser.add_mutually_exclusive_group()
    times.add_argument("--no-measure", action="store_true", help="take all times from FILE, and measure nothing")
    times.add_argument(
        "--from-logs", type=expanded, metavar="DIR", help="take the times from the logs of an earlier run, in DIR"
    )
    add(
        "--write",
        type=expanded,
        metavar="OUT",
        help="where to write the description with the measured times (default: NAME.calibrated.yaml beside FILE)",
    )
    add(
        "--what-if",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="also predict a changed cluster: network=10Gbit, latency=5ms, without=HOST, add=gpu:0.03x2, servers=2, "
        "per-host; several together with commas; may be given several times",
    )
    add(
        "--target-accuracy",
        type=float,
        metavar="VALUE",
        help="with --from-logs: value of the metric to predict the times to (default: the description's, else the best "
        "in the logs)",
    )
    add("--modes", type=_modes, default=(), metavar="A,B,C", help="only these modes (default: all)")
    add(
        "--all",
        action="store_true",
        help="show all methods of each class, not only the fastest ones and the modes without further flags",
    )
    add("--json", type=expanded, metavar="FILE", help="write the plan to FILE as JSON")
    add(
        "--jobs",
        type=arguments.count,
        default=None,
        help="how many simulations run at a time (default: as many as there are cores)",
    )
    return command_parser


def _modes(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        try:
            find(name)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
    return names


def main(words: list[str] | None = None) -> int:
    """Make the plan and return the exit code: 0 done, 1 failed, 2 bad usage."""
    for number in (signal.SIGINT, signal.SIGTERM):  # what it has started on other hosts ends, too
        signal.signal(number, _interrupt)
    command_parser = parser()
    typed, program_words = user_program.split(sys.argv[1:] if words is None else words)
    options = arguments.parse_args(command_parser, typed)
    if program_words == ():
        command_parser.error("a program should follow --, for instance -- python train.py --epochs 3")
    if program_words and options.no_measure:
        command_parser.error("a program behind -- is measured: leave out --no-measure, or describe it as program:")
    if options.target_accuracy is not None and not options.from_logs:
        command_parser.error("--target-accuracy needs --from-logs, which say how many samples lead to an accuracy")
    if options.no_measure and options.write:
        command_parser.error("--write names a file for what is measured, and with --no-measure nothing is")
    options.program = program_words or ()
    return run_command(lambda: _plan(options), _print_error)


def _interrupt(*_: object) -> NoReturn:
    """End the program; a second signal must not end the processes' end, or some would be left."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    raise KeyboardInterrupt


def _plan(options: argparse.Namespace) -> int:
    calibrated, missing, training = options.file, list[str](), UNKNOWN
    if options.from_logs:
        target = options.target_accuracy
        if target is None:
            target = read(options.file).train.get("target_accuracy")
        training, sources = read_training(options.from_logs, target)
        for source in sources:
            _notify(f"logs: {source}")
    if not options.no_measure:
        calibrated, missing = write_measured(
            options.file, _notify, write=options.write, from_logs=options.from_logs, program=options.program
        )
    result = predict(calibrated, options, training)
    for key in DESCRIPTION_KEYS:
        recommended = result.ranking.recommended.candidate
        set_by_preset = recommended.preset and key == "per_host"
        chosen = getattr(recommended, key) and not set_by_preset
        if not options.no_measure and chosen and not getattr(result.description, key):
            set_true(calibrated, key)
            _notify(f"added {key}: true to {calibrated}, as it is recommended")
    notes = (*result.notes, *(f"not measured: {line}" for line in missing))
    show(replace(result, program=options.program, notes=notes), options.typed_file, options)
    return 0


def predict(path: Path, options: argparse.Namespace, training: Training = UNKNOWN) -> Plan:
    """Make the plan of a description with times, with progress on standard error."""
    with closing(ProgressView("plan")) as view:

        def show_progress(done: int, of: int) -> None:
            if view.due or done == of:
                view.show(done / of, f"{done} of {of} simulated")

        return plan(
            path,
            modes=options.modes,
            what_ifs=options.what_if,
            at_a_time=options.jobs,
            progress=show_progress,
            training=training,
        )


def show(result: Plan, file: str, options: argparse.Namespace) -> None:
    """Print a plan, and write it if that is asked for."""
    console = Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False, markup=False, emoji=False)
    console.print(report.table(result, options.all, console.width))
    for lines in (report.recommendation(result, file), report.best_of_classes(result, console.width)):
        for line in lines:
            if line.startswith("    # "):
                line = textwrap.fill(line, console.width, subsequent_indent="    #   ", break_on_hyphens=False)
            console.print(line, soft_wrap=line.startswith("    "))  # commands are one line
    if result.what_ifs:
        console.print()
        console.print(report.what_if_table(result))
    for line in report.notes(result):
        _notify(line)
    if options.json:  # last, so that a full disk does not keep the plan from the user
        write_json(options.json, report.as_json(result, file))


if __name__ == "__main__":
    sys.exit(main())
