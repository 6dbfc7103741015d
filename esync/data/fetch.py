"""Fetch a data set's files, from Debian's package or by download.

A file is written under a temporary name, its decompressed content is compared with the registry's
checksum, and then it is renamed. An incomplete file therefore never looks complete, and after an
interruption the next fetch continues with the missing files.
"""

import contextlib
import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from esync import config

from ..runtime.files import atomic_path, flush_folder, leftovers, lock_file
from .cifar import Archive, CifarEntry, members
from .data_file import DataFile
from .debian import unpacked
from .errors import DataError
from .registry import AnyEntry

CONSOLE = Console()  # where progress is shown
CHUNK = 1 << 16  # largest number of bytes to yield at a time


def download(url: str, file: DataFile | Archive, timeout: float) -> Iterator[bytes]:
    """Yield the bytes of a compressed file; `timeout` is in seconds without a byte.

    Raises:
        DataError: the server cannot be reached, stalls, answers with an error status, closes the
            connection early, or sends more bytes than a compressed file of this content can have.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    try:
        with (
            urllib.request.urlopen(url, timeout=timeout) as response,
            Progress(*columns, console=CONSOLE, transient=True, disable=not CONSOLE.is_terminal) as progress,
        ):
            length = response.headers.get("Content-Length", "")
            total = int(length) if length.isdecimal() else None
            task = progress.add_task(file.name, total=total)
            received = 0
            while chunk := response.read1(CHUNK):
                received += len(chunk)
                if received > file.size + CHUNK:
                    raise DataError(url, f"more compressed bytes than the {file.size} of the whole content")
                progress.update(task, completed=received)
                yield chunk
            if total is not None and received < total:
                raise DataError(url, f"the connection closed after {received} of {total} bytes")
    except TimeoutError:
        raise DataError(url, f"no byte for {timeout:g} s") from None
    except urllib.error.HTTPError as error:
        raise DataError(url, f"HTTP status {error.code} {error.reason}") from None
    except urllib.error.URLError as error:
        raise DataError(url, f"cannot be reached ({error.reason})") from None
    except (OSError, http.client.HTTPException) as error:
        raise DataError(url, f"the connection broke ({str(error) or type(error).__name__})") from None


def fetch(
    entry: AnyEntry,
    data_dir: Path,
    *,
    mirrors: Sequence[str] = (),
    timeout: float = config.FETCH_TIMEOUT,
    pause: float = config.FETCH_PAUSE,
) -> Path:
    """Fetch the missing and broken files of a data set into data_dir/NAME; return that folder.

    Args:
        entry: the data set.
        data_dir: directory of all data sets, which is created if it does not exist.
        mirrors: URLs of folders to download from, instead of Debian's package, where there is one
            and apt is installed, and the registry's mirrors.
        timeout: seconds without a byte after which a download is given up.
        pause: seconds before the mirrors are tried again, doubled each time.

    Raises:
        DataError: the files could not be fetched; the message has the reason for each source.
        OSError: the files could not be written.
    """
    folder = data_dir / entry.name
    if not faults(entry, data_dir):
        _print(f"{entry.name}: already in {folder}, and whole")
        return folder
    with _locked_folder(folder):
        missing = faults(entry, data_dir)
        for file, fault in missing.items():
            if (folder / file.name).exists():
                _print(f"{folder / file.name}: {fault}; it will be replaced")
        if missing and entry.debian_package and not mirrors:
            try:
                _from_package(entry.debian_package, missing, folder)
            except DataError as error:
                _print(f"the Debian package cannot be used ({error}); downloading instead")
        places = mirrors or entry.mirrors
        missing = faults(entry, data_dir)
        if isinstance(entry, CifarEntry):
            if missing:
                download = partial(_from_archive, entry, missing, folder, timeout)
                _from_mirrors(places, folder / entry.archive.name, download, pause)
        else:
            for file in missing:
                _from_mirrors(places, folder / file.name, partial(_one_file, file, folder, timeout), pause)
    _print(f"{entry.name}: complete in {folder}, checksums right")
    return folder


def faults(entry: AnyEntry, data_dir: Path) -> dict[DataFile, str]:
    """Return the problem of each missing or incomplete file of a data set."""
    problems = {file: file.fault(data_dir / entry.name / file.name) for file in entry.files}
    return {file: fault for file, fault in problems.items() if fault}


def _from_package(package: str, files: Iterable[DataFile], folder: Path) -> None:
    with CONSOLE.status(f"getting the Debian package {package}"), unpacked(package) as room:
        for file in files:
            path = next(room.rglob(file.name), None)
            if path is None:
                raise DataError(package, f"holds no {file.name}")
            with open(path, "rb") as stored:
                _place(iter(lambda: stored.read(CHUNK), b""), file, folder, origin=f"{package}: {file.name}")
            _print(f"{folder / file.name}: from the Debian package {package}")


def _from_mirrors(mirrors: Sequence[str], target: Path, download: Callable[[str], None], pause: float) -> None:
    """Download from the first working mirror; each of them is tried several times."""
    failures: dict[str, DataError] = {}
    for attempt in range(config.FETCH_ATTEMPTS):
        if attempt:
            time.sleep(pause * 2 ** (attempt - 1))
        for mirror in mirrors:
            url = f"{mirror.rstrip('/')}/{target.name}"
            try:
                download(url)
            except DataError as error:
                failures[url] = error
                _print(f"{error} (try {attempt + 1} of {config.FETCH_ATTEMPTS})")
            else:
                return
    raise DataError(
        target,
        f"could not be downloaded ({'; '.join(map(str, failures.values()))})",
        remedy="Check the network, or name another place with --mirror URL",
    )


def _one_file(file: DataFile, folder: Path, timeout: float, url: str) -> None:
    _place(download(url, file, timeout), file, folder, origin=url)
    _print(f"{folder / file.name}: from {url}")


def _from_archive(entry: CifarEntry, files: Iterable[DataFile], folder: Path, timeout: float, url: str) -> None:
    """Download an archive beside the files, and extract the missing ones."""
    missing = {file.name: file for file in entry.files if file in set(files)}
    temporary = folder / f".{entry.archive.name}"
    try:
        with open(temporary, "wb") as out:
            out.writelines(download(url, entry.archive, timeout))
        for file, content in members(temporary, missing):
            _place([content], file, folder, origin=f"{url}: {file.name}")
            del missing[file.name]
            _print(f"{folder / file.name}: from {url}")
        if missing:
            raise DataError(url, f"holds no {', '.join(missing)}")
    finally:
        temporary.unlink(missing_ok=True)


def _place(chunks: Iterable[bytes], file: DataFile, folder: Path, origin: str) -> None:
    """Write a file under a temporary name, check it, and rename it; remove it on failure."""
    for leftover in leftovers(folder / file.name):  # the caller has locked this folder
        leftover.unlink()
    with atomic_path(folder / file.name) as temporary:
        with open(temporary, "wb") as out:
            out.writelines(chunks)
        if fault := file.fault(temporary):
            raise DataError(origin, fault)
    flush_folder(folder)


@contextlib.contextmanager
def _locked_folder(folder: Path) -> Iterator[None]:
    """Create the folder, and lock it against other fetches until this process ends."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    path, risk = folder.with_name(f".{folder.name}.lock"), f"no other fetch fills {folder}"
    with open(path, "wb") as lock:
        if not lock_file(lock.fileno(), path, risk):
            _print(f"another fetch is filling {folder}: waiting for its end")
            lock_file(lock.fileno(), path, risk, wait=True)
        try:
            folder.mkdir(exist_ok=True)
            yield
        finally:
            with contextlib.suppress(OSError):  # the folder is not empty
                folder.rmdir()


def _print(line: str) -> None:
    CONSOLE.print(line, markup=False, highlight=False, soft_wrap=True)
