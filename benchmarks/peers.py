"""How long does a step of synchronous SGD take, beside Horovod?

    python benchmarks/peers.py --horovod FOLDER [--workers 2] [--turns 3] [--steps 40] [--places machine network]

FOLDER is a virtual environment with Horovod 0.28.1 for MXNet 1.9.1 and gloo, which has to be built, with CMake
older than 4:

    python -m venv FOLDER; . FOLDER/bin/activate
    pip install "setuptools<70" wheel "numpy<1.24" mxnet==1.9.1 cffi cloudpickle psutil pyyaml packaging
    export HOROVOD_WITH_MXNET=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1
    export HOROVOD_WITHOUT_PYTORCH=1 HOROVOD_WITHOUT_TENSORFLOW=1
    pip install --no-build-isolation horovod==0.28.1

Two or three workers train the same model, as large as ResNet-18, one image a batch (`harness/sgd_step.py`): on this
machine; and in network namespaces with ports of 1 Gbit/s, which take root, iproute2 and sshd. Horovod's
allreduces go on during backward, as they do by default. All take turns; the median step of each run counts, and
the median of the runs.
"""

import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from harness import program
from harness.clusters import APART
from harness.figures import read_figures, write_figures
from harness.timing import in_turns, medians
from namespaces import DESK, Machines, missing

from esync.arguments import count
from tests.support.network_namespaces import namespace

HUB, WORKERS = "hub", ("ant", "bee", "cat")
MEGABITS = 1000
#: What an exchange is by → the largest ratio of its step to Horovod's.
TARGETS = {"ring": 0.8, "mpi": 0.8, "one server": 1.5, "a server with each worker": 1.5}
#: Steps at the beginning of a run that do not count.
WARM_UP = 5
STEP = Path(__file__).parent / "harness" / "sgd_step.py"
LIMIT = 300.0  # seconds of a run


@dataclass(frozen=True)
class Place:
    """Where the workers run.

    Attributes:
        workers: their names, which are those of their hosts in a network.
        folder: of all files.
        inside: words in front of a command that run it where the launchers run.
        hosts: section `hosts` of a description; {}: this machine.
        environment: of Horovod's launcher.
    """

    workers: tuple[str, ...]
    folder: Path
    inside: tuple[str, ...]
    hosts: Mapping[str, Any]
    environment: Mapping[str, str]

    def horovod(self, folder: Path, steps: int) -> float:
        """Return the seconds of a step by Horovod."""
        command = [str(folder / "bin" / "horovodrun"), "--gloo", "-np", str(len(self.workers))]
        if self.hosts:
            command += ["--hosts", ",".join(f"{name}:1" for name in self.workers), "--network-interfaces", "eth0"]
        return self._run([*command, str(folder / "bin" / "python"), str(STEP), "horovod"], steps)

    def esync(self, by: str, steps: int) -> float:
        """Return the seconds of a step by this package; `by` is a key of TARGETS."""
        hub, workers = (HUB, self.workers) if self.hosts else ("localhost", ("localhost",) * len(self.workers))
        content = {
            **({"hosts": dict(self.hosts)} if self.hosts else {}),
            "scheduler": {"host": hub},
            "servers": [{"host": host} for host in (workers if by == "a server with each worker" else (hub,))],
            "workers": [{"host": host, "device": "cpu", "threads": 1} for host in workers],
        }
        (self.folder / "cluster.yaml").write_text(yaml.safe_dump(content))
        collective = "ps" if "server" in by else by
        command = [sys.executable, "-m", "esync", "launch", "cluster.yaml", "--mode=sync", f"--collective={collective}"]
        return self._run([*command, "--log-dir=logs", "--overwrite", "--", "python", str(STEP), "esync"], steps)

    def _run(self, command: list[str], steps: int) -> float:
        file = self.folder / "steps.json"
        file.unlink(missing_ok=True)
        done = subprocess.run(
            [*self.inside, *command, str(steps + WARM_UP), str(file)],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(program.ROOT), "OMP_NUM_THREADS": "1", **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LIMIT,
            check=False,
        )
        if done.returncode or not file.exists():
            raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}:\n{done.stdout.decode()[-9000:]}")
        return statistics.median(json.loads(file.read_text())[WARM_UP:])


@contextlib.contextmanager
def machine(folder: Path, workers: tuple[str, ...]) -> Iterator[Place]:
    """Run all workers on this machine."""
    yield Place(workers, folder, (), {}, {})


@contextlib.contextmanager
def network(folder: Path, workers: tuple[str, ...]) -> Iterator[Place]:
    """Run each worker on a machine of its own, a network namespace, in which this host's name is its address.

    Gloo listens where the host's name leads, whatever interface Horovod names.
    """
    with contextlib.ExitStack() as stack:
        for number, name in enumerate((DESK, HUB, *workers), 1):
            private = Path("/etc/netns") / namespace(name)  # ip netns exec shows its files in /etc
            private.mkdir(parents=True)
            stack.callback(shutil.rmtree, private)
            (private / "hosts").write_text(f"127.0.0.1 localhost\n10.77.0.{number} {socket.gethostname()}\n")
        machines = stack.enter_context(Machines(folder / "network", (HUB, *workers)))
        entries = {name: machines.entry(name, env=APART) for name in (HUB, *workers)}
        lines = []
        for name, entry in entries.items():
            machines.limit(name, MEGABITS)
            lines += [f"Host {name}", f"HostName {entry['address']}", f"Port {entry['port']}"]
            lines += [f"IdentityFile {entry['key']}", f"UserKnownHostsFile {folder / 'known_hosts'}"]
        (folder / "ssh_config").write_text("\n".join(lines) + "\n")
        ssh = folder / "bin" / "ssh"  # Horovod's launcher has no option for a configuration
        ssh.parent.mkdir()
        ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder / "ssh_config"} "$@"\n')
        ssh.chmod(0o755)
        path = {"PATH": f"{ssh.parent}:{os.environ['PATH']}"}
        yield Place(workers, folder, tuple(machines.inside(DESK)), entries, {**APART, **path})


PLACES: dict[str, Callable[[Path, tuple[str, ...]], contextlib.AbstractContextManager[Place]]] = {
    "machine": machine,
    "network": network,
}


def measure(name: str, workers: int, horovod: Path, turns: int, steps: int) -> dict[str, Any]:
    """Return the seconds of a step in a place, of each run and as medians."""
    with tempfile.TemporaryDirectory(prefix="peers-") as folder, PLACES[name](Path(folder), WORKERS[:workers]) as place:
        ways = {"horovod": partial(place.horovod, horovod, steps)}
        ways |= {by: partial(place.esync, by, steps) for by in TARGETS}
        runs = in_turns(ways, turns, tell=f"{name}: ")
    return {"runs": runs, "medians": medians(runs)}


def main() -> int:
    """Measure in each place, and print the ratios; return 1 if a target is missed."""
    parser = program.parser(__doc__, program.RESULTS / "peers.json")
    parser.add_argument("--horovod", type=Path, required=True, metavar="FOLDER", help="where Horovod is installed")
    parser.add_argument("--workers", type=int, choices=(2, 3), default=3, help="(default: %(default)s)")
    parser.add_argument("--turns", type=count, default=3, help="(default: %(default)s)")
    parser.add_argument("--steps", type=count, default=40, help="of each run (default: %(default)s)")
    parser.add_argument("--places", nargs="+", choices=PLACES, default=list(PLACES), help="(default: both)")
    options = parser.parse_args()
    if "network" in options.places and (why := missing()):
        print(why, file=sys.stderr)
        return 2
    figures, reached = read_figures(options.json), True
    for place in options.places:
        name = place if options.workers == len(WORKERS) else f"{place}, {options.workers} workers"
        figures[name] = measure(place, options.workers, options.horovod.resolve(), options.turns, options.steps)
        write_figures(options.json, figures)
        seconds = figures[name]["medians"]
        print(f"{name}: Horovod {1e3 * seconds['horovod']:.1f} ms a step")
        for by, target in TARGETS.items():
            ratio = seconds[by] / seconds["horovod"]
            reached &= ratio <= target
            verdict = program.verdict(ratio <= target)
            print(f"  {by:25} {1e3 * seconds[by]:7.1f} ms, {ratio:.2f} x (at most {target}): {verdict}")
    return 0 if reached else 1


if __name__ == "__main__":
    program.run(main)
