"""Hooks that go first are called before those that were registered with atexit in between."""

import subprocess
import sys

PROGRAM = """
import atexit
from esync.runtime.exit_hooks import ExitHooks
hooks = ExitHooks(lambda error: print("end of the run"))
hooks.install()
atexit.register(print, "connection closed")
hooks.go_first()
"""


def test_hook_goes_before_those_registered_meanwhile() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], check=True, stdout=subprocess.PIPE, text=True)
    assert run.stdout.split("\n")[:2] == ["end of the run", "connection closed"]
