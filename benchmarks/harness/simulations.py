"""Many simulations that form one experiment, carried out in turn or several at a time.

Their results are kept in one file.
"""

import argparse
import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

import yaml

from esync.arguments import count
from esync.runtime.errors import ExpectedError
from esync.runtime.files import write_atomically
from esync.runtime.processes import tied

from . import budget
from .figures import damaged, read_figures, write_figures
from .held_out import held_out_file, write_held_out
from .program import RESULTS, bare_parser
from .thinning import thinned_result

#: Published learning rate, on the gradient summed over the batch.
RATE = 0.0005
#: Test accuracy whose time is compared, as it is written in results.
TARGET = "0.8"
#: Kind of data → the partition among the workers.
PARTITIONS = {"iid": "contiguous", "niid": "class"}
#: File of all finished runs of an experiment: name → result, and real times if they were measured.
RUNS = "runs.json"
#: Seconds between two lines of progress.
TELL_EVERY = 10.0


class Run(Protocol):
    """A simulation of an experiment."""

    @property
    def name(self) -> str:
        """The name that no other run of the experiment has."""

    def words(self, options: argparse.Namespace) -> list[str]:
        """Return the command line, which writes the result to the `result_file`."""


_R = TypeVar("_R", bound=Run)


def parser(doc: str | None, folder: str, seeds: int, seeds_help: str) -> argparse.ArgumentParser:
    """Return a parser of an experiment.

    Its options are --out, in whose default `folder` stands, --seeds, with its default and help,
    --jobs, --budget and --list.
    """
    command = bare_parser(doc)
    command.add_argument(
        "--out", type=Path, default=RESULTS / folder, help="folder of the results (default: %(default)s)"
    )
    command.add_argument("--seeds", type=count, default=seeds, help=f"{seeds_help} (default: %(default)s)")
    command.add_argument("--jobs", type=count, default=2, help="simulations at a time (default: %(default)s)")
    budget.add_arguments(command)
    return command


def simulate(file: Path | str, run: Run, out: Path, *flags: str, held_out: bool = False) -> list[str]:
    """Return the command line of a simulation that writes its result to the `result_file`.

    Args:
        file: description of the cluster.
        run: the run.
        out: the experiment's folder.
        flags: further flags.
        held_out: whether it is tested on training images that are kept back.
    """
    words = [sys.executable, "-m", "esync.simulate", str(file), *flags]
    words += [f"--dataset=npz:{held_out_file(out).resolve()}"] if held_out else []
    return [*words, f"--json={result_file(out, run)}"]


def within_budget(
    chosen: Sequence[_R],
    options: argparse.Namespace,
    planned: Callable[[_R], float],
    outdated: Collection[str] = (),
) -> list[_R]:
    """Return the beginning of the list of runs that the budget pays for, and name the others.

    Args:
        chosen: the runs.
        options: options: `out` and `budget`.
        planned: returns the core-seconds that a run costs by estimate.
        outdated: see `spent`.
    """
    costs = {run.name: planned(run) for run in chosen}
    kept = budget.within(costs, spent(options.out, outdated), options.budget)
    if over := budget.left_out(costs, kept):
        print(over, flush=True)
    return list(chosen[: len(kept)])


def listed(
    chosen: Sequence[_R],
    options: argparse.Namespace,
    planned: Callable[[_R], float],
    outdated: Collection[str] = (),
) -> int:
    """Print the runs, whether they are done, and their costs, as --list asks for; return the exit code."""
    print(budget.listed({run.name: planned(run) for run in chosen}, spent(options.out, outdated), options.budget))
    return 0


def only(chosen: Iterable[_R], text: str) -> list[_R]:
    """Return the runs whose names contain a text, which is that of --only.

    Raises:
        ExpectedError: there are none.
    """
    matching = [run for run in chosen if text in run.name]
    if not matching:
        raise ExpectedError(f"--only {text}: the name of no run contains this" if text else "no run has these options")
    return matching


def write_description(path: Path, content: Mapping[str, Any]) -> Path:
    """Write a cluster's description, unless its file has it already, and return the file."""
    text = yaml.safe_dump(content, sort_keys=False)
    if not path.exists() or path.read_text() != text:
        write_atomically(path, text.encode())
    return path


def results(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the results of an experiment's finished runs by their names."""
    return {name: run["result"] for name, run in _kept(folder).items()}


def real_times(folder: Path) -> dict[str, dict[str, Any]]:
    """Return what the finished runs have really taken, by their names; see `esync.simulate`."""
    return {name: run.get("real", {}) for name, run in _kept(folder).items()}


def _kept(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the finished runs with their results and real times."""
    kept = read_figures(folder / RUNS)
    if foreign := next((name for name, run in kept.items() if not _finished(run)), None):
        raise damaged(folder / RUNS, f"{foreign} is not a finished run")
    return kept


def _finished(run: Any) -> bool:
    return isinstance(run, dict) and isinstance(run.get("result"), dict) and isinstance(run.get("real", {}), dict)


def spent(out: Path, outdated: Collection[str] = ()) -> dict[str, float]:
    """Return the core-seconds of each finished run by its name.

    Older results have seconds on the clock instead. `outdated` are finished runs that are to be
    carried out again, and left out.
    """
    return {
        name: real.get("core_seconds", real.get("preparation", 0.0) + real.get("simulation", 0.0))
        for name, real in real_times(out).items()
        if name not in outdated
    }


def result_file(folder: Path, run: Run) -> Path:
    """Return the file to which a run writes its result, until `gather` moves it to the others."""
    return folder / f"{run.name}.json"


def gather(folder: Path, runs: Iterable[Run]) -> None:
    """Move the results of these runs to the file of all runs.

    The next program finds what an interrupted one has left. Programs that carry out other runs of
    the same experiment at the same time wait for one another. Damaged results are removed, so that
    their runs are carried out again.
    """
    with _locked(folder):
        kept = _kept(folder)
        files = []
        for run in runs:
            result = result_file(folder, run)
            real = result.with_suffix(".real.json")  # written last
            if real.exists():
                with suppress(ValueError, FileNotFoundError):
                    run_result = {"result": json.loads(result.read_text()), "real": json.loads(real.read_text())}
                    if _finished(run_result):
                        kept[run.name] = {**run_result, "result": thinned_result(run_result["result"])}
                files += [real, result]
        if files:
            write_figures(folder / RUNS, dict(sorted(kept.items())))
        for file in files:
            file.unlink(missing_ok=True)


def forget(folder: Path, names: Collection[str]) -> None:
    """Remove runs from the file of all runs, so that they are carried out again."""
    with _locked(folder):
        kept = _kept(folder)
        if not kept.keys().isdisjoint(names):
            write_figures(folder / RUNS, {name: run for name, run in kept.items() if name not in names})


def carry_out(chosen: Sequence[Run], options: argparse.Namespace, lacks: Callable[[Any], str] = lambda run: "") -> bool:
    """Carry out the runs that are not finished yet, each in a process of its own.

    Args:
        chosen: the runs.
        options: options: `out`, the experiment's folder, and `jobs`, the number of runs at a time.
        lacks: returns what a run still has to wait for; "" if it can begin.

    Returns:
        Whether all of them succeeded.
    """
    out: Path = options.out
    gather(out, chosen)
    finished = results(out)
    waiting = [run for run in chosen if run.name not in finished]
    done, failed = len(chosen) - len(waiting), 0
    cores = len(os.sched_getaffinity(0))
    environment = {"OMP_NUM_THREADS": str(max(1, cores // options.jobs)), **os.environ}
    under_way: dict[Run, subprocess.Popen[bytes]] = {}
    reported_at = 0.0
    try:
        while waiting or under_way:
            while waiting and len(under_way) < options.jobs:
                run = next((run for run in waiting if not lacks(run)), None)
                if run is None and not under_way:
                    print(f"{waiting[0].name} needs {lacks(waiting[0])}, which is not there", flush=True)
                    return False
                if run is None:
                    break
                waiting.remove(run)
                with (out / f"{run.name}.log").open("wb") as log:
                    under_way[run] = subprocess.Popen(tied(run.words(options)), stdout=log, stderr=log, env=environment)
            for run, process in list(under_way.items()):
                if process.poll() is not None:
                    del under_way[run]
                    gather(out, [run])
                    done, failed = done + (process.returncode == 0), failed + (process.returncode != 0)
                    print(f"{done} of {len(chosen)} done: {run.name}: {_last_line(out, run)}", flush=True)
            if time.monotonic() - reported_at > TELL_EVERY:
                reported_at = time.monotonic()
                for run in under_way:
                    print(f"{done} of {len(chosen)} done; {run.name}: {_last_line(out, run)}", flush=True)
            time.sleep(0.5)
    finally:
        for process in under_way.values():
            process.terminate()
        for process in under_way.values():
            process.wait()
    return not failed


def carry_out_methods(
    chosen: Sequence[_R],
    options: argparse.Namespace,
    planned: Callable[[_R], float],
    show: Callable[[argparse.Namespace], None],
) -> int:
    """Carry out, or list, the runs of methods whose settings are tuned first; return the exit code.

    Args:
        chosen: the runs: those that tune, or those with the tuned settings.
        options: options: `out`, `jobs`, `budget`, `list`, `methods`, and `tune`, whether the runs tune.
        planned: returns the core-seconds that a run costs by estimate.
        show: shows the results, once all runs have ended.

    Raises:
        ExpectedError: there are no runs, because none of the methods is tuned.
    """
    if not chosen:
        raise ExpectedError(f"none of {', '.join(options.methods)} can be reported; run this program with --tune first")
    if options.list:
        return listed(chosen, options, planned)
    if options.tune:
        write_held_out(options.out)
    kept = within_budget(chosen, options, planned)
    succeeded = carry_out(kept, options)
    show(options)
    return 0 if succeeded else 1


def _last_line(out: Path, run: Run) -> str:
    lines = (out / f"{run.name}.log").read_text(errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "begins")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
