"""Use the logs of an earlier run instead of a measurement: `esync plan --from-logs`.

The round files contain the times of iterations, exchanges and queries to the state server. They do
not divide the time of an exchange between server and network: it is attributed to the server if all
processes are on one machine, and otherwise to the network.
"""

import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..exchange import STATISTICS, WEIGHTS
from ..launch import flags
from ..launch.description import Description
from ..launch.hosts import locate
from ..launch.workers import device_folders
from ..reports.discovery import RUN_FILE, DeviceFolder
from ..reports.runs import devices_in, run_folders
from ..runtime.errors import ExpectedError
from ..runtime.iteration_statistics import IterationStatistics
from ..runtime.phase_timer import CHECK_READY, iteration_times
from ..simulate.job import SimulationJob, run
from .calibration import calibrated
from .device_measurement import DeviceFigures
from .link_probe import LinkFigures
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
        LogsError: the folder does not exist, or contains no logs of this cluster, or logs of several
            runs.
    """
    if not folder.is_dir():
        raise LogsError(f"{folder}: there is no such folder; expected that of a run, for instance logs/lenet/esync")
    measurement, logged = Measurement(), _Run()
    if not (alone := len({machine(host) for host in locate(description).values()}) == 1):
        measurement.network = NetworkFigures()  # without figures, the described values are kept
    devices = _devices(folder)
    for number, (worker, name) in enumerate(zip(description.workers, device_folders(description.workers), strict=True)):
        device = f"{worker.host}/{name}"
        if device not in devices:
            measurement.missing.append(f"worker-{number} ({device}): {folder} has no rounds of it")
            continue
        measurement.devices[number] = figures = _device(devices[device], logged)
        notify(f"logs: {device} took {1e3 * figures.step_time:.1f} ms an iteration (± {figures.jitter:.1%})")
    if not measurement.devices:
        places = ", ".join(sorted(devices)) or "no rounds at all"
        raise LogsError(f"{folder}: no rounds of any worker of {file.name}; there are: {places}")
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


def _devices(folder: Path) -> dict[str, DeviceFolder]:
    """Return the devices with rounds of the only run in a folder: host/device → its folder."""
    runs = run_folders(folder)
    if len(runs) > 1:
        raise LogsError(f"{folder} holds several runs: {runs[0]} and {runs[1]}; name the folder of one of them")
    return {f"{device.host}/{device.device}": device for run in runs for device in devices_in(run)[0]}


def _device(device: DeviceFolder, logged: _Run) -> DeviceFigures:
    """Return the figures of a device, and add the other figures in its logs to those of the run."""
    try:
        facts = json.loads((device.path / RUN_FILE).read_text(encoding="utf-8"))
        rounds = [json.loads(device.round_file(number).read_text(encoding="utf-8")) for number in device.rounds]
        counted = rounds[WARM_UP:] if len(rounds) >= 2 * WARM_UP else rounds
        times = [seconds for entry in counted for seconds in iteration_times(entry)]
        samples = sum(entry["num_samples"] for entry in counted)
        vectors = {WEIGHTS: int(facts["parameters"]), STATISTICS: 0}
        transfers = [float(entry["transfer"]) for entry in counted if entry.get("transfer") is not None]
        phases: Iterable[Mapping[str, float]] = [times for entry in counted for times in entry["time"].values()]
        logged.questions += [phase[CHECK_READY] for phase in phases if phase.get(CHECK_READY, 0.0) > _NO_QUERY]
        chosen = {**facts, **(facts.get("options") or {})}  # the options of a program are its algorithm's
        options = {name: chosen[name] for name in (*_OPTIONS, *_WORK) if chosen.get(name) is not None}
    except OSError as error:
        raise LogsError(f"{error.filename}: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LogsError(f"{device.path}: expected the logs of a run of this version: {error!r}") from None
    if not times:
        raise LogsError(f"{device.path}: no iteration has ended in this run")
    if any(transfers):
        logged.transfers.append(statistics.fmean(transfers))
    logged.options, logged.rounds = options, max(logged.rounds, len(rounds))
    sums = IterationStatistics.of(times, samples)
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
