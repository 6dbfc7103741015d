"""Child processes that never outlive their parent, whatever happens to it.

As a program, `python parenthood.py PARENT COMMAND …` runs any command that way.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Have the kernel end this process when its parent ends (Linux); ends it at once where that has happened already.

    Args:
        parent: the process id of the parent that started us, as the parent knows it.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)


def tied(command: Sequence[str]) -> list[str]:
    """A command that runs `command` in the same process, tied to the process that calls this.

    It starts this file by its path, so that neither the package nor site-packages is imported on the way.
    """
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def main(parent: str, *command: str) -> int:
    """Become `command`; what the kernel was told stays."""
    die_with_parent(int(parent))
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"cannot start {command[0]}: {error.strerror}", file=sys.stderr)
    return 127


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
