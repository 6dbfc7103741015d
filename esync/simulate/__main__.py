"""Train on a modelled cluster in virtual time: `python -m esync.simulate clusters/NAME.yaml`.

Every flag of the worker may be given; flags override the description's `train` section.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from .. import arguments
from ..launch import flags
from ..launch.description import DescriptionError
from ..runtime import descriptions, program
from ..runtime.errors import ExpectedError
from ..runtime.files import expanded, write_atomically
from ..runtime.terminal import clock
from . import sweep
from .job import FinishedSimulation, SimulationJob, run


def parse_arguments(words: list[str]) -> tuple[argparse.Namespace, SimulationJob]:
    """Return the options, and the job that they describe."""
    program_name = program.name("python -m esync.simulate")
    parser = flags.parser_of_all(program_name, "Train on a modelled cluster, in virtual time.", words)
    parser.usage = f"{program_name} FILE [--numerics none] [--json FILE] [--sweep KEY=A,B,C] [flags of the worker]"
    with arguments.reporting_conflicts(parser):
        _add_to(parser)
    options = parser.parse_args(words)
    typed = arguments.given(parser, words) & set(flags.known()) - {"quiet"}
    job = SimulationJob(
        file=options.file,
        numerics=options.numerics,
        typed={name: getattr(options, name) for name in sorted(typed)},
        logs=False if options.no_logs else None,
        leases=not options.no_leases,
        free_network=options.free_network,
        quiet=options.quiet,
    )
    return options, job


def _add_to(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the simulation itself."""
    add = parser.add_argument_group("simulation").add_argument
    descriptions.add_file(parser)
    add(
        "--numerics",
        choices=("real", "none"),
        default="real",
        help="real: gradients are computed; none: only times, waits and bytes come out (default: %(default)s)",
    )
    add(
        "--json",
        type=expanded,
        metavar="FILE",
        help="write the result to FILE, real times to FILE with .real in its name",
    )
    add("--no-logs", action="store_true", help="write no round files")
    add("--no-leases", action="store_true", help="workers ask after every iteration, as published ones do")
    add("--free-network", action="store_true", help="as if the section network were not there: nothing costs anything")
    add(
        "--sweep",
        action=_Collect,
        default=[],
        metavar="KEY=A,B,C",
        help="simulate every combination; KEY is a flag (epsilon) or a place in FILE (network.bandwidth)",
    )
    add("--jobs", type=arguments.count, default=None, help="simulations at a time of a sweep (default: the cores)")


class _Collect(argparse.Action):
    """Like argparse's append, for flags whose default `arguments.given` replaces."""

    def __call__(
        self, parser: object, namespace: argparse.Namespace, values: Any, option_string: object = None
    ) -> None:
        """Append a value."""
        before = getattr(namespace, self.dest)
        setattr(namespace, self.dest, [*(before if isinstance(before, list) else []), values])


def main(words: list[str] | None = None) -> int:
    """Simulate; the exit code: 0 done, 1 failed, 2 bad usage."""
    options, job = parse_arguments(sys.argv[1:] if words is None else words)
    try:
        if options.sweep:
            return sweep.run(job, options.sweep, options.jobs, options.json)
        done = run(job)
        if options.json:
            write(options.json, done)
        print("\n".join(summary(done)), flush=True)
        return 0
    except ExpectedError as error:
        _print_error(str(error))
        return 2 if isinstance(error, DescriptionError) else 1
    except OSError as error:
        _print_error(f"{error.filename or 'failed'}: {error.strerror or error}")
    except KeyboardInterrupt:
        _print_error("interrupted")
    return 1


def write(path: Path, done: FinishedSimulation) -> None:
    """Write the result, and beside it what differs from run to run."""
    for file, content in ((path, done.result), (path.with_suffix(f".real{path.suffix}"), done.real)):
        write_atomically(file, json.dumps(content, indent=2).encode() + b"\n")


def summary(done: FinishedSimulation) -> list[str]:
    """Return the result as readable text."""
    result: dict[str, Any] = done.result
    efficiency = result["efficiency"]
    lines = [
        f"{result['network']}, {result['mode']}, {result['workers']} workers: {result['rounds']} rounds in "
        f"{clock(result['seconds'])} of virtual time ({done.real['simulation']:.1f} s)",
        f"{result['throughput'] or 0.0:.1f} samples/s"
        + (f", {efficiency:.0%} of the devices' speed" if efficiency is not None else ""),
    ]
    if result["final_accuracy"] is not None:
        reached = [f"{target} after {clock(at)}" for target, at in result["time_to"].items() if at is not None]
        lines.append("; ".join([f"test accuracy {result['final_accuracy']:.3f}", *reached]))
    if len(result["devices"]) <= 20:
        for device in result["devices"]:
            lines.append(
                f"  {device['host']}/{device['device']}: {device['iterations'] / max(device['rounds'], 1):.1f} local "
                f"iterations of {device['step_time']:g} s a round, computing {device['computing_ratio'] or 0.0:.0%}, "
                f"wait {device['wait']['mean']:.3f} s (longest {device['wait']['max']:.3f}), "
                f"transfer {device['transfer']:.3f} s"
            )
    if done.logs is not None:
        lines.append(f"logs: {done.logs}")
    return lines


def _print_error(text: str) -> None:
    print(f"simulate: error: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
