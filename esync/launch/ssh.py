"""Command lines for the system's ssh, or Slurm's srun: how to reach a host, and what its shell runs.

Environment variables are not part of a command line: they are the first lines of standard input
(see `first_lines`), so that no list of processes shows them on either machine.
"""

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from .. import config
from ..version import __version__
from . import slurm
from .heartbeat_pipe import NO_CONNECTION as NO_CONNECTION
from .hosts import Host

#: Options of every connection, which override the user's configuration: no shared master connection
#: that may outlive it, no questions to the user, keep-alive messages that detect a dead network, and
#: the given command with its standard input.
OPTIONS = {
    "IgnoreUnknown": "*",  # by versions before OpenSSH 8.7, of the last three
    "BatchMode": "yes",
    "ConnectTimeout": f"{config.SSH_CONNECT_TIMEOUT:.0f}",
    "ServerAliveInterval": f"{config.SSH_ALIVE_INTERVAL:.0f}",
    "ServerAliveCountMax": str(config.SSH_ALIVE_COUNT),
    "ControlMaster": "no",
    "ControlPath": "none",
    "ClearAllForwardings": "yes",
    "PermitLocalCommand": "no",
    "RemoteCommand": "none",
    "LogLevel": "ERROR",
    "StdinNull": "no",
    "SessionType": "default",
    "ForkAfterAuthentication": "no",
}
#: Variables of the launcher that are passed to all hosts.
COMMON_VARIABLES = re.compile(r"(ESYNC|MXNET|PS)_[A-Z0-9_]+")
#: Variables that are passed on, but never printed.
SECRETS = {"ESYNC_TOKEN"}

#: Exit codes of the commands below if they fail before the module has begun.
NO_FOLDER, NO_PYTHON, WRONG_PYTHON, NO_PACKAGE, WRONG_VERSION = range(121, 126)

# Any version of Python must be able to run this. It has no "!", which csh would expand.
_BOOT = f"""import sys
if not (3, 10) <= sys.version_info[:2] <= (3, 13):
    print("%d.%d" % sys.version_info[:2])
    sys.exit({WRONG_PYTHON})
import os
if sys.path[0] == "":  # as `python -m`: this package sees to it then that Python's own modules go first
    sys.argv[0], sys.path[0] = "-m", os.getcwd()
try:
    import esync
except ImportError as error:
    print(error)
    sys.exit({NO_PACKAGE})
if not esync.__version__ == sys.argv[1]:
    print(esync.__version__)
    sys.exit({WRONG_VERSION})
import runpy
runpy.run_module(sys.argv[2], run_name="__main__")
"""


def login(host: Host, *more: str, options: Mapping[str, str] = OPTIONS) -> list[str]:
    """Return ssh and its options, up to the command."""
    entry = host.entry
    words = ["ssh", *more]
    if entry.port:
        words += ["-p", str(entry.port)]
    if entry.key:
        words += ["-i", os.path.expanduser(entry.key), "-o", "IdentitiesOnly=yes"]
    words += entry.ssh_options  # before OPTIONS: ssh takes the first value of an option
    for name, value in options.items():
        words += ["-o", f"{name}={value}"]
    return [*words, f"{entry.user}@{host.address}" if entry.user else host.address]


def start_module(host: Host, module: str) -> list[str]:
    """Return the command that runs a module of this package on a host.

    Its standard input must begin with `first_lines`.
    """
    python = _path(python_of(host))
    script = (
        'while IFS= read -r line && [ -n "$line" ]; do export "$line"; done; '
        f"cd -- {_folder(host)} 2>/dev/null || exit {NO_FOLDER}; "
        f"command -v {python} >/dev/null 2>&1 || exit {NO_PYTHON}; "
        f"exec {python} -c {shlex.quote(f'exec({_BOOT!r})')} {__version__} {module}"  # in one line, because of csh
    )
    return _in_shell(host, script, "-T")


def first_lines(host: Host, environment: Mapping[str, str]) -> bytes:
    """Return the environment of a process on a host, in the form that `start_module` reads."""
    inherited = {name: value for name, value in os.environ.items() if COMMON_VARIABLES.fullmatch(name)}
    variables = {**inherited, **host.entry.env, **environment}
    lines = [f"{name}={value}\n" for name, value in variables.items() if "\n" not in value]
    return os.fsencode("".join([*lines, "\n"]))


def pasteable(host: Host, environment: Mapping[str, str], command: Sequence[str]) -> str:
    """Return a line for a local shell that runs a command on a host, and ends it when ssh ends."""
    line = f"cd -- {_folder(host)} && {shell(environment, command, _path(command[0]))}"
    return shlex.join(_in_shell(host, line, "-t"))


def _in_shell(host: Host, script: str, *more: str) -> list[str]:
    """Return the command that lets a shell on a host run a script; `more` are options for ssh only."""
    if host.entry.srun is not None:
        return slurm.step(host.name, host.entry.srun, "sh", "-c", script)
    return [*login(host, *more), f"exec sh -c {shlex.quote(script)}"]


def shell(environment: Mapping[str, str], command: Sequence[str], program: str = "") -> str:
    """Return a command as a line for a shell, without the secrets among its variables.

    `program` replaces the first word of the command, already quoted for that shell.
    """
    variables = [f"{name}={shlex.quote(value)}" for name, value in environment.items() if name not in SECRETS]
    return " ".join([*variables, program or shlex.quote(command[0]), *map(shlex.quote, command[1:])])


def python_of(host: Host) -> str:
    """Return the interpreter of a host that is reached by ssh or srun."""
    return host.entry.python or "python3"


def missing_key(host: Host) -> str:
    """Return an error message if the host's key file does not exist, otherwise "".

    ssh would try other keys instead.
    """
    key = host.entry.key
    if key and not Path(key).expanduser().is_file():
        return f"host {host.name}: there is no key file {key} on this machine; correct hosts.{host.name}.key"
    return ""


def _folder(host: Host) -> str:
    """Return the working directory for a shell, which starts in the home directory.

    A quoted ~ would not be expanded.
    """
    folder = host.entry.workdir or "."
    if folder in ("~", "~/"):
        return "."
    return _path(folder.removeprefix("~/"))


def _path(path: str) -> str:
    """Return a path quoted for a shell, which still expands a leading `~`."""
    home, rest = re.fullmatch(r"(~[\w.-]*/?)?(.*)", path, re.DOTALL).groups()  # type: ignore[union-attr]
    return f"{home or ''}{shlex.quote(rest) if rest or not home else ''}"
