"""Does the simulator predict what a real cluster does?

    python benchmarks/validate_simulation.py [--json FILE]

Two emulated clusters of four workers each run for real on this machine (LeNet, iterations padded to
different step times). The first one calibrates the simulator: how much an iteration exceeds its
step time and fluctuates, what a message costs the parameter server, what a question costs the state
server. The second one, of other speeds, is then predicted with these parameters and compared with
its real runs, in modes esync, sync and async: samples per second and the mean wait of each worker,
both read off the round files in the same way.
"""

import os
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from harness import program
from harness.figures import write_figures
from harness.jobs import devices, entries, launch

from esync.runtime.phase_timer import CHECK_READY, GLOBAL_AGGREGATE, GLOBAL_UPDATE
from esync.simulate.job import SimulationJob, run

CALIBRATION = (0.1, 0.2, 0.4, 0.8)  # seconds an iteration
VALIDATION = (0.15, 0.15, 0.35, 1.0)
MODES = ("esync", "sync", "async")
#: Allowed difference in samples per second; in waits, whichever of a share and seconds is more.
RATE, WAIT_SHARE, WAIT_SECONDS = 0.10, 0.10, 0.030
#: Rounds at the beginning that do not count: processes are still starting.
WARM_UP = 2


@dataclass(frozen=True)
class Parameters:
    """Parameters that calibration finds.

    Attributes:
        excess: seconds by which an iteration exceeds its step time.
        deviation: standard deviation of an iteration, in seconds.
        message_time: seconds of the parameter server per message.
        answer_time: seconds of the state server per call.
    """

    excess: float = 0.0
    deviation: float = 0.0
    message_time: float = 0.0
    answer_time: float = 0.0


@dataclass(frozen=True)
class Behaviour:
    """The behaviour of a run, by its round files.

    Attributes:
        rates: samples per second, by worker.
        paces: seconds of an iteration, by worker: the time of the whole run without exchanges and
            queries, divided by the iterations.
        waits: mean seconds of waiting, by worker.
        transfer: mean seconds of an exchange, apart from waiting.
        iterations: seconds of every iteration, by worker.
        questions: mean seconds of a query.
        folders: folders of the round files, by worker.
    """

    rates: list[float]
    paces: list[float]
    waits: list[float]
    transfer: float
    iterations: list[list[float]]
    questions: float
    folders: list[Path]

    @property
    def rate(self) -> float:
        """Samples per second of all workers together."""
        return sum(self.rates)


def describe(steps: tuple[float, ...], found: Parameters, seconds: float) -> dict[str, Any]:
    """Return the description of a cluster, for launch and simulate alike."""
    return {
        "scheduler": {"host": "localhost"},
        "servers": [{"host": "localhost", "simulate": {"message_time": found.message_time}}],
        "state_server": {"host": "localhost", "simulate": {"answer_time": found.answer_time}},
        "workers": [
            {
                "host": "localhost",
                "device": "cpu",
                "step_time": step,
                "threads": 1,
                "simulate": {"step_time": step + found.excess, "jitter": found.deviation / step},
            }
            for step in steps
        ],
        "train": {
            "network": "lenet",
            "batch_size": 32,
            "local_lr": 0.0005,
            "learning_rate": 0.0005,
            "no_evaluation": True,
            "max_time": seconds,
        },
    }


def behaviour(folder: Path) -> Behaviour:
    """Read the round files of a run; return its behaviour."""
    rates, paces, waits, transfers, iterations, questions = [], [], [], [], [], []
    folders = devices(folder)
    for device in folders:
        rounds = list(entries(device).values())
        counted = rounds[WARM_UP:]
        lasted = counted[-1]["total_time"] - rounds[WARM_UP - 1]["total_time"]
        rates.append(sum(each["num_samples"] for each in counted) / lasted)
        waits.append(statistics.fmean(each["wait"] for each in counted))
        transfers += [each["transfer"] for each in counted]
        phases = [phases for each in counted for phases in each["time"].values()]
        other = (CHECK_READY, GLOBAL_UPDATE, GLOBAL_AGGREGATE)
        took = [sum(seconds for name, seconds in each.items() if name not in other) for each in phases]
        iterations.append([seconds for seconds in took if seconds > 0.01])
        elsewhere = sum(each.get(name, 0.0) for each in phases for name in other)
        paces.append((lasted - elsewhere) / len(iterations[-1]))
        questions += [each[CHECK_READY] for each in phases if each.get(CHECK_READY, 0.0) > 1e-4]
    return Behaviour(
        rates,
        paces,
        waits,
        statistics.fmean(transfers),
        iterations,
        statistics.fmean(questions) if questions else 0.0,
        folders,
    )


def for_real(description: dict[str, Any], mode: str, folder: Path) -> Behaviour:
    """Launch a cluster; return its behaviour."""
    place = Path(tempfile.mkdtemp(prefix="real-", dir=folder))
    launch(description, place, "--mode", mode, "--quiet")
    return behaviour(place)


def simulated(description: dict[str, Any], mode: str, folder: Path, **ends: Any) -> Behaviour:
    """Simulate a cluster; return its behaviour."""
    place = Path(tempfile.mkdtemp(prefix="simulated-", dir=folder))
    (place / "cluster.yaml").write_text(yaml.safe_dump(description))
    typed = {"mode": mode, "log_dir": str(place / "logs"), **ends}
    run(SimulationJob(file=place / "cluster.yaml", numerics="none", typed=typed, logs=True, quiet=True))
    return behaviour(place)


def calibrate(folder: Path, seconds: float) -> tuple[Parameters, dict[str, Any]]:
    """Run the first cluster; return the parameters with which the simulator behaves as it did."""
    plain = describe(CALIBRATION, Parameters(), seconds)
    real = {mode: for_real(plain, mode, folder) for mode in ("sync", "esync")}
    differences = [
        taken - step
        for each in real.values()
        for step, worker in zip(CALIBRATION, each.iterations, strict=True)
        for taken in worker
    ]
    found = Parameters(
        excess=max(0.0, statistics.fmean(differences)),
        deviation=statistics.pstdev(differences),
        answer_time=real["esync"].questions,
    )

    def transfer(message_time: float) -> float:
        tried = replace(found, message_time=message_time)
        return simulated(describe(CALIBRATION, tried, seconds), "sync", folder).transfer

    found = replace(found, message_time=fit_message_time(real["sync"].transfer, transfer))
    return found, {mode: _short(each) for mode, each in real.items()}


def fit_message_time(measured: float, transfer: Callable[[float], float]) -> float:
    """Return the seconds per message with which exchanges take as long as measured.

    The more a message costs, the longer an exchange takes.
    """
    low, high = 0.0, 0.05
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if transfer(middle) < measured else (low, middle)
    return (low + high) / 2


def compare(real: Behaviour, simulation: Behaviour) -> dict[str, Any]:
    """Return the differences between two behaviours, and whether they are within the limits."""
    rate = simulation.rate / real.rate - 1
    waits = [
        abs(ours - theirs) / max(WAIT_SHARE * theirs, WAIT_SECONDS)
        for ours, theirs in zip(simulation.waits, real.waits, strict=True)
    ]
    return {
        "real": _short(real),
        "simulated": _short(simulation),
        "rate difference": rate,
        "wait difference by limit": max(waits),
        "holds": abs(rate) <= RATE and max(waits) <= 1,
    }


def _short(each: Behaviour) -> dict[str, Any]:
    return {"samples per second": each.rate, "waits": each.waits, "transfer": each.transfer}


def main() -> int:
    """Measure and print; return 1 if a limit is exceeded."""
    parser = program.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=25.0, help="of each real run (default: %(default)s)")
    given = parser.parse_args()
    load = [os.getloadavg()[0]]
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="validate-") as name:
        folder = Path(name)
        found, calibrated = calibrate(folder, given.seconds)
        print("calibrated: " + ", ".join(f"{key} {1e3 * value:.2f} ms" for key, value in asdict(found).items()))
        description = describe(VALIDATION, found, given.seconds)
        for mode in MODES:
            real = for_real(description, mode, folder)
            results[mode] = compare(real, simulated(description, mode, folder))
            load.append(os.getloadavg()[0])
            waits = "/".join(f"{1e3 * wait:.0f}" for wait in real.waits)
            ours = "/".join(f"{1e3 * wait:.0f}" for wait in results[mode]["simulated"]["waits"])
            print(
                f"{mode}: {real.rate:.1f} samples/s, simulated {results[mode]['simulated']['samples per second']:.1f} "
                f"({results[mode]['rate difference']:+.1%}); waits {waits} ms, simulated {ours} ms: "
                f"{'within' if results[mode]['holds'] else 'NOT within'} the limits (load {load[-1]:.1f})",
                flush=True,
            )
    content = {"parameters": asdict(found), "calibration": calibrated, "validation": results, "load": load}
    write_figures(given.json, content)
    return 0 if all(each["holds"] for each in results.values()) else 1


if __name__ == "__main__":
    program.run(main)
