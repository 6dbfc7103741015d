"""Whole jobs on machines whose cables are pulled and whose power goes: three hosts over ssh, and a desk with launch.

What is expected of each fault in each mode: docs/failures.md, "Machines that vanish".
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from launching import Launch, description, write
from machines import DESK, HOSTS, Machines, missing

pytestmark = pytest.mark.timeout(600)
#: Seconds for what takes a tenth of that on a machine with nothing else to do.
LONG = 300

Start = Callable[..., Launch]


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    """Three hosts and a desk with a network of their own."""
    if why := missing():
        pytest.skip(why)
    with Machines(tmp_path / "network") as network:
        yield network


class Job:
    """A job whose scheduler, servers and state server are on the first host; a worker on each of the three.

    Args:
        machines: where it runs.
        start: starts launchers.
        folder: of launch.
        flags: of launch.
        changes: other sections of the description.
        train: its section `train`.
    """

    def __init__(
        self,
        machines: Machines,
        start: Start,
        folder: Path,
        *flags: str,
        changes: dict[str, Any] | None = None,
        **train: Any,
    ) -> None:
        hosts = HOSTS[:3]
        content = description([0.2] * 3, list(hosts), learning_rate=0.001, local_lr=0.001, **train)
        content["hosts"] = {name: machines.entry(name) for name in machines.addresses if name != DESK}
        content |= changes or {}
        self._machines, self._folder = machines, folder
        self._mode = train["mode"]
        file = write(folder / "cluster.yaml", content)
        self.launch = start(file, "--json", "job.json", *flags, inside=machines.inside(DESK))

    def rounds(self, host: str) -> list[int]:
        """The rounds that a host's worker has logged on its own disk."""
        folder = self._machines.workdir(host) / "logs" / "lenet" / self._mode / host / "cpu"
        return sorted(int(path.stem.removeprefix("iter-")) for path in folder.glob("iter-*.txt"))

    def until_trained(self, rounds: int = 1, *hosts: str) -> None:
        """Wait until hosts have logged so many more rounds than now."""
        before = {host: len(self.rounds(host)) for host in hosts or HOSTS[:3]}
        self.launch.until(lambda: all(len(self.rounds(host)) >= before[host] + rounds for host in before), LONG)

    def report(self) -> dict[str, Any]:
        """What launch says of a job that is done; nothing of it is left."""
        assert self.launch.wait(LONG) == 0, self.launch.output
        assert self.launch.gone_within(60) == {}
        found: dict[str, Any] = json.loads((self._folder / "job.json").read_text())
        return found


def test_a_job_on_machines_of_their_own(tmp_path: Path, data_dir: Path, machines: Machines, launch: Start) -> None:
    job = Job(machines, launch, tmp_path, mode="esync", rounds=4, data_dir=str(data_dir))
    report = job.report()
    assert report["replacements"] == []
    for host in HOSTS[:3]:
        assert job.rounds(host) == [1, 2, 3, 4]
