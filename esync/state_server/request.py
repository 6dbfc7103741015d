"""One request as those who answer it see it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from ..coordination.errors import InvalidError

JSON = "application/json"


@dataclass(slots=True)
class Call:
    """A request that has been read.

    Attributes:
        arrived: seconds of this process's monotonic clock.
        body: at most config.STATE_SERVER_MAX_BODY bytes.
        headers: by lower-case names.
        job: the name in the path; "" where the path has none.
        query: what stands behind the question mark.
    """

    arrived: float
    body: bytes
    headers: Mapping[bytes, bytes] = field(default_factory=dict)
    job: str = ""
    query: str = ""

    def header(self, name: bytes) -> str:
        """Return a header's text, or ""."""
        return self.headers.get(name, b"").decode("latin-1")

    @property
    def content_type(self) -> str:
        """The kind of body, without parameters, in lower case."""
        return self.header(b"content-type").partition(";")[0].strip().lower()

    def option(self, name: str, default: int, least: int, most: int) -> int:
        """Return a whole number behind the question mark. Raises `InvalidError` where it is none, or out of range."""
        text = self.text_option(name)
        if not text:
            return default
        if not (text.isascii() and text.isdecimal() and len(text) <= 19 and least <= int(text) <= most):
            raise InvalidError(f"{name} must be a whole number of {least} to {most}, not {text[:40]!r}")
        return int(text)

    def text_option(self, name: str) -> str:
        """Return a text behind the question mark, or ""."""
        try:
            return dict(parse_qsl(self.query, max_num_fields=50)).get(name, "")
        except ValueError as error:
            raise InvalidError(f"what stands behind the question mark cannot be read: {error}") from None
