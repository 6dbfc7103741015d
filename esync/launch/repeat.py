"""`--repeat N`: the same job with N seeds, one after another, and the mean of their figures.

Each run has a name, and so a folder of its own: `base-seed3` with `--name base`, `seed3` without.
A run that fails is named, and the others go on.
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
from ..runtime.run_names import run_name, with_seed
from ..runtime.terminal import output_width
from .description import DescriptionError

#: Stands for the seed among the words of a user's program.
PLACEHOLDER = "{seed}"


@dataclass(frozen=True)
class Repetition:
    """One of the runs.

    Attributes:
        seed: its seed.
        name: its name.
        typed: the flags with which it differs from the others.
    """

    seed: int
    name: str
    typed: Mapping[str, Any]


@dataclass(frozen=True)
class RunEnd:
    """How one of the runs has ended.

    Attributes:
        exit_code: 0 if it has done its work.
        folder: folder of its logs; None if it has none.
        interrupted: whether a signal has ended it, which ends all.
    """

    exit_code: int
    folder: Path | None = None
    interrupted: bool = False


def repetitions(count: int, described: Mapping[str, Any], typed: Mapping[str, Any]) -> list[Repetition]:
    """Return the runs with their seeds, from the given one upwards.

    Each run with checkpoints has a folder of its own for them.

    Args:
        count: number of runs.
        described: flags of the cluster's description.
        typed: flags of the command line, which override them.

    Raises:
        DescriptionError: a name is too long with the seed behind it.
    """
    settings = {**described, **typed}
    first, base = settings.get("seed", config.SEED), settings.get("name") or ""
    runs = []
    for seed in range(first, first + count):
        try:
            name = run_name(with_seed(base, seed))
        except ValueError as error:
            raise DescriptionError(f"--name: {error}") from None
        own: dict[str, Any] = {"name": name}
        if settings.get("checkpoint_dir"):
            own["checkpoint_dir"] = str(Path(settings["checkpoint_dir"]) / name)
        runs.append(Repetition(seed, name, own))
    return runs


def run_all(
    runs: Sequence[Repetition],
    run: Callable[[Repetition], RunEnd],
    say: Callable[[str], None],
    print_error: Callable[[str], None],
    report: Callable[[Comparison], None],
) -> int:
    """Do the runs one after another, and report on all of them.

    Args:
        runs: the runs.
        run: does one of them.
        say: tells the user which run begins.
        print_error: prints an error.
        report: called with the comparison of the runs that have logged something.

    Returns:
        The exit code: 0 if all runs have done their work, otherwise 1.

    Raises:
        DescriptionError: the description and the flags do not make a job.
    """
    folders, failed, left = [], list[str](), ""
    for number, each in enumerate(runs, 1):
        say(f"run {number} of {len(runs)}: {each.name}, seed {each.seed}")
        try:
            end = run(each)
        except DescriptionError:
            raise
        except ExpectedError as error:
            print_error(str(error))
            end = RunEnd(1)
        if end.exit_code == 0 and end.folder is not None:
            folders.append(end.folder)
        if end.exit_code:
            failed.append(each.name)
        if end.interrupted:
            left = f"; {len(runs) - number} more have not begun" if number < len(runs) else ""
            break
    if folders:
        comparison = compare_folders(folders)
        print(comparison_text(comparison, output_width()), flush=True)
        report(comparison)  # last, so that a full disk does not keep the table from the user
    if failed:
        print_error(f"{len(failed)} of {len(runs)} runs failed: {', '.join(failed)}{left}")
    return 1 if failed else 0


def compare_folders(folders: Iterable[Path]) -> Comparison:
    """Return the comparison of runs, each given by its folder."""
    return compare_runs([load_run(folder) for folder in folders])
