"""Machines for tests, of one kernel: network namespaces with an address and an sshd each, whose cables can be pulled.

They hang on a switch that is a namespace, too, so this machine's own network is not touched. A desk beside them is
where launch runs. The disk is this machine's; every host has a working directory of its own.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from sshd import MISSING, SSHD, Sshd

HOSTS = ("ant", "bee", "cat", "dog")
#: The machine that launch runs on.
DESK = "desk"
_SWITCH = "switch"
_PREFIX = "esync-machines-"


def missing() -> str:
    """Why there cannot be such machines here; "" where there can."""
    if SSHD is None:
        return MISSING
    if os.geteuid() or not shutil.which("ip") or not shutil.which("bridge"):
        return "network namespaces need root, and the programs ip and bridge (package iproute2)"
    trial = f"{_PREFIX}{os.getpid()}-trial"
    try:
        _ip("netns", "add", trial)
        _ip("-n", trial, "link", "add", "br0", "type", "bridge")
        _ip("-n", trial, "link", "add", "trial", "type", "veth", "peer", "name", "other")
    except subprocess.CalledProcessError as error:
        return f"network namespaces cannot be made here: {error.stderr.decode().strip()}"
    finally:
        subprocess.run(["ip", "netns", "del", trial], capture_output=True)
    return ""


class Machines:
    """The desk and the hosts, up and connected until the end of a with statement.

    Args:
        folder: of all their files; it is made.
        hosts: their names.

    Attributes:
        addresses: name of a machine → its address.
    """

    def __init__(self, folder: Path, hosts: Sequence[str] = HOSTS[:3]) -> None:
        folder.mkdir()
        self.addresses = {name: f"10.77.0.{number}" for number, name in enumerate([DESK, *hosts], 1)}
        self._folder, self._hosts = folder, hosts
        self._sshd: dict[str, Sshd] = {}

    def __enter__(self) -> "Machines":
        sweep()
        try:
            self._connect()
            for name in self._hosts:
                (self._folder / name).mkdir()
                self._sshd[name] = Sshd(self._folder / name, {name: self.addresses[name]}, self.inside(name))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all that runs on them, and remove them."""
        for name in (_SWITCH, *self.addresses):
            _remove(_namespace(name))
        for sshd in self._sshd.values():
            sshd.close()

    def _connect(self) -> None:
        """Make the namespaces, the bridge, and a cable from it to each machine."""
        switch = _namespace(_SWITCH)
        _ip("netns", "add", switch)
        _ip("-n", switch, "link", "add", "br0", "type", "bridge")
        _ip("-n", switch, "link", "set", "br0", "up")
        for name, address in self.addresses.items():
            machine = _namespace(name)
            _ip("netns", "add", machine)
            _ip("-n", switch, "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", machine)
            _ip("-n", switch, "link", "set", name, "master", "br0", "up")
            _ip("-n", machine, "addr", "add", f"{address}/24", "dev", "eth0")
            _ip("-n", machine, "link", "set", "lo", "up")
            _ip("-n", machine, "link", "set", "eth0", "up")

    def inside(self, name: str) -> list[str]:
        """Words in front of a command that runs it on a machine."""
        return ["ip", "netns", "exec", _namespace(name)]

    def workdir(self, name: str) -> Path:
        """The working directory of a host."""
        return self._sshd[name].workdir(name)

    def entry(self, name: str, **changes: Any) -> dict[str, Any]:
        """A host of a description; None leaves a key out."""
        return self._sshd[name].entry(name, **changes)

    # --- what happens to them ----------------------------------------------------------------------------------------

    def unplug(self, *names: str) -> None:
        """Pull the cables of machines out: packets vanish, nobody is told."""
        for name in names:
            _ip("-n", _namespace(_SWITCH), "link", "set", name, "down")

    def plug(self, *names: str) -> None:
        """Put them back."""
        for name in names:
            _ip("-n", _namespace(_SWITCH), "link", "set", name, "up")

    def power_off(self, name: str) -> None:
        """Take a machine its power: its processes are gone, and say no farewell to anybody."""
        self.unplug(name)
        _kill(_namespace(name))
        self._sshd[name].close()

    def power_on(self, name: str) -> None:
        """Boot it: sshd runs, and it is connected again."""
        self._sshd[name].start()
        self.plug(name)

    def part(self, *names: str) -> None:
        """Let these machines reach all others, but not each other."""
        for name in names:
            self._isolated(name, "on")

    def join(self, *names: str) -> None:
        """Let them reach each other again."""
        for name in names:
            self._isolated(name, "off")

    def _isolated(self, name: str, state: str) -> None:
        words = ["bridge", "-n", _namespace(_SWITCH), "link", "set", "dev", name, "isolated", state]
        subprocess.run(words, check=True, capture_output=True)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _namespace(name: str) -> str:
    return f"{_PREFIX}{os.getpid()}-{name}"


def _kill(namespace: str) -> None:
    """End every process of a namespace."""
    limit = time.monotonic() + 20
    while found := subprocess.run(["ip", "netns", "pids", namespace], capture_output=True).stdout.split():
        assert time.monotonic() < limit, f"processes of {namespace} do not end: {found}"
        for number in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(number), signal.SIGKILL)
        time.sleep(0.05)


def _remove(namespace: str) -> None:
    """End what runs in a namespace, and delete it, where it is there."""
    if Path("/run/netns", namespace).exists():
        _kill(namespace)
        subprocess.run(["ip", "netns", "del", namespace], capture_output=True)


def sweep() -> None:
    """Remove what tests have left behind that were killed themselves."""
    for path in Path("/run/netns").glob(f"{_PREFIX}*"):
        if not Path("/proc", path.name.removeprefix(_PREFIX).partition("-")[0]).exists():
            _remove(path.name)
