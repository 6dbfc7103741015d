"""From a description to the calibrated one: measured on the hosts, or from the logs of a run."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..launch.description import DescriptionError, read
from ..launch.resources import HostResources
from ..runtime import descriptions
from ..runtime.cores import threads
from .calibration import calibrated, calibrated_path, check_path, write_calibrated
from .log_measurement import measure_from_logs
from .measurement import measure


def write_measured(
    file: Path,
    notify: Callable[[str], None],
    *,
    write: Path | None = None,
    from_logs: Path | None = None,
    typed: Mapping[str, Any] | None = None,
    program: Sequence[str] = (),
) -> tuple[Path, list[str]]:
    """Write the calibrated description of a cluster.

    Args:
        file: the description.
        notify: tells the user what is being measured.
        write: where to; None: beside the description, or in the current folder where that comes
            with this package.
        from_logs: folder of the logs of an earlier run, which take the place of a measurement.
        typed: flags of the worker that override the description's.
        program: words of the user's program that every worker runs; it overrides the description's.

    Returns:
        The file that was written, and a sentence for each thing that is not measured.

    Raises:
        CalibratedFileError: a file of the user's is in the way.
        DescriptionError: the description and the flags do not make a job.
        NoDevicesError: no device has a time.
    """
    if write is None:
        write = calibrated_path(file)
        if file.parent == descriptions.FOLDER:
            write = Path(write.name)
    check_path(write)
    description = read(file)
    try:
        if from_logs is not None:
            found = measure_from_logs(description, file, from_logs, notify)
        else:
            found = measure(description, typed or {}, HostResources((), threads()), notify, program)
    except DescriptionError as error:
        raise DescriptionError(f"{file}: {error}") from None
    content = calibrated(file, description, found, typed, program)
    write_calibrated(write, file, content, found)
    notify(f"wrote {write}")
    return write, found.missing
