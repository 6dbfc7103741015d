"""What is left when one worker of a program of one's own ends in the middle of the run?

    python benchmarks/program_endings.py [--json FILE]

Three workers of unequal speed run tests/cluster/ending_program.py through the launcher, on this
machine and on two hosts over a real sshd on loopback. Worker 1 ends: by an exception, sys.exit(3),
SIGINT, SIGKILL (also while processes of a DataLoader are busy), or because its program ends before
the run is finished. Nobody is replaced. Counted are the seconds from its end to that of the last
process of the job, the launcher included, and the launcher's exit code. The target is 10 s, and
exit code 0 after a normal end only.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

from harness import program
from harness.figures import write_figures
from launching import Launch, description, write
from sshd import ADDRESSES, MISSING, SSHD, Sshd

SCRIPT = program.ROOT / "tests" / "cluster" / "ending_program.py"
STEPS = [0.02, 0.05, 0.1]  # seconds of an iteration
LIMIT = 10.0  # seconds after which nothing may be left
PATIENCE = 120.0  # seconds for everything else
#: How worker 1 ends, as the program calls it → the launcher's exit code.
ENDINGS = {"raise": 1, "exit": 1, "SIGINT": 1, "SIGKILL": 1, "SIGKILL loader": 1, "return": 0}


def cluster(place: str, sshd: Sshd | None) -> dict[str, Any]:
    """Return the description of the job on this machine, or on two hosts over ssh."""
    content = {**description(STEPS), "train": {}}
    if place == "ssh":
        assert sshd is not None
        variables = {"PYTHONPATH": str(program.ROOT)}
        content["hosts"] = {name: sshd.entry(name, env=variables) for name in ADDRESSES}
    return content


def workers(launch: Launch) -> dict[int, int]:
    """Return the process id of each rank's program."""
    found: dict[int, int] = {}
    for number, command in launch.processes().items():
        if f" {SCRIPT} " in command and "process_shim" not in command and "remote_agent" not in command:
            try:
                environment = Path(f"/proc/{number}/environ").read_bytes().split(b"\0")
            except OSError:
                continue  # it has ended meanwhile
            found |= {int(each[11:]): number for each in environment if each.startswith(b"ESYNC_SLOT=")}
    return found


def wait(condition: Any, seconds: float) -> float:
    """Wait until the condition holds, at most so many seconds; return the time when it was seen."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return time.monotonic()


def ending(file: Path, folder: Path, how: str) -> tuple[float, int | None]:
    """Run the job; return how many seconds others outlive worker 1, and the exit code."""
    words = [*how.split()[:1], "1", *how.split()[1:]]
    flags = ["-m", "sync", "--no-restart", "--", "python", str(SCRIPT), "sync", *words]
    launch = Launch(folder, file, *flags, PYTHONPATH=str(program.ROOT))
    try:
        wait(lambda: len(workers(launch)) == len(STEPS) or launch.process.poll() is not None, PATIENCE)
        ended = wait(lambda: 1 not in workers(launch), PATIENCE)
        gone = wait(lambda: launch.process.poll() is not None and not launch.processes(), PATIENCE)
        return gone - ended, launch.process.poll()
    finally:
        launch.sweep()


def main() -> int:
    """Run every ending at each place; print and write figures; return 1 if a target is missed."""
    parser = program.parser(__doc__)
    parser.add_argument("--places", nargs="+", choices=("here", "ssh"), default=["here", "ssh"])
    arguments = parser.parse_args()
    if "ssh" in arguments.places and SSHD is None:
        parser.error(f"{MISSING}; or --places here")
    rows, met = [], True
    print("place  ending          until all are gone  exit code of the launcher")
    with tempfile.TemporaryDirectory(prefix="esync-endings-") as folder:
        sshd = Sshd(Path(folder)) if "ssh" in arguments.places else None
        try:
            for place in arguments.places:
                for how, expected in ENDINGS.items():
                    where = Path(folder) / f"{place}-{how.replace(' ', '-')}"
                    where.mkdir()
                    seconds, code = ending(write(where / "cluster.yaml", cluster(place, sshd)), where, how)
                    rows.append({"place": place, "ending": how, "seconds": seconds, "exit_code": code})
                    met &= seconds <= LIMIT and code == expected
                    print(f"{place:5s}  {how:14s}  {seconds:16.1f} s  {code}", flush=True)
        finally:
            if sshd is not None:
                sshd.close()
    print(program.verdict(met))
    write_figures(arguments.json, {"command": program.command(), "endings": rows})
    return 0 if met else 1


if __name__ == "__main__":
    program.run(main)
