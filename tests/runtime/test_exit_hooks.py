"""How a program has ended, as its hooks see it; each case is a process of its own."""

import signal

import pytest

from esync.runtime.errors import ExpectedError
from esync.runtime.exit_hooks import failure

from ..support import child

#: Says how it has ended, as a worker would tell the others. What was there before says so too.
PROGRAM = """
import os, sys, threading
from esync.runtime.exit_hooks import ExitHooks, failure
before = sys.excepthook
def first(*error):
    print("first hook", flush=True)
    before(*error)
sys.excepthook = first
def ended(error):
    print("ended:", failure(error) or "as planned", flush=True)
    hooks.remove()
originals = sys.excepthook, threading.excepthook, sys.exit, exit, quit
hooks = ExitHooks(ended)
hooks.install()
exec(sys.argv[1])
"""

RUN_BY_THREAD = "each = threading.Thread(target=lambda: 1 / 0); each.start(); each.join()"


@pytest.mark.parametrize(
    ("body", "code", "lines"),
    [
        ("pass", 0, ["ended: as planned"]),
        ("sys.exit()", 0, ["ended: as planned"]),
        ("sys.exit(0)", 0, ["ended: as planned"]),
        ("sys.exit(3)", 3, ["ended: exit code 3"]),
        ("exit(3)", 3, ["ended: exit code 3"]),
        ("sys.exit('the disk is full')", 1, ["ended: the disk is full"]),
        ("raise ValueError('no such file')", 1, ["first hook", "ended: ValueError: no such file"]),
        ("raise KeyboardInterrupt", -signal.SIGINT, ["first hook", "ended: interrupted (SIGINT)"]),
        ("hooks.remove(); raise ValueError", 1, ["first hook"]),
    ],
)
def test_exit_hooks_report_each_way_in_which_a_program_ends_once(body: str, code: int, lines: list[str]) -> None:
    result = child.run("-c", PROGRAM, body)
    assert (result.returncode, result.stdout.splitlines()) == (code, lines), result.stderr


def test_exit_hooks_report_a_failing_thread_only_if_it_has_installed_them() -> None:
    assert child.run("-c", PROGRAM, RUN_BY_THREAD).stdout == "ended: as planned\n"
    program = PROGRAM.replace("hooks.install()", "").replace("exec(sys.argv[1])", "")
    program += "each = threading.Thread(target=lambda: hooks.install() or 1 / 0); each.start(); each.join()"
    assert child.run("-c", program).stdout == "ended: ZeroDivisionError: division by zero\n"


@pytest.mark.parametrize("body", ["sys.exit(3)", "raise ValueError", "pass"])
def test_exit_hooks_in_a_forked_process_report_nothing(body: str) -> None:
    fork = f"process = os.fork()\nif process:\n os.wait()\nelse:\n {body}"
    lines = child.run("-c", PROGRAM, fork).stdout.splitlines()
    assert [line for line in lines if line != "first hook"] == ["ended: as planned"]


@pytest.mark.parametrize("prompt", [["-i"], []])
@pytest.mark.parametrize("body", ["raise ValueError", "sys.exit(3)"])
def test_exit_hooks_at_a_prompt_report_no_failing_statement(prompt: list[str], body: str) -> None:
    """A notebook calls no hook when a cell fails; it keeps the code of an exit for itself."""
    typed = f"sys.ps1 = '> '\ntry: {body}\nexcept BaseException as error: sys.excepthook(None, error, None)"
    result = child.run(*prompt, "-c", PROGRAM, body if prompt else typed)
    assert "ended: as planned" in result.stdout.splitlines()


def test_exit_hooks_when_removed_restore_what_was_there_before() -> None:
    again = "hooks.remove(); print(originals == (sys.excepthook, threading.excepthook, sys.exit, exit, quit))"
    assert child.run("-c", PROGRAM, again).stdout == "True\n"


def test_exit_hooks_when_removed_keep_a_later_hook() -> None:
    later = (
        "ours = sys.excepthook\n"
        "def last(*error):\n print('last hook', flush=True)\n ours(*error)\n"
        "sys.excepthook = last\nhooks.remove()\nraise ValueError"
    )
    assert child.run("-c", PROGRAM, later).stdout.splitlines() == ["last hook", "first hook"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (None, ""),
        (GeneratorExit(), ""),
        (SystemExit(), ""),
        (SystemExit(False), ""),
        (SystemExit(True), "exit code 1"),
        (ValueError(), "ValueError"),
        (KeyError("loss"), "KeyError: 'loss'"),
        (ExpectedError("no data set"), "no data set"),
        (ExpectedError(), "ExpectedError"),
        (RuntimeError("\nfirst line\nsecond line"), "RuntimeError: first line"),
        (
            RuntimeError('Traceback (most recent call last):\n  File "../x.cc"\nRuntimeError: shapes differ\n'),
            "RuntimeError: shapes differ",
        ),
    ],
)
def test_failure_gives_the_reason_in_one_line(error: BaseException | None, reason: str) -> None:
    assert failure(error) == reason
