"""One download over HTTP(S): the bytes of a URL as they arrive, with a progress bar and plain errors."""

import http.client
import urllib.error
import urllib.request
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from .cifar import Archive
from .errors import DataError
from .registry import AnyFile

CHUNK = 1 << 16  # bytes handed on at a time, at most


def download(url: str, file: AnyFile | Archive, timeout: float, console: Console) -> Iterator[bytes]:
    """Yield the bytes of a compressed file; `timeout` is in seconds without a byte.

    Raises:
        DataError: the server cannot be reached, stalls, answers with an error status, closes the connection early, or
            sends more than a compressed file of this content can have.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    try:
        with (
            urllib.request.urlopen(url, timeout=timeout) as response,
            Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress,
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
