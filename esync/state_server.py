"""The state server behind a production web server: `python -m esync.state_server --host 0.0.0.0 --port 10010`.

It serves the project SimpleStateServer in one process. MXNet is not needed. It prints one line when it listens, and
ends on SIGINT or SIGTERM with exit code 0. The token that callers must send is read from ESYNC_TOKEN.
"""

import argparse
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from . import config, lossy_output
from .errors import ExpectedError
from .files import expanded
from .liveness.connections import raise_file_limit


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
    parser.add_argument(
        "--state-dir",
        type=expanded,
        default=os.environ.get("ESYNC_STATE_DIR") or None,
        help="folder for what must outlive this process: journals of the jobs, and the history (default: "
        "ESYNC_STATE_DIR, or ~/.local/state/esync/state-server-PORT; with --port 0 one that is removed at the end)",
    )
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="listen on other addresses than this machine's own without a token (ESYNC_TOKEN): everybody who reaches "
        "the port can disturb the training; workers of the published code need this",
    )
    parser.add_argument("--certfile", type=expanded, help="certificate (PEM): speak TLS")
    parser.add_argument("--keyfile", type=expanded, help="the certificate's key (PEM), if it is not in the same file")
    arguments = parser.parse_args(argv)
    if arguments.keyfile and not arguments.certfile:
        parser.error("--keyfile needs --certfile")
    return arguments


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port number between 0 and 65535")
    return int(text)


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until a signal comes. Returns the exit code."""
    arguments = parse_arguments(argv)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    sys.setswitchinterval(config.STATE_SERVER_SWITCH_INTERVAL)
    try:
        return _serve(arguments)
    except ModuleNotFoundError as error:
        print(f"the state server needs {error.name}, which is not installed: pip install esync again", file=sys.stderr)
        return 1
    except ExpectedError as error:
        print(error, file=sys.stderr)
        return 1


def _serve(arguments: argparse.Namespace) -> int:
    from SimpleStateServer.server import access

    token = access.token(arguments.host, arguments.insecure)
    from SimpleStateServer.server import service, state_folder, web  # takes a second: what is wrong is told before

    raise_file_limit()
    try:
        sockets = web.listen(arguments.host, arguments.port)
    except OSError as error:
        reason = error.strerror or error
        raise ExpectedError(f"the state server cannot listen on {arguments.host}:{arguments.port}: {reason}") from None
    temporary = None
    if arguments.state_dir is None and arguments.port == 0:
        temporary = tempfile.mkdtemp(prefix="esync-state-server-")
    state_dir = arguments.state_dir or (Path(temporary) if temporary else state_folder.default(arguments.port))
    try:
        running = service.start(state_dir, token)
        try:
            server = web.create(running, sockets, arguments.certfile, arguments.keyfile)
            scheme = "https" if arguments.certfile else "http"
            for one in sockets:
                host, port = one.getsockname()[:2]
                print(f"listening on {scheme}://{f'[{host}]' if ':' in host else host}:{port}", flush=True)
            server.run()
        finally:
            running.close()
    finally:
        for one in sockets:
            one.close()
        if temporary:
            shutil.rmtree(temporary, ignore_errors=True)
    return 0


if __name__ == "__main__":
    lossy_output.install()
    sys.exit(main())
