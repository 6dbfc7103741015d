"""Log folders of a job: locked for one job at a time, and cleared of an earlier run's logs.

{log_dir}/{network}/{mode}/{host}/{device}/     rounds, written by the workers
{log_dir}/{network}/{mode}/processes/NAME.log   what each process printed
{log_dir}/{network}/{mode}/processes/outcome.json   how the job went
{log_dir}/{network}/{mode}/report.html          the finished job on one page

For a run with a name, {mode}@{name} takes the place of {mode}.

The folder `processes` contains no folders, so that the log tools do not mistake it for a host's.
"""

import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

from ..reports.job_events import OUTCOME_FILE, REPORT_FILE
from ..runtime.errors import ExpectedError
from ..runtime.files import EARLIER_PREFIX, earlier_stamp, lock_file
from ..training import round_log
from ..training.round_log import LogDirectoryError

PROCESSES = "processes"
LOCK_FILE = ".lock"
NONCE_FILE = f"{PROCESSES}/{LOCK_FILE}"


class BusyLogsError(ExpectedError):
    """Raised when another job writes its logs to that folder."""


class LogFolders:
    """The log folders of one job, locked until this is closed.

    Args:
        mode_folder: {log_dir}/{network}/{mode}.
        overwrite: delete an earlier run's logs instead of moving them aside.
        resume: leave the devices' logs in place, because the workers may continue that run.

    Attributes:
        nonce: content of the file NONCE_FILE in `mode_folder` while the job runs. A machine that
            reads the same content there shares this disk.

    Raises:
        LogDirectoryError: the folders cannot be made or written.
        BusyLogsError: another running job has locked them.
    """

    def __init__(self, mode_folder: Path, overwrite: bool, resume: bool = False) -> None:
        self.mode_folder = mode_folder
        self.processes = mode_folder / PROCESSES
        self.nonce = uuid.uuid4().hex
        try:
            self._lock = lock_folder(self.processes, mode_folder)
            self._lock.write(self.nonce)
            self._lock.flush()
            self._clear_processes(overwrite)
            if not resume:
                clear_devices(mode_folder.glob("*/*"), overwrite)
        except OSError as error:
            raise LogDirectoryError(f"cannot write logs to {mode_folder}: {error.strerror or error}") from None

    def close(self) -> None:
        """Release the lock."""
        self._lock.close()

    def _clear_processes(self, overwrite: bool) -> None:
        """Rename the files of an earlier job, or delete them to overwrite.

        NAME.log, for instance, becomes NAME.earlier-TIME.log.
        """
        leftovers = [log for log in self.processes.glob("*.log") if f".{EARLIER_PREFIX}" not in log.name]
        leftovers += [file for name in (OUTCOME_FILE, REPORT_FILE) if (file := self.mode_folder / name).exists()]
        stamp = earlier_stamp()
        while any(self.processes.glob(f"*.{stamp}.log")):
            stamp += "+"
        for file in leftovers:
            if overwrite:
                file.unlink()
            else:
                file.rename(file.with_name(f"{file.stem}.{stamp}{file.suffix}"))


def lock_host_folder(folder: Path, overwrite: bool, resume: bool) -> TextIO:
    """Lock the log folder of one remote host while the returned file is open.

    Args:
        folder: {log_dir}/{network}/{mode}/{host}.
        overwrite: delete an earlier run's logs instead of moving them aside.
        resume: leave the devices' logs in place, because the workers may continue that run.

    Raises:
        LogDirectoryError: the folder cannot be made or written.
        BusyLogsError: another running job has locked it.
    """
    try:
        lock = lock_folder(folder, folder)
        if not resume:
            clear_devices(folder.glob("*"), overwrite)
    except OSError as error:
        raise LogDirectoryError(f"cannot write logs to {folder}: {error.strerror or error}") from None
    return lock


def lock_folder(folder: Path, name: Path) -> TextIO:
    """Make a folder, and lock it while the returned file is open.

    The error message names the folder `name`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = open(folder / LOCK_FILE, "a", encoding="utf-8")  # noqa: SIM115 - stays open as long as the job
    if not lock_file(lock.fileno(), folder / LOCK_FILE, f"no other job writes its logs to {name}"):
        lock.close()
        raise BusyLogsError(
            f"another job writes its logs to {name}; wait for its end, or give this one a --name or another --log-dir"
        )
    lock.truncate(0)
    return lock


def clear_devices(folders: Iterable[Path], overwrite: bool) -> None:
    """Move aside or delete the rounds of an earlier run, which could be mistaken for this job's."""
    for device in list(folders):
        if any(device.glob("iter-*.txt")):
            _, lock = round_log.claim(device.parent, device.name, overwrite)
            lock.close()
