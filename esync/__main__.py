"""The command `esync`: `esync launch FILE` runs what `python -m esync.launch FILE` runs.

The module of a subcommand is imported when that subcommand is asked for, so that only what trains
needs MXNet.
"""

import runpy
import sys

from .runtime.errors import suggestion
from .runtime.output import write_line
from .runtime.program import COMMAND
from .version import __version__

#: Subcommand → its module, and what it does.
SUBCOMMANDS = {
    "init": ("esync.starter", "write a cluster description and a program to start from"),
    "doctor": ("esync.diagnosis", "check this machine, and the hosts of a description"),
    "launch": ("esync.launch", "start a whole cluster from a description, and end it"),
    "plan": ("esync.planning", "predict which mode and flags suit a cluster, and what would make it faster"),
    "simulate": ("esync.simulate", "train on a modelled cluster, in virtual time"),
    "status": ("esync.status", "show what a state server knows of its jobs"),
    "worker": ("esync.worker", "train a network on this device, with the other workers of a cluster"),
    "server": ("esync.server", "run a parameter server"),
    "scheduler": ("esync.scheduler", "run the scheduler, which brings workers and servers together"),
    "state-server": ("esync.state_server", "run the state server, which tells workers when to exchange"),
    "evaluate": ("esync.evaluate", "evaluate a run's checkpoints as they appear"),
    "data": ("esync.data", "fetch a data set, or check one"),
    "summarize": ("esync.reports.summarize", "summarize the logs of each mode in one file"),
    "report": ("esync.reports.report", "write report.html: one file that shows a run, or compares runs"),
    "plot": ("esync.reports.plot", "draw the figures and the speedup table from the summaries"),
    "compare": ("esync.reports.compare", "compare runs, with intervals over seeds: which was better?"),
    "sync-switch": ("esync.sync_switch", "search for the best moment to switch from synchronous to asynchronous"),
    "sync-switch-report": ("esync.reports.sync_switch_report", "compare the accuracy and time of Sync-Switch runs"),
    "completion": ("esync.completion", "print what completes commands and flags in bash, zsh or fish"),
}


def usage() -> str:
    """Return what `esync --help` prints."""
    width = max(map(len, SUBCOMMANDS))
    lines = [f"  {name:<{width}}  {summary}" for name, (_, summary) in SUBCOMMANDS.items()]
    return "\n".join(
        [
            f"usage: {COMMAND} SUBCOMMAND …",
            f"       {COMMAND} SUBCOMMAND --help",
            f"       {COMMAND} --version",
            "",
            "Gluon training on clusters of unequal devices.",
            "",
            "subcommands:",
            *lines,
        ]
    )


def main() -> int:
    """Run the subcommand that the command line names.

    Returns:
        The subcommand's exit code, or 2 for bad usage.
    """
    first, *words = sys.argv[1:] or [""]
    if first in ("-h", "--help"):
        write_line(usage(), sys.stdout)
        return 0
    if first == "--version":
        write_line(f"{COMMAND} {__version__}", sys.stdout)
        return 0
    if first not in SUBCOMMANDS:
        print(usage() if not first else _refusal(first), file=sys.stderr)
        return 2
    sys.argv = [f"{COMMAND} {first}", *words]
    try:
        runpy.run_module(SUBCOMMANDS[first][0], run_name="__main__")
    except BrokenPipeError:  # whoever read the output has gone
        return 1
    return 0


def _refusal(word: str) -> str:
    """Return the message for a subcommand that does not exist."""
    hint = suggestion(word, SUBCOMMANDS, limit=1)
    return f"{COMMAND}: error: there is no subcommand {word!r}{hint}; choose one of {', '.join(SUBCOMMANDS)}"


if __name__ == "__main__":
    sys.exit(main())
