"""A file of a data set, with the size and the digest of its content."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from .errors import DataError, unreadable
from .idx import decompress


@dataclass(frozen=True)
class DataFile:
    """A file of a data set.

    Size and digest are those of the *decompressed* content of a gzip-compressed file: Linux distributions
    recompress the files, so that checksums of the compressed bytes differ.

    Attributes:
        name: its name; a gzip-compressed file ends with .gz.
        size: size of the content in bytes.
        digest: SHA-256 of the content, or SHA-1 where it has 40 digits.
    """

    name: str
    size: int
    digest: str

    def fault(self, path: Path) -> str:
        """Return the problem of the content of the file at this path; "" for none."""
        try:
            content = decompress(path, limit=self.size) if self.name.endswith(".gz") else path.read_bytes()
        except DataError as error:
            return error.wrong
        except OSError as error:
            return unreadable(error)
        if len(content) != self.size:
            return f"content of {'more' if len(content) > self.size else 'less'} than {self.size} bytes"
        kind = "SHA-1" if len(self.digest) == 40 else "SHA-256"
        digest = hashlib.new(kind.replace("-", ""), content).hexdigest()
        return "" if digest == self.digest else f"content with {kind} {digest} instead of {self.digest}"
