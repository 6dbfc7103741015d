"""Show the status of a state server's jobs in the terminal: `python -m esync.status`.

    python -m esync.status                        # the server of ESYNC_STATE_SERVER, or here
    python -m esync.status --watch cloud2:10010   # go on until Ctrl-C
    python -m esync.status --job resnet --json    # for programs

MXNet is not needed. Where the state server wants a token, it is read from ESYNC_TOKEN.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from .. import config
from ..runtime import program
from ..runtime.errors import ExpectedError
from .client import Client, UnreachableError
from .view import job_list, job_view

#: Seconds between two queries with --watch.
EVERY = 1.0


def parse_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line; exit with code 2 on bad usage."""
    parser = argparse.ArgumentParser(
        prog=program.name("python -m esync.status"),
        description="What a state server knows of its jobs.",
        allow_abbrev=False,
    )
    default = os.environ.get("ESYNC_STATE_SERVER") or f"{config.STATE_SERVER_HOST}:{config.STATE_SERVER_PORT}"
    parser.add_argument("address", nargs="?", metavar="HOST:PORT", default=default, help="(default: %(default)s)")
    parser.add_argument("--job", metavar="NAME", help="show this job (default: those that are running)")
    parser.add_argument("--watch", action="store_true", help="go on showing it, until Ctrl-C")
    parser.add_argument("--json", action="store_true", help="the same for programs: a list of jobs with their workers")
    options = parser.parse_args(words)
    if options.json and options.watch:
        parser.error("--json shows one moment; --watch makes no sense with it")
    return options


def main(words: Sequence[str] | None = None) -> int:
    """Show the status and return the exit code: 0 done, 1 failed, 2 bad usage."""
    options = parse_arguments(words)
    try:
        with Client(options.address) as client:
            if options.watch:
                _watch(client, options.job)
            elif options.json:
                print(json.dumps(client.jobs(options.job), indent=2))
            else:
                Console().print(show(client, options.job))
    except ExpectedError as error:
        print(f"status: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    except BrokenPipeError:  # the reader of the output has ended
        return 1
    return 0


def show(client: Client, name: str | None) -> Group:
    """Return the current status.

    Raises:
        ExpectedError: no server answers, the token is missing, or the job does not exist.
    """
    summaries = client.summaries()
    cluster = client.cluster()
    waiting = [Text(f"the cluster waits for {cluster['missing']}", style="bold red")] if cluster["missing"] else []
    if cluster["advice"]:
        waiting.append(Text(cluster["advice"]))
    if not summaries and name is None and waiting:
        return Group(Text(f"no job yet at {client.address}: no worker has reported"), *waiting)
    if not summaries and name is None:
        return Group(
            Text(f"no job yet at {client.address}: no worker has reported; start programs that know it, for instance"),
            Text(f"    ESYNC_STATE_SERVER={client.address} python train.py …", style="bold"),
            Text(f"    python -m esync.worker -m esync -ip {client.host} -port {client.port} …", style="bold"),
        )
    jobs = client.jobs(name)
    remaining = [summary for summary in summaries if summary["name"] not in {job["name"] for job in jobs}]
    return Group(*waiting, *(job_view(job) for job in jobs), *([job_list(remaining)] if remaining else []))


def _watch(client: Client, name: str | None) -> None:
    """Show the status repeatedly; report a lost connection, and wait for it to return."""
    console = Console()
    shown: Any = show(client, name)  # a failure of the first query is an error
    if not console.is_terminal:
        while True:
            console.print(shown)
            time.sleep(5 * EVERY)
            shown = show(client, name)
    with Live(shown, console=console, auto_refresh=False, screen=False) as live:
        while True:
            time.sleep(EVERY)
            try:
                shown = show(client, name)
                live.update(shown, refresh=True)
            except UnreachableError as error:
                live.update(Group(shown, Text(f"{error}; trying on", style="red")), refresh=True)


if __name__ == "__main__":
    sys.exit(main())
