"""Requests as their handlers see them, and the fields of forms.

Text is turned into numbers here. The coordinator checks whether they make sense.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from ..coordination.coordinator import InvalidError

JSON = "application/json"


@dataclass(slots=True)
class Call:
    """A request that has been read.

    Attributes:
        arrived: when it arrived, in seconds of this process's monotonic clock.
        body: its body, at most config.STATE_SERVER_MAX_BODY bytes.
        headers: its headers, by lower-case names.
        job: the job's name in the path; "" if the path has none.
        query: the query string, without the question mark.
    """

    arrived: float
    body: bytes
    headers: Mapping[bytes, bytes] = field(default_factory=dict)
    job: str = ""
    query: str = ""

    def header(self, name: bytes) -> str:
        """Return the text of a header, or "" if it is missing."""
        return self.headers.get(name, b"").decode("latin-1")

    @property
    def content_type(self) -> str:
        """The media type of the body in lower case, without parameters."""
        return self.header(b"content-type").partition(";")[0].strip().lower()

    def option(self, name: str, default: int, least: int, most: int) -> int:
        """Return an integer from the query string.

        Raises:
            InvalidError: it is not an integer, or out of range.
        """
        text = self.text_option(name)
        if not text:
            return default
        if not (text.isascii() and text.isdecimal() and len(text) <= 19 and least <= int(text) <= most):
            raise InvalidError(f"{name} must be a whole number of {least} to {most}, not {text[:40]!r}")
        return int(text)

    def text_option(self, name: str) -> str:
        """Return a text from the query string, or "" if it is missing."""
        try:
            return dict(parse_qsl(self.query, max_num_fields=50)).get(name, "")
        except ValueError as error:
            raise InvalidError(f"the query string cannot be read: {error}") from None


FORM = "application/x-www-form-urlencoded"
_WHOLE = re.compile(r"[0-9]{1,9}")
_TEXT = re.compile(r"[ -~]*")


class FormFields:
    """The fields of a form-encoded POST.

    Each method raises `InvalidError`, which names the field, if the field is malformed, or missing
    and without a default.
    """

    def __init__(self, call: Call) -> None:
        if call.content_type != FORM:
            raise InvalidError(f"send the fields form-encoded (Content-Type: {FORM}), not {call.content_type[:80]!r}")
        try:
            pairs = parse_qsl(call.body.decode(), keep_blank_values=True, max_num_fields=50)
        except ValueError as error:
            raise InvalidError(f"the form cannot be read: {error}") from None
        self._values = dict(pairs)
        if len(self._values) < len(pairs):
            raise InvalidError("a field was given twice")

    def whole(self, name: str, default: int | None = None) -> int:
        """Return an integer, 0 or more, of at most nine digits."""
        if name not in self._values and default is not None:
            return default
        text = self._given(name)
        if not _WHOLE.fullmatch(text):
            raise InvalidError(f"{name} must be a whole number, 0 or more, not {text[:40]!r}")
        return int(text)

    def whole_if_given(self, name: str) -> int | None:
        """Return an integer, or None if the field is missing."""
        return self.whole(name) if name in self._values else None

    def number(self, name: str, default: float | None = None) -> float:
        """Return a number, which may be NaN or infinite."""
        if name not in self._values and default is not None:
            return default
        text = self._given(name)
        try:
            return float(text)
        except ValueError:
            raise InvalidError(f"{name} must be a number, not {text[:40]!r}") from None

    def text(self, name: str, default: str, most: int = 64) -> str:
        """Return a text of at most `most` printable ASCII characters."""
        text = self._values.get(name, default)
        if len(text) > most or not _TEXT.fullmatch(text):
            raise InvalidError(f"{name} must be at most {most} printable ASCII characters, not {text[:80]!r}")
        return text

    def _given(self, name: str) -> str:
        if name not in self._values:
            raise InvalidError(f"the field {name} is missing")
        return self._values[name]
