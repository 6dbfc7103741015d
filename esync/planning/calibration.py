"""Write a calibrated description: a cluster's description with measured times for the simulator.

The user's description is not changed. The calibrated one describes the same job for launch. Measured
values replace those in its sections `simulate` and `network`; others keep the user's numbers.
"""

import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from .. import config
from ..launch import user_program
from ..launch.description import Description, load_content
from ..launch.simulation_schema import LARGEST_JITTERS
from ..runtime.errors import ExpectedError
from ..runtime.files import write_atomically
from ..simulate.timing import SIZES
from .measurement import Measurement
from .network_measurement import HostFigures, bandwidth

#: First line of a calibrated description, by which it is recognized.
MARK = "# Measured by `esync plan`"
#: Keys about the speed of a device, which the measured values replace.
_SPEED = ("step_time", "fixed_time", "jitter", "distribution", "trace")
#: Seconds below which two latencies count as equal: the noise of a busy machine.
MIN_LATENCY = 1e-4
#: Flags that decide how long an iteration takes, or how large the model is.
MEASURED_FLAGS = frozenset(
    {
        *("network", "normalization", "no_hybridize", "dataset", "data_dir", "batch_size", "step_time"),
        *("optimizer", "momentum", "weight_decay"),
    }
)


class NoDevicesError(ExpectedError):
    """Raised when no device has a step time, so that nothing can be simulated."""


class CalibratedFileError(ExpectedError):
    """Raised when the calibrated description would overwrite a file of the user's."""

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
        if path.exists() and not (path.is_file() and path.read_bytes().startswith(MARK.encode())):
            raise CalibratedFileError(
                f"{path}: the file exists, and esync plan has not written it; name another one with --write, or delete "
                "it"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):  # fail before the measurement, not after it
            pass
    except OSError as error:
        raise CalibratedFileError(
            f"{path} cannot be written: {error.strerror or error}; name another file with --write"
        ) from None


def write_calibrated(path: Path, file: Path, content: Mapping[str, Any], measurement: Measurement) -> None:
    """Write a calibrated description.

    Args:
        path: the file to write.
        file: the description of the measured cluster.
        content: see `calibrated`.
        measurement: the measurement, for its missing parts.

    Raises:
        CalibratedFileError: see `check_path`.
        OSError: the file cannot be written; no part of it is left.
    """
    check_path(path)
    lines = [f"{MARK} on the hosts of {file.name}; the next measurement replaces this file."]
    lines += [f"# Not measured: {line}" for text in measurement.missing for line in text.splitlines()]
    _write(path, lines, content)


def set_true(path: Path, key: str) -> None:
    """Set a key of a calibrated description, `per_host` for instance, to true.

    Raises:
        OSError: the file cannot be written, and is unchanged.
    """
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    _write(path, lines, {**load_content(path), key: True})


def _write(path: Path, comments: Sequence[str], content: Mapping[str, Any]) -> None:
    text = yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True, default_flow_style=None, width=100)
    write_atomically(path, ("\n".join(comments) + "\n" + text).encode())


def calibrated(
    file: Path,
    description: Description,
    measurement: Measurement,
    program: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the content of a description's file with the measured values.

    Devices that were not measured keep the step times of the description. Without any, they are
    removed, which is added to `measurement.missing`.

    Args:
        file: the description's file.
        description: its parsed content.
        measurement: the measured values.
        program: command of the user's program, which overrides the description's.

    Raises:
        NoDevicesError: no device has a step time.
    """
    content = load_content(file)
    described = dict(content.get("train") or {})
    if program and not description.program:  # its settings are the built-in worker's
        described, _ = user_program.cluster_settings(described)
        content["train"] = described
    measured = {} if program or description.program else measurement.flags
    if chosen := {name: value for name, value in measured.items() if name in MEASURED_FLAGS}:
        content["train"] = {**described, **chosen}
    content["workers"] = _workers(content["workers"], description, measurement)
    content["servers"] = [
        _with_costs(entry, _server(measurement, number)) for number, entry in enumerate(content["servers"])
    ]
    if content.get("state_server") is not None and measurement.answer_time is not None:
        cost = {"answer_time": _rounded(measurement.answer_time)}
        content["state_server"] = _with_costs(content["state_server"], cost)
    if not content["workers"]:
        raise NoDevicesError("\n".join(["no device could be measured:", *measurement.missing]))
    _set_network(content, measurement)
    _set_model(content, tuple(program) or description.program, measurement)
    return content


def _with_costs(entry: Mapping[str, Any], costs: Mapping[str, Any]) -> dict[str, Any]:
    """Return `entry` with `costs` merged into its section simulate, if there are any."""
    return {**entry, "simulate": {**(entry.get("simulate") or {}), **costs}} if costs else dict(entry)


def _workers(entries: list[dict[str, Any]], description: Description, measurement: Measurement) -> list[dict[str, Any]]:
    """Return an entry for each machine, because devices of one kind may have different speeds."""
    originals = [entry for entry in entries for _ in range(entry.get("count", 1))]
    workers = []
    for number, (entry, worker) in enumerate(zip(originals, description.workers, strict=True)):
        machine = {**entry, "host": worker.host}
        machine.pop("count", None)
        figures = measurement.devices.get(number)
        if figures is None and not (worker.step_time or worker.simulate.step_time or worker.simulate.trace):
            measurement.missing.append(
                f"worker-{number} ({worker.host}/{worker.device}) is left out: the description has no step_time for it"
            )
            continue
        if figures is not None:
            described = {key: value for key, value in (entry.get("simulate") or {}).items() if key not in _SPEED}
            measured: dict[str, Any] = {"step_time": _rounded(figures.step_time), "jitter": _rounded(figures.jitter)}
            if figures.jitter > LARGEST_JITTERS["normal"]:
                measured["distribution"] = "lognormal"
            if figures.fixed_time is not None:
                measured["fixed_time"] = _rounded(figures.fixed_time)
            machine["simulate"] = {**measured, **described}
        workers.append(machine)
    return workers


def _server(measurement: Measurement, number: int) -> dict[str, Any]:
    figures = measurement.servers.get(number)
    if figures is None:
        return {}
    cost: dict[str, Any] = {"message_time": _rounded(figures.message_time)}
    if figures.throughput is not None:
        cost["throughput"] = f"{figures.throughput / 1e6:.4g}MB"
    return cost


def _set_network(content: dict[str, Any], measurement: Measurement) -> None:
    """Replace the described network by the measured one, except for hosts that were not measured."""
    if measurement.network is None:  # all hosts are one machine, without a network
        content.pop("network", None)
        return
    hosts = measurement.network.hosts()
    if not hosts:
        return
    common, links = _links(hosts)
    described = (content.get("network") or {}).get("hosts") or {}
    entries = [content["scheduler"], *content["servers"], *content["workers"], content.get("state_server") or {}]
    unmeasured = {entry.get("host") for entry in entries} - hosts.keys()
    links |= {name: link for name, link in described.items() if name in unmeasured}
    content["network"] = {**common, "hosts": links} if links else common


def _links(hosts: Mapping[str, HostFigures]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return the common values of the hosts' links, and the links of hosts that differ from them."""
    rate = statistics.median(host.rate for host in hosts.values())
    latencies = [host.latency for host in hosts.values()]
    latency = min(statistics.median(latencies), 1.9 * min(latencies))  # a host's share is at least half of it
    links: dict[str, dict[str, Any]] = {}
    for name, host in hosts.items():
        link = {}
        if abs(host.rate / rate - 1) > config.MEASURE_TOLERANCE:
            link["bandwidth"] = _bandwidth(host.rate)
        if abs(host.latency - latency) > max(config.MEASURE_TOLERANCE * latency, MIN_LATENCY):
            link["latency"] = _latency(host.latency)
        if link:
            links[name] = link
    return {"bandwidth": _bandwidth(rate), "latency": _latency(latency)}, links


def _set_model(content: dict[str, Any], program: Sequence[str], measurement: Measurement) -> None:
    """Set the size of the model if the simulator does not know the network."""
    if program:
        content["program"] = list(program)
    figures = next(iter(measurement.devices.values()), None)
    if figures is None:
        return
    network = (content.get("train") or {}).get("network", config.NETWORK)
    if not program and 4 * sum(SIZES.get(network, {}).values()) == figures.model_bytes:
        return
    model: dict[str, Any] = {"model_bytes": f"{figures.model_bytes}B"}
    if program:
        model["batch_size"] = max(
            1, round(statistics.median(device.batch_size for device in measurement.devices.values()))
        )
    content["simulate"] = {**(content.get("simulate") or {}), **model}


def _rounded(value: float) -> float:
    """Round a number to the significant digits of a measurement."""
    return float(f"{value:.4g}")


def _bandwidth(rate: float) -> str:
    return f"{bandwidth(rate) / 1e6:.4g}Mbit"


def _latency(seconds: float) -> str:
    return f"{1e3 * seconds:.3g}ms"
