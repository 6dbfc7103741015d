"""Machines for tests, which share one kernel, and whose cables can be pulled.

They are network namespaces with an address and an sshd each.

They hang on a switch that is a namespace, too, so this machine's own network is not touched. A desk
beside them is where launch runs. The disk is this machine's; every host has a working directory of
its own.
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sshd import MISSING, SSHD, Sshd

from tests.support import network_namespaces
from tests.support.network_namespaces import connect, ip, kill, namespace, remove, sweep

HOSTS = ("ant", "bee", "cat", "dog")
#: The machine that launch runs on.
DESK = "desk"
_SWITCH = "switch"


def missing() -> str:
    """Return why there cannot be such machines here, "" where there can."""
    return network_namespaces.missing("bridge") if SSHD is not None else MISSING


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

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End all that runs on them, and remove them."""
        for name in (_SWITCH, *self.addresses):
            remove(namespace(name))
        for sshd in self._sshd.values():
            sshd.close()

    def _connect(self) -> None:
        """Make the namespaces, the bridge, and a cable from it to each machine."""
        switch = namespace(_SWITCH)
        ip("netns", "add", switch)
        ip("-n", switch, "link", "add", "br0", "type", "bridge")
        ip("-n", switch, "link", "set", "br0", "up")
        for name, address in self.addresses.items():
            connect(namespace(name), address, name, switch)
            ip("-n", switch, "link", "set", name, "master", "br0", "up")

    def inside(self, name: str) -> list[str]:
        """Return the words in front of a command that run it on a machine."""
        return network_namespaces.inside(namespace(name))

    def workdir(self, name: str) -> Path:
        """Return the working directory of a host."""
        return self._sshd[name].workdir(name)

    def entry(self, name: str, **changes: Any) -> dict[str, Any]:
        """Return a host of a description; None leaves a key out."""
        return self._sshd[name].entry(name, **changes)

    # --- what happens to them ---------------------------------------------------------------------

    def unplug(self, *names: str) -> None:
        """Pull the cables of machines out: packets vanish, nobody is told."""
        for name in names:
            ip("-n", namespace(_SWITCH), "link", "set", name, "down")

    def plug(self, *names: str) -> None:
        """Put them back."""
        for name in names:
            ip("-n", namespace(_SWITCH), "link", "set", name, "up")

    def power_off(self, name: str) -> None:
        """Take a machine its power: its processes are gone, and say no farewell to anybody."""
        self.unplug(name)
        kill(namespace(name))
        self._sshd[name].close()

    def limit(self, name: str, megabits: int) -> None:
        """Let a machine send and receive no more than so many Mbit/s.

        The queues are as short as those of a switch. In long ones the acknowledgements of what arrives wait
        behind what is sent: with 100 ms TCP has a third of the rate where both directions are busy.

        Raises:
            subprocess.CalledProcessError: the kernel cannot do that.
        """
        burst = max(64_000, megabits * 250)  # bytes of 2 ms; shorter ones cost packets of 64 kB at 1 Gbit/s
        rate = ["root", "tbf", "rate", f"{megabits}mbit", "burst", f"{burst}", "latency", "10ms"]
        for place, device in ((namespace(name), "eth0"), (namespace(_SWITCH), name)):
            words = ["tc", "-n", place, "qdisc", "replace", "dev", device, *rate]
            subprocess.run(words, check=True, capture_output=True)

    def part(self, *names: str) -> None:
        """Let these machines reach all others, but not each other."""
        for name in names:
            self._isolated(name, "on")

    def join(self, *names: str) -> None:
        """Let them reach each other again."""
        for name in names:
            self._isolated(name, "off")

    def _isolated(self, name: str, state: str) -> None:
        words = ["bridge", "-n", namespace(_SWITCH), "link", "set", "dev", name, "isolated", state]
        subprocess.run(words, check=True, capture_output=True)
