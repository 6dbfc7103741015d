"""A worker that sends another process a signal right before its first call of some function.

Usage: python fatal_worker.py MODULE:FUNCTION SIGNAL PID FLAGS…
"""

import importlib
import os
import sys
from typing import Any

from esync.worker import main


def strike_before(function: str, number: int, victim: int) -> None:
    """Have the victim get that signal when the function is called for the first time."""
    module, _, path = function.partition(":")
    *owners, name = path.split(".")
    owner: Any = importlib.import_module(module)
    for attribute in owners:
        owner = getattr(owner, attribute)
    original = getattr(owner, name)

    def striking(*arguments: Any, **named: Any) -> Any:
        setattr(owner, name, original)
        os.kill(victim, number)
        return original(*arguments, **named)

    setattr(owner, name, striking)


if __name__ == "__main__":
    strike_before(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    sys.exit(main(sys.argv[4:]))
