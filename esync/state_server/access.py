"""May this server be started without a token? Only where nobody but this machine reaches it."""

import os
import re
import socket
from ipaddress import ip_address

from ..runtime.errors import ExpectedError

VARIABLE = "ESYNC_TOKEN"
_TOKEN = re.compile(r"[!-~]{8,200}")


class OpenDoorError(ExpectedError):
    """The server would be open to everybody."""


def token(host: str, insecure: bool) -> str:
    """Return the token that callers have to send, "" where none is needed.

    Args:
        host: address to listen on.
        insecure: none is needed anywhere.

    Raises:
        OpenDoorError: one is needed, and ESYNC_TOKEN does not say it.
    """
    given = os.environ.get(VARIABLE, "")
    if given and not _TOKEN.fullmatch(given):
        raise OpenDoorError(f"{VARIABLE} should be 8 to 200 printable ASCII characters without blanks")
    if not given and not insecure and not is_loopback(host):
        raise OpenDoorError(
            f"listening on {host} lets other machines in: set {VARIABLE} to a secret that the workers get as well, for "
            f"instance export {VARIABLE}=\"$(python -c 'import secrets; print(secrets.token_urlsafe(24))')\", or let "
            "everybody in with --insecure"
        )
    return given


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches a server that listens on that address or name."""
    try:
        found = socket.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        return True  # unknown: listening there will fail, and say so
    return all(ip_address(str(entry[4][0]).partition("%")[0]).is_loopback for entry in found)
