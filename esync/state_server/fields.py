"""Reads the form fields of a request. Text becomes numbers here; whether they make sense, the coordinator checks."""

import re
from urllib.parse import parse_qsl

from ..coordination.errors import InvalidError
from .request import Call

FORM = "application/x-www-form-urlencoded"
_WHOLE = re.compile(r"[0-9]{1,9}")
_TEXT = re.compile(r"[ -~]*")


class Fields:
    """The fields of one form-encoded POST.

    Each reader raises `InvalidError` naming the field where it is malformed, or missing and without default.
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
        """Return a whole number, 0 or more, of at most nine digits."""
        if name not in self._values and default is not None:
            return default
        text = self._given(name)
        if not _WHOLE.fullmatch(text):
            raise InvalidError(f"{name} must be a whole number, 0 or more, not {text[:40]!r}")
        return int(text)

    def whole_if_given(self, name: str) -> int | None:
        """Return a whole number, or None if the field is missing."""
        return self.whole(name) if name in self._values else None

    def number(self, name: str, default: float | None = None) -> float:
        """Return a number (NaN and infinities included)."""
        if name not in self._values and default is not None:
            return default
        text = self._given(name)
        try:
            return float(text)
        except ValueError:
            raise InvalidError(f"{name} must be a number, not {text[:40]!r}") from None

    def text(self, name: str, default: str, most: int = 64) -> str:
        """Return a text of at most that many printable ASCII characters."""
        text = self._values.get(name, default)
        if len(text) > most or not _TEXT.fullmatch(text):
            raise InvalidError(f"{name} must be at most {most} printable ASCII characters, not {text[:80]!r}")
        return text

    def _given(self, name: str) -> str:
        if name not in self._values:
            raise InvalidError(f"the field {name} is missing")
        return self._values[name]
