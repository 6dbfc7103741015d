"""The state server behind a production web server: `python -m esync.state_server --host 0.0.0.0 --port 10010`.

It serves the Django project SimpleStateServer with waitress, in one process. MXNet is not needed. It prints one line
when it listens, and ends on SIGINT or SIGTERM with exit code 0.
"""

import argparse
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any

from . import config


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line; ends the process with code 2 where it makes no sense."""
    parser = argparse.ArgumentParser(prog="python -m esync.state_server", description="The state server of ESync.")
    parser.add_argument(
        "--host",
        default=config.STATE_SERVER_HOST,
        help="address to listen on; 0.0.0.0 for all of this machine's (default: %(default)s)",
    )
    parser.add_argument(
        "--port",
        type=_port,
        default=int(config.STATE_SERVER_PORT),
        help="port to listen on; 0 takes a free one and prints it (default: %(default)s)",
    )
    return parser.parse_args(argv)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port number between 0 and 65535")
    return int(text)


def create_server(host: str, port: int) -> Any:
    """Return a waitress server that listens. Raises OSError where it cannot."""
    import waitress

    from SimpleStateServer.wsgi import application

    socket.getaddrinfo(host, port)  # an unknown name is told as such; waitress would raise a bare ValueError
    return waitress.create_server(
        application,
        host=host,
        port=port,
        threads=config.STATE_SERVER_THREADS,
        connection_limit=config.STATE_SERVER_CONNECTIONS,
        asyncore_use_poll=True,  # select() ends at 1024 files
        # A second line of defence; Django refuses smaller bodies already, and says so in JSON.
        max_request_body_size=64 * config.STATE_SERVER_MAX_BODY,
        log_socket_errors=False,  # a worker that dies is no error of this server
        ident="esync",
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until a signal comes. Returns the exit code."""
    arguments = parse_arguments(argv)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    sys.setswitchinterval(config.STATE_SERVER_SWITCH_INTERVAL)
    try:
        server = create_server(arguments.host, arguments.port)
    except OSError as error:
        reason = error.strerror or error
        print(f"the state server cannot listen on {arguments.host}:{arguments.port}: {reason}", file=sys.stderr)
        return 1
    for host, port in getattr(server, "effective_listen", None) or [(server.effective_host, server.effective_port)]:
        print(f"listening on http://{f'[{host}]' if ':' in host else host}:{port}", flush=True)
    server.run()  # returns after SystemExit
    return 0


def _stop(signum: int, frame: object) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # once is enough
    raise SystemExit(0)


if __name__ == "__main__":
    sys.exit(main())
