"""Use the logs of an earlier run instead of a measurement: `esync plan --from-logs`.

The round files contain the times of iterations, exchanges and queries to the state server. They do
not divide the time of an exchange between server and network: it is attributed to the server if all
processes are on one machine, and otherwise to the network.
"""

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..exchange import STATISTICS, WEIGHTS
from ..launch import flags
from ..launch.description import Description
from ..launch.hosts import locate
from ..launch.workers import device_folders
from ..reports.discovery import DeviceFolder
from ..reports.runs import devices_in
from ..reports.summary_file import DeviceSummary
from ..runtime.errors import ExpectedError
from ..runtime.iteration_statistics import IterationStatistics
from ..runtime.phase_timer import CHECK_READY, iteration_times
from ..simulate.job import SimulationJob, run
from .calibration import calibrated
from .device_measurement import DeviceFigures
from .link_probe import LinkFigures
from .log_training import only_run
from .measurement import Measurement
from .network_measurement import NetworkFigures, machine
from .server_measurement import ServerFigures, solve

#: Rounds to ignore at the beginning of a run, if there are twice as many: processes are still starting.
WARM_UP = 2
#: Seconds of the phase "check ready" below which the worker has sent no query, because its lease was valid.
_NO_QUERY = 1e-4
#: Rounds that are simulated to find the cost of an exchange.
_ROUNDS = 20
#: Options of a run on which the time of its exchanges depends.
_OPTIONS = ("mode", "overlap", "compression", "local_iterations", "collective")
#: Options of a run on which the time of an iteration and the size of the model depend.
_WORK = ("network", "batch_size")
#: Longest time that a message of a parameter server, and slowest network in seconds per byte, that are considered.
_MAX_MESSAGE, _MAX_PER_BYTE = 0.5, 1e-4


class LogsError(ExpectedError):
    """Raised when logs are missing, or belong to another cluster."""

    exit_code = 2


@dataclass
class _Run:
    """The logged figures of a run over all devices.

    Attributes:
        transfers: mean seconds of an exchange of each device, without waiting.
        questions: seconds of each query to the state server.
        options: options of the run.
        rounds: number of rounds.
    """

    transfers: list[float] = field(default_factory=list)
    questions: list[float] = field(default_factory=list)
    options: Mapping[str, Any] = field(default_factory=dict)
    rounds: int = 0


def measure_from_logs(
    description: Description,
    file: Path,
    folder: Path,
    notify: Callable[[str], None],
    program: Sequence[str] = (),
) -> Measurement:
    """Return the figures in the logs of an earlier run on the described cluster.

    Args:
        description: the cluster.
        file: its file, for messages.
        folder: the folder of the run's logs, {log_dir}/{network}/{mode}, or a parent folder.
        notify: called with messages for the user.
        program: command of the user's program, which overrides the description's.

    Raises:
        RunError: see `only_run`.
        LogsError: the run is of another cluster, or its logs lack what a measurement needs.
    """
    measurement, logged, logs = Measurement(), _Run(), only_run(folder)
    if not (alone := len({machine(host) for host in locate(description).values()}) == 1):
        measurement.network = NetworkFigures()  # without figures, the described values are kept
    devices = {f"{device.host}/{device.device}": device for device in devices_in(logs.folder)[0]}
    for number, (worker, name) in enumerate(zip(description.workers, device_folders(description.workers), strict=True)):
        device = f"{worker.host}/{name}"
        if device not in logs.devices or device not in devices:
            measurement.missing.append(f"worker-{number} ({device}): {folder} has no rounds of it")
            continue
        measurement.devices[number] = figures = _device(devices[device], logs.devices[device], logged)
        notify(f"logs: {device} took {1e3 * figures.step_time:.1f} ms an iteration (± {figures.jitter:.1%})")
    if not measurement.devices:
        raise LogsError(
            f"{folder}: no rounds of any worker of {file.name}; there are: {', '.join(sorted(logs.devices))}"
        )
    measurement.flags = {name: value for name, value in logged.options.items() if name in _WORK}
    if logged.questions:
        measurement.answer_time = statistics.median(logged.questions)
    elif description.state_server is not None:
        measurement.missing.append("the state server: it was not asked in that run")
    if logged.transfers:
        notify("logs: fitting the simulated exchanges to the logged ones")
        try:
            _fit(measurement, description, file, logged, alone, program)
        except (ExpectedError, ValueError) as error:
            measurement.servers, measurement.network = {}, None if alone else NetworkFigures()
            measurement.missing.append(
                f"servers and network: the simulator has no run with the options of this one: {error}"
            )
    else:
        measurement.missing.append("servers and network: nothing was exchanged in that run")
    return measurement


def _device(device: DeviceFolder, columns: DeviceSummary, logged: _Run) -> DeviceFigures:
    """Return the figures of a device, and add the other figures in its logs to those of the run."""
    numbers = columns.rounds_list
    first = WARM_UP if len(numbers) >= 2 * WARM_UP else 0
    try:
        entries = [json.loads(device.round_file(number).read_text(encoding="utf-8")) for number in numbers[first:]]
        times = [seconds for entry in entries for seconds in iteration_times(entry)]
        facts = columns.run.model_dump() if columns.run else {}
        vectors = {WEIGHTS: int(facts["parameters"]), STATISTICS: 0}
        chosen = {**facts, **(facts.get("options") or {})}  # the options of a program are its algorithm's
        options = {name: chosen[name] for name in (*_OPTIONS, *_WORK) if chosen.get(name) is not None}
    except OSError as error:
        raise LogsError(f"{error.filename}: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise LogsError(f"{device.path}: expected the logs of a run of this version: {error!r}") from None
    if not times:
        raise LogsError(f"{device.path}: no iteration has ended in this run")
    phases = (phases for entry in entries for phases in entry["time"].values())
    logged.questions += [phase[CHECK_READY] for phase in phases if phase.get(CHECK_READY, 0.0) > _NO_QUERY]
    transfers = [seconds for seconds in columns.transfer_list[first:] if seconds is not None]
    if any(transfers):
        logged.transfers.append(statistics.fmean(transfers))
    logged.options, logged.rounds = options, max(logged.rounds, len(numbers))
    sums = IterationStatistics.of(times, sum(columns.num_samples_list[first:]))
    equal = options.get("batch_size", sums.batch) / sums.batch if chosen.get("batch_by_speed") else 1.0
    return DeviceFigures(equal * sums.mean, sums.jitter, sums.batch, sums.iterations, vectors)


def _fit(
    measurement: Measurement,
    description: Description,
    file: Path,
    logged: _Run,
    alone: bool,
    program: Sequence[str],
) -> None:
    """Fit the cost with which simulated exchanges take as long as the logged ones.

    It is the servers' time per message if all processes are on one machine (`alone`), otherwise the
    network's time per byte.
    """
    ends = {"mode": logged.options["mode"], "rounds": min(logged.rounds, _ROUNDS)}
    options = {} if program or description.program else logged.options
    typed = flags.merge(options, ends)
    measured = statistics.fmean(logged.transfers)

    def set_cost(cost: float) -> None:
        if alone:
            measurement.servers = {number: ServerFigures(cost, None) for number in range(len(description.servers))}
        else:
            link = LinkFigures(0.0, 1 / cost, 1 / cost)
            pairs = ((worker.host, server.host) for worker in description.workers for server in description.servers)
            measurement.network = NetworkFigures(
                {(source, target): link for source, target in pairs if source != target}
            )

    def simulated(cost: float) -> float:
        set_cost(cost)
        content = calibrated(file, description, replace(measurement, missing=[]), program=program)
        job = SimulationJob(
            file, "none", typed, description=Description.model_validate(content), logs=False, quiet=True
        )
        return statistics.fmean(device["transfer"] for device in run(job).result["devices"])

    set_cost(solve(simulated, measured, _MAX_MESSAGE if alone else _MAX_PER_BYTE, 20))
