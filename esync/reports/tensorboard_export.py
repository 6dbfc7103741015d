"""Write event files for TensorBoard from the logs of finished runs.

They are in {network}/{mode}/{host}/{device}, like those of a run with `--tensorboard`.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from ..loggers.logger import evaluation_scalars, round_scalars
from ..loggers.tensorboard import EventFile
from ..runtime.run_names import unused
from .phases import round_ends
from .runs import LoggedRun
from .summary_file import DeviceSummary


def export(runs: Iterable[LoggedRun], folder: Path) -> list[Path]:
    """Write the event files of runs below a folder, and return the folder of each run.

    Raises:
        LoggerError: tensorboardX is not installed, or a file cannot be written.
    """
    places: list[Path] = []
    for run in runs:
        target = folder / _folder_name(run.network) / run.folder.resolve().name
        places.append(Path(unused(str(target), [*map(str, places)])))
        for host, devices in run.summary.items():
            for name, device in devices.items():
                _export_device(device, places[-1] / _folder_name(host) / _folder_name(name))
    return places


def _folder_name(text: str) -> str:
    """Return a name from a log as a valid name of a folder, without separators."""
    name = re.sub(r"[/\0]", "_", text)
    return "_" if name in ("", ".", "..") else name


def _export_device(device: DeviceSummary, folder: Path) -> None:
    facts = device.run.model_dump() if device.run else {}
    began_at, batch_size = facts.get("started"), facts.get("batch_size")
    started = began_at if isinstance(began_at, int | float) else 0.0
    ends = round_ends(device)
    events = EventFile(folder)
    for index, (number, end) in enumerate(zip(device.rounds_list, ends, strict=True)):
        follows = index > 0 and device.rounds_list[index - 1] == number - 1
        began = ends[index - 1] if follows else 0.0
        samples = device.num_samples_list[index]
        scalars = round_scalars(
            samples=samples,
            seconds=end - began if follows or number == 1 else 0.0,  # unknown if rounds are missing
            local_iterations=round(samples / batch_size) if batch_size else None,
            wait=_at(device.wait_list, index),
            transfer=_at(device.transfer_list, index),
            bytes_sent=None if device.bytes_estimated else _at(device.bytes_sent_list, index),
            bytes_received=_at(device.bytes_received_list, index),
            logged={name: means[index] for name, means in device.logged.items()},
        )
        events.write(number, started + end, scalars)
    evaluations = zip(device.accuracy_rounds, device.accuracy_time_list, device.accuracy_exact_list, strict=True)
    for index, (number, time, value) in enumerate(evaluations):
        parts = {name: values[index] for name, values in device.parts.items()}
        events.write(number, started + time, evaluation_scalars(device.metric.name, value, parts))
    events.close()


def _at(column: list[float | None] | list[int], index: int) -> float | None:
    return column[index] if column else None
