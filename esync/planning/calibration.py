"""Write down what was measured of a cluster: its description, with the times for the simulator.

The description that the user has written stays as it is. The calibrated one says the same to
launch; what was measured stands in `simulate` and `network`, and what was not keeps the user's own
numbers.
"""

import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from .. import config
from ..launch import user_program
from ..launch.description import Description, WorkerEntry, load_content
from ..runtime.errors import ExpectedError
from ..runtime.files import write_atomically
from ..simulate.timing import SIZES
from .measurement import Measurement
from .network_measurement import HostFigures, bandwidth

#: First line of a calibrated description, by which it is known.
MARK = "# Measured by `esync plan`"
#: What a described device says about its speed; the measured values take its place.
_SPEED = ("step_time", "jitter", "distribution", "trace")
#: Seconds below which two latencies do not differ: what a busy machine does to a round trip.
LEAST_LATENCY = 1e-4
#: Flags that decide how long an iteration takes, or how large the model is.
MEASURED_FLAGS = frozenset(
    {
        *("network", "normalization", "no_hybridize", "dataset", "data_dir", "batch_size", "step_time"),
        *("optimizer", "momentum", "weight_decay"),
    }
)


class NoDevicesError(ExpectedError):
    """Raised where no device has a time, so that there is nothing to simulate."""


class CalibratedFileError(ExpectedError):
    """Raised where the calibrated description would replace a file of the user's."""

    exit_code = 2


def calibrated_path(file: Path) -> Path:
    """Return the default file of the calibrated description of a cluster: NAME.calibrated.yaml."""
    return file.with_name(f"{file.stem.removesuffix('.calibrated')}.calibrated.yaml")


def check_path(path: Path) -> None:
    """Check that a calibrated description may be written there, before anything is measured.

    Raises:
        CalibratedFileError: there is a file that is not a calibrated description, or the folder
            cannot be written.
    """
    try:
        if path.exists() and not _is_calibrated(path):
            raise CalibratedFileError(
                f"{path}: the file exists, and esync plan has not written it; name another one with --write, or delete "
                "it"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):  # what was measured should not be lost for want of a folder
            pass
    except OSError as error:
        raise CalibratedFileError(
            f"{path} cannot be written: {error.strerror or error}; name another file with --write"
        ) from None


def _is_calibrated(path: Path) -> bool:
    """Return whether a path is a file that `write_calibrated` has written."""
    if not path.is_file():  # to read a pipe would wait for ever
        return False
    with path.open("rb") as file:
        return file.read(len(MARK)) == MARK.encode()


def write_calibrated(path: Path, file: Path, content: Mapping[str, Any], measurement: Measurement) -> None:
    """Write a calibrated description.

    Args:
        path: where to.
        file: the description that was measured.
        content: see `calibrated`.
        measurement: names what is missing.

    Raises:
        CalibratedFileError: see `check_path`.
        OSError: it cannot be written; nothing is left behind.
    """
    check_path(path)
    lines = [f"{MARK} on the hosts of {file.name}; the next measurement replaces this file."]
    lines += [f"# Not measured: {line}" for text in measurement.missing for line in text.splitlines()]
    _write(path, lines, content)


def set_per_host(path: Path) -> None:
    """Have the workers of a host exchange as one in a calibrated description.

    Raises:
        OSError: it cannot be written; it stays as it was.
    """
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    _write(path, lines, {**load_content(path), "per_host": True})


def _write(path: Path, comments: Sequence[str], content: Mapping[str, Any]) -> None:
    text = yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True, default_flow_style=None, width=100)
    write_atomically(path, ("\n".join(comments) + "\n" + text).encode())


def calibrated(
    file: Path,
    description: Description,
    measurement: Measurement,
    typed: Mapping[str, Any] | None = None,
    program: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the content of a description's file with what was measured.

    Devices that were not measured keep the times that the description has for them; without any,
    they are left out, which is added to what is missing.

    Args:
        file: the description's file.
        description: the same, read.
        measurement: what was measured.
        typed: flags of the worker that were measured with, and override the description's.
        program: words of the user's program, which override the description's.

    Raises:
        NoDevicesError: no device has a time.
    """
    content = load_content(file)
    described = dict(content.get("train") or {})
    if program and not description.program:  # what was described for the built-in worker is not the program's
        described, _ = user_program.cluster_settings(described)
        content["train"] = described
    chosen = {**({} if program or description.program else measurement.flags), **(typed or {})}
    if chosen := {name: value for name, value in chosen.items() if name in MEASURED_FLAGS}:
        content["train"] = {**described, **chosen}
    content["workers"] = _workers(content["workers"], description, measurement)
    content["servers"] = [
        _with(entry, "simulate", _server(measurement, number)) for number, entry in enumerate(content["servers"])
    ]
    if content.get("state_server") is not None and measurement.answer_time is not None:
        cost = {"answer_time": _rounded(measurement.answer_time)}
        content["state_server"] = _with(content["state_server"], "simulate", cost)
    if not content["workers"]:
        raise NoDevicesError("\n".join(["no device could be measured:", *measurement.missing]))
    _put_network(content, measurement)
    _put_model(content, tuple(program) or description.program, measurement)
    return content


def _with(entry: Mapping[str, Any], key: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping in which values were added to the mapping at a key, if there are any."""
    return {**entry, key: {**(entry.get(key) or {}), **values}} if values else dict(entry)


def _workers(entries: list[dict[str, Any]], description: Description, measurement: Measurement) -> list[dict[str, Any]]:
    """Return an entry for each machine: devices of one kind may differ after all."""
    originals = [entry for entry in entries for _ in range(entry.get("count", 1))]
    workers = []
    for number, (entry, worker) in enumerate(zip(originals, description.workers, strict=True)):
        machine = {**entry, "host": worker.host}
        machine.pop("count", None)
        figures = measurement.devices.get(number)
        if figures is None and not _has_time(worker):
            measurement.missing.append(
                f"worker-{number} ({worker.host}/{worker.device}) is left out: the description has no step_time for it"
            )
            continue
        if figures is not None:
            described = {key: value for key, value in (entry.get("simulate") or {}).items() if key not in _SPEED}
            measured = {"step_time": _rounded(figures.step_time), "jitter": _rounded(figures.jitter)}
            machine["simulate"] = {**measured, **described}
        workers.append(machine)
    return workers


def _has_time(worker: WorkerEntry) -> bool:
    """Return whether the description says how long a device's iterations take."""
    return bool(worker.step_time or worker.simulate.step_time or worker.simulate.trace)


def _server(measurement: Measurement, number: int) -> dict[str, Any]:
    figures = measurement.servers.get(number)
    if figures is None:
        return {}
    cost: dict[str, Any] = {"message_time": _rounded(figures.message_time)}
    if figures.throughput is not None:
        cost["throughput"] = f"{figures.throughput / 1e6:.4g}MB"
    return cost


def _put_network(content: dict[str, Any], measurement: Measurement) -> None:
    """Put the measured network in the place of the described one, which hosts without figures keep."""
    if measurement.network is None:  # all on one machine: what is described is not there
        content.pop("network", None)
        return
    hosts = measurement.network.hosts()
    if not hosts:
        return
    common, own = _links(hosts)
    described = (content.get("network") or {}).get("hosts") or {}
    entries = [content["scheduler"], *content["servers"], *content["workers"], content.get("state_server") or {}]
    left = {entry.get("host") for entry in entries} - hosts.keys()
    own |= {name: link for name, link in described.items() if name in left}
    content["network"] = {**common, "hosts": own} if own else common


def _links(hosts: Mapping[str, HostFigures]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return what hosts have in common, and the links of those that differ from it."""
    rate = statistics.median(host.rate for host in hosts.values())
    latencies = [host.latency for host in hosts.values()]
    latency = min(statistics.median(latencies), 1.9 * min(latencies))  # no host may have less than half of it
    own: dict[str, dict[str, Any]] = {}
    for name, host in hosts.items():
        link = {}
        if abs(host.rate / rate - 1) > config.MEASURE_TOLERANCE:
            link["bandwidth"] = _bandwidth(host.rate)
        if abs(host.latency - latency) > max(config.MEASURE_TOLERANCE * latency, LEAST_LATENCY):
            link["latency"] = _latency(host.latency)
        if link:
            own[name] = link
    return {"bandwidth": _bandwidth(rate), "latency": _latency(latency)}, own


def _put_model(content: dict[str, Any], program: Sequence[str], measurement: Measurement) -> None:
    """Say how large the model is, where the simulator does not know the network."""
    if program:
        content["program"] = list(program)
    figures = next(iter(measurement.devices.values()), None)
    if figures is None:
        return
    if not program and 4 * sum(SIZES.get(_network(content), {}).values()) == figures.model_bytes:
        return
    model: dict[str, Any] = {"model_bytes": f"{figures.model_bytes}B"}
    if program:
        model["batch_size"] = max(
            1, round(statistics.median(device.batch_size for device in measurement.devices.values()))
        )
    content["simulate"] = {**(content.get("simulate") or {}), **model}
    content["simulate"].pop("messages_of", None)


def _network(content: Mapping[str, Any]) -> str:
    """Return the network that a description trains."""
    return str((content.get("train") or {}).get("network", config.NETWORK))


def _rounded(value: float) -> float:
    """Return a number with the digits that a measurement has."""
    return float(f"{value:.4g}")


def _bandwidth(rate: float) -> str:
    return f"{bandwidth(rate) / 1e6:.4g}Mbit"


def _latency(seconds: float) -> str:
    return f"{1e3 * seconds:.3g}ms"
