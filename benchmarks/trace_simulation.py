"""Does the trace of a real run behave as the run did?

    python benchmarks/trace_simulation.py [--json FILE]

Runs clusters/quick.yaml (LeNet) in modes esync, sync and async and the first rounds of the
demonstration (clusters/demo.yaml, ResNet-18) in modes esync and async for real on this machine.
Then each of these clusters is simulated, with the logs of its workers as their traces. Two figures
of every device are compared, both read off the round files of both runs in the same way, and by
other fields than those that make the trace:

* seconds of an iteration: all the time of the rounds less exchanges and questions, by iterations;
* samples per second, waits and exchanges included. What a message costs the parameter server and a
  question the state server is fitted to the run; what the machine's other processes did meanwhile
  is not.

Exits with 1 where a device is further than 3 % from its run in the seconds of an iteration.
"""

import copy
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from harness import program
from harness.figures import write_figures
from harness.jobs import launch
from validate_simulation import Behaviour, behaviour, fit_message_time, simulated

#: Description, mode, and what ends the run.
RUNS = (
    ("quick", "esync", ["--rounds", "20"]),
    ("quick", "sync", ["--rounds", "20"]),
    ("quick", "async", ["--max-time", "15"]),
    ("demo", "esync", ["--rounds", "10"]),
    ("demo", "async", ["--max-time", "30"]),
)
ALLOWED = 0.03


@dataclass(frozen=True)
class Traced:
    """A cluster that has run, and its description with the run's logs as traces.

    Attributes:
        real: the behaviour that its round files show.
        description: the description for the simulator.
        ends: flags of the simulation.
        devices: names of the devices, by rank.
    """

    real: Behaviour
    description: dict[str, Any]
    ends: dict[str, Any]
    devices: list[str]

    def simulated(self, mode: str, folder: Path, message_time: float) -> Behaviour:
        """Simulate the cluster; return the behaviour."""
        description = copy.deepcopy(self.description)
        for server in description["servers"]:
            server["simulate"] = {"message_time": message_time}
        return simulated(description, mode, folder, **self.ends)


def for_real(name: str, mode: str, ends: list[str], folder: Path) -> Traced:
    """Launch a cluster; return it with its logs as traces in the place of its step times."""
    file, place = program.CLUSTERS / f"{name}.yaml", Path(tempfile.mkdtemp(prefix="real-", dir=folder))
    launch(file, place, "--mode", mode, "--quiet", "--no-evaluation", *ends)
    description = yaml.safe_load(file.read_text())
    description.pop("network", None)  # all of it was on this machine
    real = behaviour(place)
    description["state_server"]["simulate"] = {"answer_time": real.questions}
    folders = real.folders
    for worker, traced in zip(description["workers"], folders, strict=True):
        worker.pop("step_time")
        worker["simulate"] = {"trace": str(traced)}
    key, value = ends[0].removeprefix("--").replace("-", "_"), ends[1]
    return Traced(real, description, {key: value}, [f"{each.parent.name}/{each.name}" for each in folders])


def compare(traced: Traced, simulation: Behaviour) -> list[dict[str, Any]]:
    """Return each device's figures in the run and in the simulation, and their ratios."""
    columns = (traced.real.paces, simulation.paces, traced.real.rates, simulation.rates)
    return [
        {
            "device": device,
            "seconds an iteration": {"real": pace, "simulated": ours, "ratio": ours / pace},
            "samples per second": {"real": rate, "simulated": our_rate, "ratio": our_rate / rate},
        }
        for device, pace, ours, rate, our_rate in zip(traced.devices, *columns, strict=True)
    ]


def main() -> int:
    """Run, simulate and print; return 1 if a device is too far from its run."""
    parser = program.parser(__doc__)
    parser.add_argument("--only", choices=("quick", "demo"), help="runs of this description only")
    given = parser.parse_args()
    results: dict[str, Any] = {}
    holds = True
    for name, mode, ends in RUNS:
        if given.only not in (None, name):
            continue
        with tempfile.TemporaryDirectory(prefix="trace-") as temporary:
            folder = Path(temporary)
            traced = for_real(name, mode, ends, folder)
            load = os.getloadavg()[0]
            measured = traced.real.transfer
            cost = fit_message_time(measured, lambda each: traced.simulated(mode, folder, each).transfer)  # noqa: B023
            devices = compare(traced, traced.simulated(mode, folder, cost))
        results[f"{name}, {mode}"] = {"message_time": cost, "load": load, "devices": devices}
        print(f"{name}, {mode} (load {load:.1f}):")
        for each in devices:
            paces, rates = each["seconds an iteration"], each["samples per second"]
            within = abs(paces["ratio"] - 1) <= ALLOWED
            holds &= within
            print(
                f"  {each['device']}: {paces['real']:.4f} s an iteration, simulated {paces['simulated']:.4f} "
                f"({paces['ratio']:.4f}{'' if within else ', NOT within the limit'}); "
                f"{rates['real']:.1f} samples/s, simulated {rates['simulated']:.1f} ({rates['ratio']:.4f})",
                flush=True,
            )
    write_figures(given.json, results)
    return 0 if holds else 1


if __name__ == "__main__":
    program.run(main)
