"""Writes checkpoints in processes that end as by kill -9, once at every step of the writing.

Usage: python crashes.py DIRECTORY. Prints one JSON list: for every step, the rounds that are whole
afterwards and whether their content is what was written.
"""

import json
import os
import shutil
import sys
from pathlib import Path

from esync.checkpoints import store as module
from esync.checkpoints.store import CheckpointStore

ROUNDS = 3


def content(round_: int, name: str) -> bytes:
    return f"{name} of round {round_} ".encode() * 5_000


def write(store: CheckpointStore, round_: int) -> None:
    names = ("model.params", "worker-0.npz")
    writers = {name: (lambda path, name=name: fill(path, content(round_, name))) for name in names}
    store.write(round_, writers, {"job": 1})
    store.keep(2, round_)


def fill(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        for start in range(0, len(data), 30_000):
            step()
            file.write(data[start : start + 30_000])
            file.flush()


def step() -> None:
    """One step further; at the last one the process is gone."""
    global left
    left -= 1
    if left < 0:
        os._exit(9)


def count_steps() -> None:
    """Everything that changes the disk is a step."""
    for owner, name in ((os, "replace"), (os, "fsync"), (os, "unlink"), (os, "rmdir"), (os, "mkdir")):
        real = getattr(owner, name)

        def counted(*arguments, real=real, **options):
            step()
            return real(*arguments, **options)

        setattr(owner, name, counted)


def survivors(directory: Path) -> tuple[list[int], bool]:
    store = CheckpointStore(directory, 0)
    store.prepare()
    hidden = [path.name for path in directory.rglob(".*")]
    parts = store.parts()
    intact = all(
        part.file(name).read_bytes() == content(part.round, name) for part in parts for name in part.facts["files"]
    )
    return [part.round for part in parts], intact and not hidden


def main(directory: Path) -> None:
    global left
    results, crashed = [], True
    while crashed:
        child = os.fork()
        if child == 0:
            left = len(results)
            count_steps()
            store = CheckpointStore(directory, 0)
            store.prepare()
            for round_ in range(1, ROUNDS + 1):
                write(store, round_)
            os._exit(0)
        crashed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        results.append(survivors(directory))
        shutil.rmtree(directory)
    print(json.dumps(results))


if __name__ == "__main__":
    assert module.FORMAT == 2
    left = 0
    main(Path(sys.argv[1]))
