"""Write a description and a program to start from: `esync init [DIR] [--workers N | --hostfile FILE]`.

Existing files are not overwritten. Exit codes: 0 done, 1 failed, 2 bad usage.
"""

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from .launch import hostfile
from .runtime import program
from .runtime.errors import ExpectedError
from .runtime.files import expanded
from .runtime.terminal import print_error, run_command

PROJECT = Path(__file__).parent / "examples" / "starter"
DESCRIPTION, PROGRAM = "cluster.yaml", "train.py"
#: Host of the description's services, replaced by the first one of a hostfile.
THIS_HOST = "{host: localhost}"
#: Line of the description that is replaced by the workers.
ONE_WORKER = "  - {host: localhost, device: cpu}\n"
#: Seconds per iteration of the workers' devices, used in turn.
STEP_TIMES = (0.1, 0.23, 0.9)
#: Largest number of workers.
MAX_WORKERS = 64


class FileExistsAlreadyError(ExpectedError):
    """Raised, before anything is written, when one of the files exists."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    command_parser = argparse.ArgumentParser(
        prog=program.name("python -m esync.starter"),
        description=f"Write {DESCRIPTION} and {PROGRAM}, to start a project from; existing files are not changed.",
        allow_abbrev=False,
    )
    command_parser.add_argument(
        "folder", nargs="?", type=expanded, default=Path(), metavar="DIR", help="folder, made if it does not exist"
    )
    where = command_parser.add_mutually_exclusive_group()
    where.add_argument(
        "--workers",
        type=_workers,
        default=3,
        metavar="N",
        help="number of workers, all on this machine, with devices of unequal speed (default: %(default)s)",
    )
    where.add_argument(
        "--hostfile",
        type=expanded,
        metavar="FILE",
        help="hostfile of Open MPI, MPICH or Horovod: a worker for each of its slots, and all services on its first "
        "host",
    )
    command_parser.add_argument(
        "--device",
        choices=("cpu", "gpu"),
        default="cpu",
        help="what a slot of the hostfile is: the CPU of its host, or a GPU of its own (default: %(default)s)",
    )
    return command_parser


def _workers(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MAX_WORKERS:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number from 1 to {MAX_WORKERS}")
    return int(text)


def workers_here(number: int) -> list[str]:
    """Return workers on this machine, of unequal speed, as lines of the description."""
    times = (STEP_TIMES[index % len(STEP_TIMES)] for index in range(number))
    return [f"  - {{host: localhost, device: cpu, step_time: {step_time}}}\n" for step_time in times]


def workers_on(slots: Mapping[str, int], device: str) -> list[str]:
    """Return a worker for each slot of each host, as lines of the description.

    Args:
        slots: host → number of slots.
        device: "cpu", or "gpu" for gpu0, gpu1 and so on.
    """
    return [
        f"  - {{host: {name}, device: {device if device == 'cpu' else f'gpu{index}'}}}\n"
        for name, number in slots.items()
        for index in range(number)
    ]


def write_project(folder: Path, workers: Sequence[str], first: str = "localhost") -> list[Path]:
    """Write the two files into a folder, and return their paths.

    Args:
        folder: made if it does not exist.
        workers: lines of the description.
        first: host of the services.

    Raises:
        FileExistsAlreadyError: one of them exists.
        OSError: one cannot be written.
    """
    description = (PROJECT / DESCRIPTION).read_text(encoding="utf-8").replace(ONE_WORKER, "".join(workers))
    description = description.replace(THIS_HOST, f"{{host: {first}}}")
    texts = {folder / DESCRIPTION: description, folder / PROGRAM: (PROJECT / PROGRAM).read_text(encoding="utf-8")}
    folder.mkdir(parents=True, exist_ok=True)
    existing = [str(path) for path in texts if path.exists() or path.is_symlink()]
    if existing:
        raise FileExistsAlreadyError(
            f"{' and '.join(existing)} exist{'' if len(existing) > 1 else 's'} already, and nothing was written; "
            "choose another folder: esync init DIR"
        )
    for path, text in texts.items():
        with open(path, "x", encoding="utf-8") as file:  # never overwrites a file
            file.write(text)
    return list(texts)


def main(words: Sequence[str] | None = None) -> int:
    """Write the files and return the exit code: 0 done, 1 failed, 2 bad usage."""
    options = parser().parse_args(words)

    def write() -> int:
        slots = hostfile.read(options.hostfile) if options.hostfile else {}
        workers = workers_on(slots, options.device) if slots else workers_here(options.workers)
        for path in write_project(options.folder, workers, next(iter(slots), "localhost")):
            print(f"wrote {path}")
        enter = "" if options.folder == Path() else f"    cd {shlex.quote(str(options.folder))}\n"
        print(
            f"\nNext:\n\n{enter}"
            f"    esync doctor {DESCRIPTION}    # can this machine, and the hosts, train?\n"
            f"    esync data fetch             # the data set, where doctor does not find it\n"
            f"    esync launch {DESCRIPTION}    # {len(workers)} worker(s), about a minute, then report.html\n"
            f"    esync launch {DESCRIPTION} -m sync && esync compare logs/train    # against synchronous SGD"
        )
        return 0

    return run_command(write, lambda text: print_error(f"esync init: error: {text}"))


if __name__ == "__main__":
    sys.exit(main())
