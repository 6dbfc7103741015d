"""Commands and environment variables that the processes of a job have in common."""

import sys
from collections.abc import Iterable, Mapping

from ..runtime.files import expanded
from ..runtime.progress import VARIABLE as PROGRESS_VARIABLE
from . import ssh
from .hosts import Host
from .spec import ProcessSpec

#: Variables of every process: its output is not buffered, and is encoded as launch reads it, whatever
#: the locale of its host is.
COMMON = {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8:backslashreplace"}


def python(host: Host) -> str:
    """Return the Python interpreter of a host."""
    if not host.local:
        return ssh.python_of(host)
    return str(expanded(host.entry.python)) if host.entry.python else sys.executable


def module_command(host: Host, module: str, words: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the command that runs a module of this package on a host."""
    return (python(host), "-m", module, *words)


def environment(host: Host, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a process; those of the host's description take precedence."""
    return {**variables, **COMMON, **host.entry.env}


def measuring_process(name: str, role: str, host: Host, module: str, words: Iterable[str] = ()) -> ProcessSpec:
    """Return a process that runs a module of this package on a host, and reports what it measures."""
    variables = environment(host, {PROGRESS_VARIABLE: "json"})
    return ProcessSpec(name, role, host, module_command(host, module, words), variables)
