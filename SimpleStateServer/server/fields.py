"""Reads the form fields of a request. Text becomes numbers here; whether they make sense, the coordinator checks."""

import re
from urllib.parse import parse_qsl

from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, UnreadablePostError

from esync import config
from esync.coordination.coordinator import InvalidError

FORM = "application/x-www-form-urlencoded"
_WHOLE = re.compile(r"[0-9]{1,9}")


class TooLargeError(InvalidError):
    """The body is larger than any honest request."""


class Fields:
    """The fields of one form-encoded POST.

    Each reader raises `InvalidError` naming the field where it is malformed, or missing and without default.
    """

    def __init__(self, request: HttpRequest) -> None:
        if request.content_type != FORM:
            raise InvalidError(
                f"send the fields form-encoded (Content-Type: {FORM}), not {request.content_type[:80]!r}"
            )
        try:
            pairs = parse_qsl(request.body.decode(), keep_blank_values=True, max_num_fields=50)
        except RequestDataTooBig:
            raise TooLargeError(f"the body is larger than {config.STATE_SERVER_MAX_BODY} bytes") from None
        except UnreadablePostError:
            raise InvalidError("the connection ended before the body was complete") from None
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

    def text(self, name: str, default: str) -> str:
        """Return a text."""
        return self._values.get(name, default)

    def _given(self, name: str) -> str:
        if name not in self._values:
            raise InvalidError(f"the field {name} is missing")
        return self._values[name]
