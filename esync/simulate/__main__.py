"""Train on a modelled cluster in virtual time: `python -m esync.simulate clusters/NAME.yaml`.

Every flag of the worker may be given; flags override the description's `train` section.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import arguments
from ..launch import flags
from ..launch.description import DescriptionError
from ..launch.repeat import Repetition, RunEnd, repetitions, run_all
from ..reports.comparison import Comparison
from ..reports.discovery import find_devices, moved_aside
from ..reports.speedups import over_fastest
from ..runtime import descriptions, program
from ..runtime.evaluation_result import lowest_recall
from ..runtime.files import expanded, write_json
from ..runtime.terminal import clock, messages_of, run_command
from . import sweep
from .job import FinishedSimulation, SimulationJob, describe, run


def parse_arguments(words: list[str]) -> tuple[argparse.Namespace, SimulationJob]:
    """Return the options, and the job that they describe."""
    program_name = program.name("python -m esync.simulate")
    parser = flags.parser_of_all(program_name, "Train on a modelled cluster, in virtual time.", words)
    parser.usage = f"{program_name} FILE [--numerics none] [--json FILE] [--sweep KEY=A,B,C] [flags of the worker]"
    with arguments.reporting_conflicts(parser):
        _add_to(parser)
    options = arguments.parse_args(parser, words)
    typed = arguments.typed_flags(parser, words) & set(flags.all_flags()) - {"quiet"}
    job = SimulationJob(
        file=options.file,
        numerics=options.numerics,
        typed={name: getattr(options, name) for name in sorted(typed)},
        logs=False if options.no_logs else None,
        leases=not options.no_leases,
        free_network=options.free_network,
        quiet=options.quiet,
        initial_model=options.initial_model,
        final_model=options.final_model,
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
    add(
        "--initial-model",
        type=expanded,
        metavar="FILE",
        help="begin with this model, a file of --final-model or a final model's .params (default: made from --seed)",
    )
    add("--final-model", type=expanded, metavar="FILE", help="write the parameters of the model at the end to FILE")
    add("--no-logs", action="store_true", help="write no round files")
    add("--no-leases", action="store_true", help="workers ask after every iteration, as in the published code")
    add("--free-network", action="store_true", help="ignore the section network: messages cost nothing")
    add(
        "--sweep",
        action="append",
        default=[],
        metavar="KEY=A,B,C",
        help="simulate every combination; KEY is a flag (epsilon) or a place in FILE (network.bandwidth)",
    )
    add(
        "--repeat",
        type=arguments.count,
        metavar="N",
        help="simulate N times, with the seeds from --seed upwards, each run in a folder of its own, and print the "
        "means of their figures",
    )
    add("--jobs", type=arguments.count, default=None, help="simulations of a sweep at a time (default: the cores)")


def main(words: list[str] | None = None) -> int:
    """Run the simulation and return its exit code: 0 done, 1 failed, 2 bad usage."""
    options, job = parse_arguments(sys.argv[1:] if words is None else words)
    return run_command(lambda: _simulate(options, job), sweep.print_error)


def _simulate(options: argparse.Namespace, job: SimulationJob) -> int:
    if options.sweep and options.final_model:
        raise DescriptionError(
            "--final-model and --sweep contradict each other: each simulation has a model of its own"
        )
    if options.repeat is not None:
        return _repeat(options, job)
    if options.sweep:
        return sweep.run(job, options.sweep, options.jobs, options.json)
    done = run(job)
    if options.json:
        write(options.json, done)
    print("\n".join(summary(done)), flush=True)
    return 0


def _repeat(options: argparse.Namespace, job: SimulationJob) -> int:
    """Simulate with several seeds; return the exit code."""
    for name in ("sweep", "final_model", "no_logs"):
        if getattr(options, name):
            reason = "sweep seed=0,1,2 instead" if name == "sweep" else "it needs each run's logs, and keeps no models"
            raise DescriptionError(f"--repeat contradicts {flags.flag(name)}: {reason}")

    def simulate(repetition: Repetition) -> RunEnd:
        done = run(replace(job, typed={**job.typed, "name": repetition.name, "seed": repetition.seed}, logs=True))
        print("\n".join(summary(done)), flush=True)
        return RunEnd(0, done.logs)

    def report(comparison: Comparison) -> None:
        if options.json:
            comparison.write_json(options.json)

    runs = repetitions(options.repeat, describe(job).train, job.typed)
    return run_all(runs, simulate, messages_of("simulate"), sweep.print_error, report)


def write(path: Path, done: FinishedSimulation) -> None:
    """Write the result, and to a second file the figures that differ from run to run."""
    for file, content in ((path, done.result), (path.with_suffix(f".real{path.suffix}"), done.real)):
        write_json(file, content)


def summary(done: FinishedSimulation) -> list[str]:
    """Return the result as lines of text."""
    result: dict[str, Any] = done.result
    efficiency = result["efficiency"]
    note = ", one exchange per host" if result.get("per_host") else ""
    lines = [
        f"{result['network']}, {result['mode']}, {result['workers']} workers{note}: {result['rounds']} rounds in "
        f"{clock(result['seconds'])} of virtual time ({done.real['simulation']:.1f} s)",
        f"{result['throughput'] or 0.0:.1f} samples/s"
        + (f", {efficiency:.0%} of the devices' speed" if efficiency is not None else "")
        + (f", {alone}" if (alone := over_fastest(result["throughput"], _speeds(result))) else ""),
    ]
    if result["final_accuracy"] is not None:
        reached = [f"{target} after {clock(at)}" for target, at in result["time_to"].items() if at is not None]
        parts = [f"test accuracy {result['final_accuracy']:.3f}", *reached, lowest_recall(result["final_parts"])]
        lines.append("; ".join(filter(None, parts)))
    if len(result["devices"]) <= 20:
        for device in result["devices"]:
            lines.append(
                f"  {device['host']}/{device['device']}: {device['iterations'] / max(device['rounds'], 1):.1f} local "
                f"iterations of {device['step_time']:g} s at a time, computing {device['computing_ratio'] or 0.0:.0%}, "
                f"wait {device['wait']['mean']:.3f} s (longest {device['wait']['max']:.3f}), "
                f"transfer {device['transfer']:.3f} s"
            )
    if done.logs is not None:
        lines.append(f"logs: {done.logs}")
        earlier = moved_aside(find_devices(done.logs)[0])
        lines += [earlier] if earlier else []
    return lines


def _speeds(result: dict[str, Any]) -> dict[str, float | None]:
    """Return the samples per second of each device while it computes."""
    return {
        f"{device['host']}/{device['device']}": device["batch_size"] / device["step_time"]
        for device in result["devices"]
    }


if __name__ == "__main__":
    sys.exit(main())
