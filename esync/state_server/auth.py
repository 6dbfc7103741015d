"""The token that callers must send, and the addresses at which a server may listen without one."""

import os
import re
import socket
from ipaddress import ip_address

from ..runtime.errors import ExpectedError

VARIABLE = "ESYNC_TOKEN"
_TOKEN = re.compile(r"[!-~]{8,200}")


class TokenRequiredError(ExpectedError):
    """Raised when a server without a token would accept calls from other machines."""


def check_token(host: str, insecure: bool) -> None:
    """Check that a token is set if one is needed.

    Args:
        host: address to listen on.
        insecure: whether a token is not needed at any address.

    Raises:
        TokenRequiredError: a token is needed, but ESYNC_TOKEN is not set or has a wrong form.
    """
    token = os.environ.get(VARIABLE, "")
    if token and not _TOKEN.fullmatch(token):
        raise TokenRequiredError(f"{VARIABLE} should be 8 to 200 printable ASCII characters without blanks")
    if not token and not insecure and not is_loopback(host):
        raise TokenRequiredError(
            f"listening on {host} lets other machines in: set {VARIABLE} to a secret that the workers get as well, for "
            f"instance export {VARIABLE}=\"$(python -c 'import secrets; print(secrets.token_urlsafe(24))')\", or let "
            "everybody in with --insecure"
        )


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server that listens on this address or name."""
    try:
        addresses = socket.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        return True  # an unknown name; listening fails with an error message
    return all(ip_address(str(entry[4][0]).partition("%")[0]).is_loopback for entry in addresses)
