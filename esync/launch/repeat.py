"""`--repeat N`: run a job with N seeds, one after another, and report the means of their figures.

Each run has its own name and folder: `base-seed3` with `--name base`, `seed3` without it. A failed
run is reported, and the next one starts.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import config
from ..reports.comparison import Comparison, compare_runs
from ..reports.comparison_text import comparison_text
from ..reports.runs import load_run
from ..runtime.errors import ExpectedError
from ..runtime.preemption import EXIT_CODE
from ..runtime.run_names import run_name, with_seed
from ..runtime.terminal import output_width
from .description import DescriptionError

#: Placeholder for the seed in the command of a user's program.
PLACEHOLDER = "{seed}"


@dataclass(frozen=True)
class Repetition:
    """One of the runs: its seed, its name, and the flags in which it differs from the others."""

    seed: int
    name: str
    typed: Mapping[str, Any]


@dataclass(frozen=True)
class RunEnd:
    """How one of the runs has ended.

    Attributes:
        exit_code: 0 for success.
        folder: folder of its logs; None if it has none.
        interrupted: whether a signal has ended it; the remaining runs are then skipped.
    """

    exit_code: int
    folder: Path | None = None
    interrupted: bool = False


def repetitions(count: int, described: Mapping[str, Any], typed: Mapping[str, Any]) -> list[Repetition]:
    """Return runs with consecutive seeds, each with its own directory for checkpoints.

    Args:
        count: number of runs.
        described: flags of the cluster's description.
        typed: flags of the command line, which override the description's.

    Raises:
        DescriptionError: a name with the seed appended is too long.
    """
    settings = {**described, **typed}
    first, base = settings.get("seed", config.SEED), settings.get("name") or ""
    runs = []
    for seed in range(first, first + count):
        try:
            name = run_name(with_seed(base, seed))
        except ValueError as error:
            raise DescriptionError(f"--name: {error}") from None
        run_flags: dict[str, Any] = {"name": name}
        if settings.get("checkpoint_dir"):
            run_flags["checkpoint_dir"] = str(Path(settings["checkpoint_dir"]) / name)
        runs.append(Repetition(seed, name, run_flags))
    return runs


def run_all(
    runs: Sequence[Repetition],
    run: Callable[[Repetition], RunEnd],
    notify: Callable[[str], None],
    print_error: Callable[[str], None],
    report: Callable[[Comparison], None],
) -> int:
    """Run the repetitions one after another, and report on all of them.

    Args:
        runs: the repetitions.
        run: called with each repetition to run it.
        notify: called with a message before each run.
        print_error: called with each error.
        report: called with the comparison of the runs that have logs.

    Returns:
        The exit code: 0 if all runs have succeeded, 75 if one has been preempted, otherwise 1.

    Raises:
        DescriptionError: the description and the flags do not make a job.
    """
    folders, failed, unstarted = [], list[str](), ""
    for number, repetition in enumerate(runs, 1):
        notify(f"run {number} of {len(runs)}: {repetition.name}, seed {repetition.seed}")
        try:
            end = run(repetition)
        except DescriptionError:
            raise
        except ExpectedError as error:
            print_error(str(error))
            end = RunEnd(1)
        if end.exit_code == 0 and end.folder is not None:
            folders.append(end.folder)
        if end.exit_code:
            failed.append(repetition.name)
        if end.exit_code == EXIT_CODE:
            return EXIT_CODE
        if end.interrupted:
            unstarted = f"; {len(runs) - number} more have not begun" if number < len(runs) else ""
            break
    if folders:
        comparison = compare_folders(folders)
        print(comparison_text(comparison, output_width()), flush=True)
        report(comparison)  # last, because it fails on a full disk
    if failed:
        print_error(f"{len(failed)} of {len(runs)} runs failed: {', '.join(failed)}{unstarted}")
    return 1 if failed else 0


def compare_folders(folders: Iterable[Path]) -> Comparison:
    """Return the comparison of runs, each given by its folder."""
    return compare_runs([load_run(folder) for folder in folders])
