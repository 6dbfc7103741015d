"""Run the state server in a production web server: `python -m esync.state_server --port 10010`.

It serves the jobs in one process. MXNet is not needed. It prints one line when it listens, and ends
on SIGINT or SIGTERM with exit code 0. The token that callers must send is read from ESYNC_TOKEN.
"""

import argparse
import logging
import os
import sys
from collections.abc import Sequence

from .. import config
from ..runtime import output, program
from ..runtime.errors import ExpectedError
from ..runtime.files import expanded


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line; exit with code 2 on bad usage."""
    parser = argparse.ArgumentParser(
        prog=program.name("python -m esync.state_server"), description="The state server of ESync."
    )
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
    """Serve until a signal comes, and return the exit code."""
    arguments = parse_arguments(argv)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    try:
        _serve(arguments)
    except ExpectedError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # before the web server has taken the signal over
        pass
    return 0


def _serve(arguments: argparse.Namespace) -> None:
    from . import auth

    auth.check_token(arguments.host, arguments.insecure)
    from . import serving  # takes a second, and so comes after the checks

    serving.serve(arguments.host, arguments.port, arguments.state_dir, arguments.certfile, arguments.keyfile)


if __name__ == "__main__":
    output.install()
    sys.exit(main())
