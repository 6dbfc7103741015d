"""Make the calibrated description of a cluster, measured on its hosts or from the logs of a run."""

from collections.abc import Callable, Sequence
from pathlib import Path

from ..launch.description import errors_of, read
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
    program: Sequence[str] = (),
) -> tuple[Path, list[str]]:
    """Write the calibrated description of a cluster.

    Args:
        file: the description.
        notify: tells the user what is being measured.
        write: file to write; None: beside the description, or in the current folder for a
            description that is part of this package.
        from_logs: folder of the logs of an earlier run, to use instead of a measurement.
        program: command of the user's program, which overrides the description's.

    Returns:
        The written file, and a sentence about each value that is not measured.

    Raises:
        CalibratedFileError: a file of the user's would be overwritten.
        DescriptionError: the description does not make a job.
        NoDevicesError: no device has a time.
    """
    if write is None:
        write = calibrated_path(file)
        if file.parent == descriptions.FOLDER:
            write = Path(write.name)
    check_path(write)
    description = read(file)
    with errors_of(file):
        if from_logs is not None:
            measurement = measure_from_logs(description, file, from_logs, notify, program)
        else:
            measurement = measure(description, HostResources((), threads()), notify, program)
    content = calibrated(file, description, measurement, program)
    write_calibrated(write, file, content, measurement)
    notify(f"wrote {write}")
    return write, measurement.missing
