"""Does anything outlive the launcher?

    python benchmarks/launch_interrupts.py [--json FILE]

Starts a small job again and again – three workers of unequal speed, ESync, LeNet on the real data
set; on this machine, and on two hosts over a real sshd on loopback – and at a random moment
interrupts the launcher (SIGINT) or kills it (SIGKILL). Counted are the processes of the job, on any
host, that are there 10 seconds later, and the seconds until the last one is gone.
"""

import random
import re
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import program
from harness.figures import write_figures
from launching import Launch, description, write
from sshd import ADDRESSES, MISSING, SSHD, Sshd

from esync.data import find_data_dir

STEPS = [0.1, 0.23, 0.9]  # seconds of an iteration, as in clusters/quick.yaml
LIMIT = 10.0  # seconds after which nothing may be left
TO_TRAINING = 120.0  # seconds that the first round may take
PATIENCE = 30.0  # seconds after which nobody waits any longer for what is left


def job(place: str, sshd: Sshd | None, train: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a job on this machine, or on two hosts over ssh."""
    content = description(STEPS, **train)
    if place == "ssh":
        assert sshd is not None
        content["hosts"] = {name: sshd.entry(name, env={"PYTHONPATH": str(program.ROOT)}) for name in ADDRESSES}
    return content


def phase(output: str) -> str:
    """Return how far the job had come, by its launcher's output."""
    states = re.findall(r"workers: ([^\n]*?)(?:  |$)", output, re.MULTILINE)
    return re.sub(r"\d+ ", "", states[-1]).replace(", ", "+") if states else "before the job"


def wait(launch: Launch, until: float) -> int:
    """Wait until no process is left, or until a time; return how many there are.

    The launcher counts, too.
    """
    while True:
        left = len(launch.processes()) + (launch.process.poll() is None)
        if not left or time.monotonic() > until:
            return left
        time.sleep(0.1)


def until_training(launch: Launch) -> None:
    """Wait for the first round."""
    end = time.monotonic() + TO_TRAINING
    while " training" not in launch.output and launch.process.poll() is None and time.monotonic() < end:
        time.sleep(0.1)


def interrupt(file: Path, number: signal.Signals, training: bool, after: float) -> dict[str, Any]:
    """Start the job, send the launcher a signal, and return what is left.

    Args:
        file: the description.
        number: the signal.
        training: whether to count the seconds from the first round instead of the start.
        after: seconds after which the signal is sent.
    """
    with tempfile.TemporaryDirectory(prefix="esync-interrupts-") as folder:
        launch = Launch(Path(folder), file, PYTHONPATH=str(program.ROOT))
        try:
            if training:
                until_training(launch)
            time.sleep(after)
            running, before = len(launch.processes()), phase(launch.output)
            sent = time.monotonic()
            launch.process.send_signal(number)
            left = wait(launch, sent + LIMIT)
            names = list(launch.processes().values()) if left else []
            wait(launch, sent + PATIENCE)
            gone = time.monotonic() - sent
            code, output = launch.process.poll(), launch.output
        finally:
            launch.sweep()
    return {
        "in_training": training,
        "after": after,
        "phase": before,
        "processes": running,
        "left_after_10_s": left,
        "their_commands": names,
        "seconds": gone,
        "exit_code": code,
        "traceback": "Traceback" in output,
    }


def main() -> int:
    """Interrupt, print and, if asked to, write the figures; return 1 if anything was left."""
    parser = program.parser(__doc__)
    parser.add_argument("--moments", type=int, default=20, help="of each kind (default: %(default)s)")
    parser.add_argument("--longest", type=float, default=15.0, help="seconds of the last moment (default: %(default)s)")
    parser.add_argument(
        "--in-training",
        type=float,
        default=0.5,
        help="share of the moments that are counted from the first round, the others from the start "
        "(default: %(default)s)",
    )
    parser.add_argument("--places", nargs="+", choices=("here", "ssh"), default=["here", "ssh"])
    parser.add_argument("--signals", nargs="+", choices=("SIGINT", "SIGKILL"), default=["SIGINT", "SIGKILL"])
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored, and children inherit that
    if "ssh" in arguments.places and SSHD is None:
        parser.error(f"{MISSING}; or --places here")
    data = find_data_dir(None, "fashion-mnist").resolve()
    train = {"local_lr": 0.002, "batch_size": 64, "data_dir": str(data), "max_time": 300}

    rows = []
    print("place  signal   moments  processes  left after 10 s  until the last one is gone  phases")
    with tempfile.TemporaryDirectory(prefix="esync-sshd-") as folder:
        sshd = Sshd(Path(folder)) if "ssh" in arguments.places else None
        try:
            for place in arguments.places:
                file = write(Path(folder) / f"{place}.yaml", job(place, sshd, train))
                for name in arguments.signals:
                    chance = random.Random(f"{arguments.seed} {place} {name}")
                    moments = [chance.uniform(0, arguments.longest) for _ in range(arguments.moments)]
                    trained = round(arguments.in_training * arguments.moments)  # so many of them count from there
                    found = [
                        interrupt(file, signal.Signals[name], index < trained, after)
                        for index, after in enumerate(moments)
                    ]
                    rows.append({"place": place, "signal": name, "moments": found})
                    print(line(rows[-1]), flush=True)
        finally:
            if sshd is not None:
                sshd.close()
    left = sum(one["left_after_10_s"] for row in rows for one in row["moments"])
    print(f"{left} processes were left after {LIMIT:.0f} s")
    content = {"command": program.command(), "seed": arguments.seed, "rows": rows}
    write_figures(arguments.json, content)
    return 1 if left else 0


def line(row: dict[str, Any]) -> str:
    """Return a row of the table."""
    found = row["moments"]
    seconds = sorted(one["seconds"] for one in found)
    phases = [one["phase"] for one in found]
    counts = ", ".join(f"{phases.count(name)} × {name}" for name in dict.fromkeys(sorted(phases)))
    return (
        f"{row['place']:5}  {row['signal']:7}  {len(found):7}  {max(one['processes'] for one in found):9}  "
        f"{sum(one['left_after_10_s'] for one in found):15}  median {seconds[len(seconds) // 2]:4.1f} s, "
        f"longest {seconds[-1]:4.1f} s  {counts}"
    )


if __name__ == "__main__":
    program.run(main)
