"""Network namespaces for tests: machines of one kernel, whose cables can be pulled.

They have networks of their own.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PREFIX = "esync-tests-"
_FOLDER = Path("/run/netns")  # where ip keeps their names


def ip(*words: str) -> None:
    """Run iproute2's program ip.

    Raises:
        subprocess.CalledProcessError: it has failed; `stderr` says why.
    """
    subprocess.run(["ip", *words], check=True, capture_output=True)


def missing(*programs: str) -> str:
    """Return why there cannot be namespaces here, "" where there can.

    Args:
        programs: of iproute2, that are needed besides ip.
    """
    programs = ("ip", *programs)
    if os.geteuid() or not all(map(shutil.which, programs)):
        return f"network namespaces need root, and the programs {', '.join(programs)} (package iproute2)"
    trial = namespace("trial")
    try:
        ip("netns", "add", trial)
        ip("-n", trial, "link", "add", "br0", "type", "bridge")
        ip("-n", trial, "link", "add", "trial", "type", "veth", "peer", "name", "other")
    except subprocess.CalledProcessError as error:
        return f"network namespaces cannot be made here: {error.stderr.decode().strip()}"
    finally:
        remove(trial)
    return ""


def namespace(name: str, process: int | None = None) -> str:
    """Return the name of a namespace of this test process, or of another one."""
    return f"{_PREFIX}{os.getpid() if process is None else process}-{name}"


def inside(name: str) -> list[str]:
    """Return the words in front of a command that run it in a namespace."""
    return ["ip", "netns", "exec", name]


def connect(name: str, address: str, cable: str, switch: str = "") -> None:
    """Make a namespace whose only interface, eth0, is the far end of a new cable (a veth pair).

    Args:
        name: of the namespace.
        address: of its interface, in a network of 256 addresses.
        cable: name of the interface at the near end.
        switch: namespace of the near end; "": this process's own.
    """
    near = ("-n", switch) if switch else ()
    ip("netns", "add", name)
    ip(*near, "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name)
    ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
    ip("-n", name, "link", "set", "lo", "up")
    ip("-n", name, "link", "set", "eth0", "up")


def kill(name: str) -> None:
    """End every process of a namespace."""
    limit = time.monotonic() + 20
    while pids := subprocess.run(["ip", "netns", "pids", name], capture_output=True).stdout.split():
        assert time.monotonic() < limit, f"processes of {name} do not end: {pids}"
        for number in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(number), signal.SIGKILL)
        time.sleep(0.05)


def remove(name: str) -> None:
    """End what runs in a namespace, and delete it with its cable, where it is there."""
    if (_FOLDER / name).exists():
        kill(name)
        subprocess.run(["ip", "netns", "del", name], capture_output=True)


def sweep() -> None:
    """Remove what tests have left behind that were killed themselves."""
    for path in _FOLDER.glob(f"{_PREFIX}*"):
        if not Path("/proc", path.name.removeprefix(_PREFIX).partition("-")[0]).exists():
            remove(path.name)


@dataclass(frozen=True)
class Neighbour:
    """A machine on a cable to this one.

    Attributes:
        name: of its namespace.
        cable: this machine's interface.
        here: this machine's address.
        there: its own.
    """

    name: str
    cable: str
    here: str
    there: str

    def unplug(self) -> None:
        """Pull the cable out: packets vanish, nobody is told."""
        ip("-n", self.name, "link", "set", "eth0", "down")


@contextlib.contextmanager
def neighbour() -> Iterator[Neighbour]:
    """Have a machine on a cable to this one, until the end of a with statement."""
    sweep()
    number = os.getpid() % 60_000
    local_address, remote_address = (f"10.{100 + number // 256 % 128}.{number % 256}.{last}" for last in (1, 2))
    machine = Neighbour(namespace("far"), f"esync-{number}", local_address, remote_address)
    try:
        connect(machine.name, remote_address, machine.cable)
        ip("addr", "add", f"{local_address}/24", "dev", machine.cable)
        ip("link", "set", machine.cable, "up")
        yield machine
    finally:
        subprocess.run(["ip", "link", "del", machine.cable], capture_output=True)  # the kernel deletes the rest later
        remove(machine.name)
