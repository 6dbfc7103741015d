"""What does it cost that machines vanish? A table, and benchmarks/results/machines.json.

    python benchmarks/machines.py                          # what has not been measured yet
    python benchmarks/machines.py --rows "cable 5 s"       # faults that begin so
    python benchmarks/machines.py --again                  # everything anew

Jobs run on three hosts whose cables are pulled: network namespaces of this machine, with an address
and an sshd each (it takes root, iproute2 and sshd). Launch runs in one more. Scheduler, server and
state server are on the first host, a worker is on each. A row ends when the time of its job does.
Seconds lost are the longest time without a round after the fault, on the second host (the others)
and for the slot of the third one, each less a usual round. docs/how-to/failures.md says what
is expected.
"""

import contextlib
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import program
from harness.figures import read_figures, write_figures
from launching import Launch
from machine_jobs import Job
from namespaces import HOSTS, Machines, missing
from tiny_dataset import write as write_tiny_dataset

ANT, BEE, CAT, DOG = HOSTS
#: Variables that make MPI use no shared memory, as between machines.
APART = {"UCX_TLS": "tcp", "MPIR_CVAR_NOLOCAL": "1"}


@dataclass(frozen=True)
class Row:
    """A fault in a mode.

    Attributes:
        fault: the fault in words.
        begin: makes the fault happen.
        lasts: seconds until `end`; None if the fault stays.
        end: ends the fault.
        seconds: duration of the job, from the moment when its workers have met.
        train: mode and flags of the workers.
        flags: flags of launch.
        hosts: number of hosts; 4 with a spare one.
    """

    fault: str
    begin: Callable[[Machines], None]
    lasts: float | None
    end: Callable[[Machines], None]
    seconds: float
    train: dict[str, Any]
    flags: tuple[str, ...] = ()
    hosts: int = 3

    @property
    def name(self) -> str:
        """Fault and mode."""
        words = [self.train["mode"], *(["elastic"] if "elastic" in self.train else [])]
        return ", ".join([self.fault, *words, *([self.train["collective"]] if "collective" in self.train else [])])


def rows() -> Iterator[Row]:
    """Yield all rows."""
    modes: list[dict[str, Any]] = [{"mode": "sync"}, {"mode": "esync"}, {"mode": "async"}]
    elastic: list[dict[str, Any]] = [{"mode": "sync", "elastic": True}]
    ring = {"mode": "sync", "collective": "ring"}

    def plug(host: str) -> Callable[[Machines], None]:
        return lambda machines: machines.plug(host)

    def unplug(host: str) -> Callable[[Machines], None]:
        return lambda machines: machines.unplug(host)

    def off(machines: Machines) -> None:
        machines.power_off(CAT)

    def on(machines: Machines) -> None:
        machines.power_on(CAT)

    def part(machines: Machines) -> None:
        machines.part(BEE, CAT)

    def join(machines: Machines) -> None:
        machines.join(BEE, CAT)

    for train in modes + elastic:
        yield Row("cable 5 s", unplug(CAT), 5, plug(CAT), 60, train)
    for train in modes + elastic:
        yield Row("cable 60 s", unplug(CAT), 60, plug(CAT), 160, train)
    for train in modes + elastic:
        yield Row("power off, spare host", off, None, on, 140, train, hosts=4)
    yield Row("power off 60 s", off, 60, on, 160, {"mode": "sync"})
    for train in ({"mode": "sync"}, *elastic):
        yield Row("power off, given up after 30 s", off, None, on, 120, train, ("--wait-for-host", "30"))
    for train in (*modes[:2], ring):
        yield Row("no way between two workers 20 s", part, 20, join, 90, train)
    for train in modes:
        yield Row("scheduler's host 3 s", unplug(ANT), 3, plug(ANT), 60, train)
    yield Row("scheduler's host for good", unplug(ANT), None, plug(ANT), 120, {"mode": "sync"})


def measure(row: Row) -> dict[str, Any]:
    """Run a row's job; return its figures."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="machines-")))
        (folder / "data").mkdir()
        write_tiny_dataset(folder / "data")
        machines = stack.enter_context(Machines(folder / "network", HOSTS[: row.hosts]))

        def start(file: Path, *flags: str, **more: Any) -> Launch:
            launch = Launch(folder, file, *flags, **more)
            stack.callback(launch.sweep)
            return launch

        variables = {"PYTHONPATH": str(program.ROOT), **(APART if "collective" in row.train else {})}
        limits = {"max_time": row.seconds, "data_dir": str(folder / "data")}
        job = Job(machines, start, folder, *row.flags, variables=variables, **row.train, **limits)
        job.until_trained(5)
        began = time.time()
        row.begin(machines)
        if row.lasts is not None:
            time.sleep(row.lasts)
            row.end(machines)
        code = job.launch.wait(row.seconds + 600)
        ended = max(job.rounds(BEE).values())
        report = json.loads((folder / "job.json").read_text())
        slot = [*job.rounds(CAT).values(), *(job.rounds(DOG).values() if row.hosts > 3 else [])]
        return {
            "exit_code": code,
            "rounds": {host: len(job.rounds(host)) for host in HOSTS[: row.hosts]},
            "median_round": round(_median(job.rounds(ANT).values()), 3),
            "lost_others": _lost(list(job.rounds(BEE).values()), began, ended),
            "lost_slot": _lost(slot, began, ended),
            "replacements": [each["name"] for each in report["replacements"]],
            "counted": [each["name"] for each in report["replacements"] if each["counted"]],
            "lost": report["lost"],
            "lost_hosts": report["lost_hosts"],
            "failure": next((f"{each['name']} {each['how']}" for each in report["failures"]), None),
            "load": round(os.getloadavg()[0], 1),
        }


def _median(times: Any) -> float:
    ordered = sorted(times)
    return statistics.median(later - earlier for earlier, later in itertools.pairwise(ordered))


def _lost(times: list[float], began: float, ended: float) -> float | None:
    """Return the longest time without a round after the fault, less a usual round, in seconds.

    Returns None if no round came.
    """
    later = sorted(each for each in times if each > began)
    if not later:
        return None
    marks = [max((each for each in times if each <= began), default=began), *later]
    longest = max(after - before for before, after in itertools.pairwise(marks))
    return round(max(0.0, longest - _median(times)), 1)


def show(results: dict[str, Any]) -> None:
    """Print the table."""
    print(f"{'fault, mode':48} {'exit':>4} {'rounds':>22} {'lost by others, slot (s)':>26}  what")
    for name, result in results.items():
        counts = " ".join(str(count) for count in result["rounds"].values())
        seconds = " ".join(
            "-" if each is None else f"{each:.1f}" for each in (result["lost_others"], result["lost_slot"])
        )
        words = [
            *(["replaced: " + ", ".join(result["replacements"])] if result["replacements"] else []),
            *(["lost: " + ", ".join(result["lost"])] if result["lost"] else []),
            *([result["failure"]] if result["failure"] else []),
        ]
        print(f"{name:48} {result['exit_code']:>4} {counts:>22} {seconds:>26}  {'; '.join(words)}")


def main() -> None:
    """Measure the rows that are missing."""
    parser = program.parser(__doc__, json=program.RESULTS / "machines.json")
    parser.add_argument("--rows", default="", metavar="TEXT", help="only those whose names begin so")
    parser.add_argument("--again", action="store_true", help="also those that have been measured")
    options = parser.parse_args()
    if why := missing():
        sys.exit(why)
    known = read_figures(options.json)
    for row in rows():
        if not row.name.startswith(options.rows) or (row.name in known and not options.again):
            continue
        result = measure(row)
        # Another one of these programs may have measured other rows meanwhile.
        known = {**read_figures(options.json), row.name: result}
        write_figures(options.json, {each.name: known[each.name] for each in rows() if each.name in known})
        show({row.name: result})
    show(known)


if __name__ == "__main__":
    program.run(main)
