"""Checkpoints on disk: folders `round-N` with one part per worker, each whole or absent.

A part consists of data files and of `worker-R.json`, which describes the part and contains the size
and the SHA-256 of each data file, and a SHA-256 of itself. The JSON file is written last and deleted
first. Every file is written under a temporary name, flushed to the disk and renamed. The data files
are on the disk whenever the JSON file is, so that a part is whole or absent after a power cut, too.
A part counts as written when its JSON file is on the disk. Workers on one file system share the
folders, and each touches the files of its own part only; workers on different machines may each
have folders of their own.
"""

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..runtime.errors import ExpectedError
from ..runtime.files import atomic_path, flush_folder, make_folder

log = logging.getLogger(__name__)

#: Changes whenever parts that were written before cannot be read any more.
FORMAT = 2
CHUNK = 2**20  # bytes read at once for a checksum

#: Writes one file, whose path it is given.
Writer = Callable[[Path], None]


@dataclass(frozen=True)
class Part:
    """The part of one worker in one checkpoint.

    Attributes:
        folder: holds its files.
        facts: the contents of its JSON file.
    """

    folder: Path
    facts: dict[str, Any]

    @property
    def round(self) -> int:
        """The round after which the checkpoint was written."""
        return int(self.facts["round"])

    def file(self, name: str) -> Path | None:
        """Return the path of that data file; None where the part has none of that name."""
        return self.folder / name if name in self.facts["files"] else None

    def damage(self) -> str:
        """Return what is wrong with its data files, or "" if they are whole."""
        for name, expected in self.facts["files"].items():
            path = self.folder / name
            try:
                if path.stat().st_size != expected["bytes"] or _digest(path) != expected["sha256"]:
                    return f"{path} is not what was written"
            except OSError as error:
                return f"{path}: {error.strerror}"
        return ""


class CheckpointStore:
    """The parts of one worker on disk.

    Args:
        directory: holds the folders of all checkpoints.
        rank: of the worker.
    """

    def __init__(self, directory: Path, rank: int) -> None:
        self.directory, self.rank = directory, rank
        self._name = f"worker-{rank}.json"

    def prepare(self) -> None:
        """Make the directory if need be, and delete what a killed process has left half written.

        Raises:
            CheckpointError: the directory cannot be made or written.
        """
        try:
            make_folder(self.directory)
            probe = self.directory / f".worker-{self.rank}.{os.getpid()}"
            probe.touch()
        except OSError as error:
            raise CheckpointError(f"cannot write checkpoints to {self.directory}: {error.strerror or error}") from None
        for folder in [self.directory, *self._folders()]:
            self._remove(folder, [name for name in self._files_of_worker(folder) if name.startswith(".")])

    def parts(self) -> list[Part]:
        """Return all whole parts of this worker, the newest first; log which ones are damaged.

        Raises:
            CheckpointError: there are parts, but every one is damaged.
        """
        parts, damages = [], []
        for folder in self._folders():
            if not (folder / self._name).exists():
                continue  # another worker's, or one that was never finished
            part = self._read(folder)
            damage = part if isinstance(part, str) else part.damage()
            if damage or isinstance(part, str):
                damages.append(damage)
                log.warning("a checkpoint is damaged and left out: %s", damage)
            else:
                parts.append(part)
        if damages and not parts:
            raise CheckpointError(
                f"every checkpoint is damaged: {'; '.join(damages)}; put back a copy of them, or begin anew with "
                "--overwrite"
            )
        return parts

    def next_after(self, round_: int) -> Part | None:
        """Return the first whole part of this worker after a round; None while there is none.

        What is being written, copied or deleted at the moment is not whole.
        """
        for folder in reversed(self._folders()):
            if _round(folder) > round_ and (folder / self._name).exists():
                part = self._read(folder)
                if not isinstance(part, str) and not part.damage():
                    return part
        return None

    def write(self, round_: int, writers: Mapping[str, Writer], facts: Mapping[str, Any]) -> Part:
        """Write a part: its data files by name, then the facts about them.

        Raises:
            CheckpointError: it could not be written; earlier checkpoints are as they were.
        """
        folder = self.directory / f"round-{round_}"
        try:
            with self._claimed(folder):
                flush_folder(self.directory)
                self._forget(folder)  # a half-written part must not pass for the one that it replaces
                files = {name: _write(folder / name, writer) for name, writer in writers.items()}
                flush_folder(folder)
                content = {"format": FORMAT, "round": round_, **facts, "files": files}
                _write(folder / self._name, lambda path: _write_text(path, json.dumps(_sealed(content), indent=1)))
                flush_folder(folder)
        except OSError as error:
            raise CheckpointError(f"cannot write a checkpoint to {folder}: {error.strerror or error}") from None
        return Part(folder, content)

    def remove(self, which: Callable[[int], bool]) -> None:
        """Delete this worker's files of the rounds for which `which` is true.

        Folders that become empty are deleted, too.
        """
        for folder in self._folders():
            if which(_round(folder)):
                self._remove(folder, [self._name, *self._files_of_worker(folder)])

    def rounds(self) -> list[int]:
        """Return the rounds of the parts that this worker has written, the newest first."""
        return [_round(folder) for folder in self._folders() if (folder / self._name).exists()]

    def keep(self, count: int, whole: int) -> None:
        """Delete old parts of this worker.

        Parts that are newer than the newest whole checkpoint all stay.

        Args:
            count: number of other parts that are kept.
            whole: round of the newest whole checkpoint.
        """
        kept_rounds = [round_ for round_ in self.rounds() if round_ <= whole][:count]
        self.remove(lambda round_: round_ <= whole and round_ not in kept_rounds)

    @contextmanager
    def _claimed(self, folder: Path) -> Iterator[None]:
        """Make a folder, and keep a file in it within a with statement.

        The file keeps other workers from deleting the folder for being empty.
        """
        marker = folder / f".worker-{self.rank}.{os.getpid()}"
        while True:
            folder.mkdir(exist_ok=True)
            with suppress(FileNotFoundError):
                marker.touch()
                break
        try:
            yield
        finally:
            marker.unlink(missing_ok=True)

    def _files_of_worker(self, folder: Path) -> list[str]:
        """Return the names of this worker's files in a folder, half-written ones included."""
        prefixes = (f"worker-{self.rank}.", *(("model.", "server.", "vectors.") if self.rank == 0 else ()))
        with suppress(FileNotFoundError):
            return [path.name for path in folder.iterdir() if path.name.removeprefix(".").startswith(prefixes)]
        return []

    def _remove(self, folder: Path, names: list[str]) -> None:
        """Delete these files, and the folder if it is empty then.

        The facts are deleted first, so that what is left is not taken for a part.
        """
        try:
            if self._name in names:
                self._forget(folder)
            for name in names:
                (folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise CheckpointError(f"cannot delete {folder}: {error.strerror or error}") from None
        if folder != self.directory:
            with suppress(OSError):  # not empty: another worker's part is in there
                folder.rmdir()

    def _forget(self, folder: Path) -> None:
        """Delete the facts about a part, if any, so that they stay deleted after a power cut."""
        with suppress(FileNotFoundError):
            (folder / self._name).unlink()
            flush_folder(folder)  # another worker may have deleted it, which was empty then

    def _folders(self) -> list[Path]:
        """Return the folders of all checkpoints, the newest first."""
        folders = [path for path in self.directory.glob("round-*") if path.name[6:].isdecimal() and path.is_dir()]
        return sorted(folders, key=_round, reverse=True)

    def _read(self, folder: Path) -> Part | str:
        """Return a folder's part of this worker, or what is wrong with its JSON file."""
        path = folder / self._name
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["format"] != FORMAT:
                return f"{path} has format {content['format']}, this version of esync reads {FORMAT}"
            seal = content.pop("sha256")
            if _sealed(content)["sha256"] != seal or content["round"] != _round(folder):
                return f"{path} is not what was written"
        except (OSError, ValueError, KeyError, TypeError) as error:
            return f"{path}: {error}"
        return Part(folder, content)


def _round(folder: Path) -> int:
    return int(folder.name.removeprefix("round-"))


def _sealed(content: dict[str, Any]) -> dict[str, Any]:
    """Return the content with a checksum of itself."""
    text = json.dumps(content, sort_keys=True)
    return {**content, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def _write(path: Path, writer: Writer) -> dict[str, Any]:
    """Write a file; return its size and checksum."""
    with atomic_path(path) as temporary:
        writer(temporary)
        return {"bytes": temporary.stat().st_size, "sha256": _digest(temporary)}


def _write_text(path: Path, text: str) -> None:
    path.write_text(text + "\n", encoding="utf-8")


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


class CheckpointError(ExpectedError):
    """A checkpoint cannot be written, read, or used here; the message names it and says why."""


class EarlierCheckpointsError(ExpectedError):
    """A directory holds checkpoints that a run would have to go on from, or to delete."""


def refusal(directory: Path, round_: int) -> str:
    """Return what to do about the checkpoints of an earlier run.

    Args:
        directory: holds them.
        round_: of the newest one.
    """
    return (
        f"{directory} holds checkpoints of an earlier run (round {round_}): go on with --resume, delete them with "
        "--overwrite, or choose another directory"
    )


def refuse_earlier(directory: Path, workers: int) -> None:
    """Refuse to begin where one of so many workers would, before anything is touched.

    Raises:
        EarlierCheckpointsError: one of them has written a part of a checkpoint there.
    """
    rounds = [round_ for rank in range(workers) for round_ in CheckpointStore(directory, rank).rounds()]
    if rounds:
        raise EarlierCheckpointsError(refusal(directory, max(rounds)))
