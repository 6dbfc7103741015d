"""A real sshd for tests, on addresses that stand for machines.

It has its own configuration, host key and user key.

Every address is a host with a folder of its own. Nothing outside of a test's folder is read or
written, but for the empty directory that Debian's sshd wants when it is started by root.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from esync.runtime.processes import tied
from tests.support.ports import free_port

#: Where Debian has it; it is in no ordinary user's PATH.
SSHD = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/sbin:/usr/local/sbin")
ADDRESSES = {"left": "127.0.0.2", "right": "127.0.0.3"}
MISSING = "there is no sshd here; on Debian and Ubuntu: apt-get install openssh-server"

_CONFIGURATION = """\
Port {port}
{listen}
HostKey {folder}/host
AuthorizedKeysFile {folder}/authorized
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
"""


def make_key(path: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path


class Sshd:
    """Runs until `close`.

    Args:
        folder: of its files, and of the hosts' working directories.
        addresses: name of each host → where it listens for it.
        inside: words in front of its command, which lead it into another network namespace.

    Attributes:
        folder: see above.
        port: where it listens, on all addresses.
    """

    def __init__(self, folder: Path, addresses: Mapping[str, str] = ADDRESSES, inside: Sequence[str] = ()) -> None:
        assert SSHD is not None
        self.folder, self._addresses, self._inside = folder, addresses, inside
        make_key(folder / "host")
        make_key(folder / "user")
        shutil.copy(folder / "user.pub", folder / "authorized")
        self.port = free_port("127.0.0.2")
        listen = "\n".join(f"ListenAddress {address}" for address in addresses.values())
        (folder / "sshd_config").write_text(_CONFIGURATION.format(port=self.port, listen=listen, folder=folder))
        public = (folder / "host.pub").read_text()
        (folder / "known").write_text("".join(f"[{address}]:{self.port} {public}" for address in addresses.values()))
        (folder / "none").touch()
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        self.start()

    def start(self) -> None:
        """Run; also once more, after `close`."""
        self._log = open(self.folder / "sshd.log", "wb")  # noqa: SIM115
        command = [*self._inside, str(SSHD), "-D", "-e", "-f", str(self.folder / "sshd_config")]
        self._process = subprocess.Popen(
            tied(command),  # it ends with the tests, however those end
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )
        limit = time.monotonic() + 20
        while (log := (self.folder / "sshd.log").read_text()).count("Server listening on ") < len(self._addresses):
            assert self._process.poll() is None, log
            assert time.monotonic() < limit, log
            time.sleep(0.05)

    def workdir(self, name: str) -> Path:
        """The working directory of a host."""
        folder = self.folder / "machines" / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def entry(self, name: str, **changes: Any) -> dict[str, Any]:
        """A host of a description; None leaves a key out."""
        entry = {
            "address": self._addresses[name],
            "port": self.port,
            "key": str(self.folder / "user"),
            "ssh_options": ["-F", "none", "-o", f"UserKnownHostsFile={self.folder / 'known'}"],
            "workdir": str(self.workdir(name)),
            "python": sys.executable,
            **changes,
        }
        return {key: value for key, value in entry.items() if value is not None}

    def close(self) -> None:
        """End it with its connections, if it runs."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()
