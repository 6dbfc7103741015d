"""Jobs on machines whose cables can be pulled.

They are launched from the desk over ssh, with a worker on each of three hosts.
"""

import json
import signal
from pathlib import Path
from typing import Any

from launching import Start, description
from namespaces import DESK, HOSTS, Machines

#: Seconds for what takes a tenth of that on a machine with nothing else to do.
LONG = 300


class Job:
    """A job whose scheduler, servers and state server are on the first host.

    Args:
        machines: where it runs; a fourth host is a spare one.
        start: starts launchers.
        folder: of launch.
        flags: of launch.
        variables: of all processes on the hosts.
        train: the section `train` of the description.

    Attributes:
        launch: the launcher.
    """

    def __init__(
        self,
        machines: Machines,
        start: Start,
        folder: Path,
        *flags: str,
        variables: dict[str, str] | None = None,
        **train: Any,
    ) -> None:
        hosts = [name for name in machines.addresses if name != DESK]
        content = description([0.2] * 3, list(HOSTS[:3]), learning_rate=0.001, local_lr=0.001, **train)
        content["hosts"] = {name: machines.entry(name, env=variables or {}) for name in hosts}
        content["spare_hosts"] = hosts[3:]
        self._folder, self._logs = folder, Path("logs", "lenet", train["mode"])
        self._workdirs = {name: machines.workdir(name) for name in hosts}
        words = ["--json", "job.json", "--no-evaluation", *flags]
        self.launch = start(content, *words, inside=machines.inside(DESK))

    def rounds(self, host: str) -> dict[int, float]:
        """The rounds that a host's worker has logged on its own disk → when (time.time)."""
        folder = self._workdirs[host] / self._logs / host / "cpu"
        times = {}
        for path in folder.glob("iter-*.txt"):
            times[int(path.stem.removeprefix("iter-"))] = path.stat().st_mtime
        return times

    def until_trained(self, rounds: int, *hosts: str) -> None:
        """Wait until hosts, or all three, have logged so many more rounds than now."""
        before = {host: len(self.rounds(host)) for host in hosts or HOSTS[:3]}
        self.launch.until(lambda: all(len(self.rounds(host)) >= before[host] + rounds for host in before), LONG)

    def until_said(self, text: str) -> None:
        """Wait until launch has said something."""
        self.launch.until(lambda: text in self.launch.output, LONG)

    def processes(self, role: str) -> dict[int, str]:
        """The processes of a role: id → command line."""
        module = f"-m esync.{role}"
        return {number: line for number, line in self.launch.processes().items() if module in line}

    def interrupt(self) -> dict[str, Any]:
        """Interrupt launch; what it says of the job, which counts as failed then."""
        self.launch.process.send_signal(signal.SIGINT)
        return self.report(1)

    def report(self, code: int = 0) -> dict[str, Any]:
        """What launch says of a job that ends with this exit code; nothing of it is left."""
        assert self.launch.wait(LONG) == code, self.launch.output
        assert self.launch.gone_within(60) == {}
        report: dict[str, Any] = json.loads((self._folder / "job.json").read_text())
        return report
