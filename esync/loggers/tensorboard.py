"""Event files for TensorBoard, written with tensorboardX, which is not installed by default.

The step of a scalar is the number of the round, or in asynchronous modes of the worker's exchange.
Event files are in `{network}/{mode}/{host}/{device}` below the user's folder, like logs; each of
these folders is a run in TensorBoard.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..runtime.files import make_earlier_folder
from .logger import Logger, LoggerError
from .logger import require as require_package

#: Part of the names of event files, by which TensorBoard finds them.
EVENT_FILE = "tfevents"


def require() -> None:
    """Check that tensorboardX is installed.

    Raises:
        LoggerError: it is not installed.
    """
    require_package("tensorboardX", "tensorboard", "event files for TensorBoard need tensorboardX")


class EventFile(Logger):
    """Writes scalars of one device; each call writes at once, in the caller's thread.

    tensorboardX's `SummaryWriter` is not used, because its queue blocks forever if the disk is full.

    Args:
        folder: the folder. Event files of an earlier run in it are moved to a subfolder
            `earlier-TIME`, which TensorBoard shows as a separate run.
        go_on: leave them in place, because the run is resumed.

    Raises:
        LoggerError: tensorboardX is not installed, or the file cannot be written.
    """

    def __init__(self, folder: Path, go_on: bool = False) -> None:
        require()
        from tensorboardX.event_file_writer import EventsWriter

        self._folder = folder
        with self._failures_named():
            folder.mkdir(parents=True, exist_ok=True)
            earlier = [] if go_on else list(folder.glob(f"*{EVENT_FILE}*"))
            if earlier:
                aside = make_earlier_folder(folder)
                for path in earlier:
                    path.rename(aside / path.name)
            # A run that is resumed within a second must not overwrite its previous file.
            suffix = f".{len(list(folder.glob(f'*{EVENT_FILE}*')))}"
            self._writer: Any = EventsWriter(str(folder / "events"), suffix)

    def write(self, step: int, wall_time: float, scalars: Mapping[str, float | None]) -> None:
        """Write scalars by their tags; those that are None are left out.

        Args:
            step: number of the round.
            wall_time: seconds since 1970.
            scalars: the values.

        Raises:
            LoggerError: the file cannot be written.
        """
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items() if value is not None]
        with self._failures_named():
            self._writer.write_event(Event(step=step, wall_time=wall_time, summary=Summary(value=values)))

    def flush(self) -> None:
        """Write all buffered scalars.

        Raises:
            LoggerError: the file cannot be written.
        """
        with self._failures_named():
            self._writer.flush()

    def close(self, error: str = "") -> None:
        """Write the rest.

        Raises:
            LoggerError: the file cannot be written.
        """
        with self._failures_named():
            self._writer.close()

    @contextmanager
    def _failures_named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise LoggerError(f"cannot write event files to {self._folder}: {error.strerror or error}") from None
