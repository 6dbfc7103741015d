"""Folders of runs' logs: {log_dir}/{network}/{mode}, or {mode}@{name} for a run with a name."""

import argparse
from pathlib import Path

from ..algorithms.registry import suffix_of
from ..runtime.run_names import folder_name, parts, without_seed
from ..runtime.user_functions import short_name


def same_below(base: str | Path, folder: Path, log_dir: str | Path) -> Path:
    """Return the folder below `base` with the same relative path as a run's `folder` below `log_dir`."""
    return Path(base) / folder.relative_to(log_dir)


def run_folder(log_dir: str | Path, trained: str, mode: str, name: str | None) -> Path:
    """Return the folder of a run's logs, which contains a folder for each host.

    Args:
        log_dir: base folder of the logs.
        trained: name of the network or the program.
        mode: name of the algorithm.
        name: name of the run; None if it has none.
    """
    return Path(log_dir) / trained / folder_name(mode, name or "")


def names_of(device_folder: Path, algorithm: str) -> tuple[str, str]:
    """Return the name of the folder of a run's logs, and what it would be without a seed in the run's name.

    A run that has its logs elsewhere is named as its algorithm.

    Args:
        device_folder: of a worker's logs.
        algorithm: name of the run's algorithm.
    """
    folder = device_folder.parent.parent.name
    mode, name = parts(folder)
    if not mode.startswith(algorithm):
        return algorithm, algorithm
    return folder, folder_name(mode, without_seed(name))


def mode_folder(options: argparse.Namespace) -> Path:
    """Return the folder of the logs of a run with these flags, {log_dir}/{network}/{mode}.

    The mode's name has a suffix if the workers' data are not i.i.d., followed by the name of the run, if
    it has one.
    """
    mode = options.algorithm.name
    if options.algorithm.sends != "nothing":  # else one worker has all the data
        mode += suffix_of(options.partition)
    return run_folder(options.log_dir, short_name(options.network), mode, options.name)
