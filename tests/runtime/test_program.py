import signal

import pytest

from ..support import child

BEGIN = f"""
import sys, time
from esync.runtime import program
from esync.runtime.errors import ExpectedError
{child.REST}
{child.STUCK}
"""


def body(*lines: str, leave: bool = True) -> str:
    """A program whose body has these lines."""
    call = "program.run('worker', body)"
    return (
        BEGIN
        + "def body(watchdog):\n    "
        + "\n    ".join(lines)
        + f"\n{f'program.exit_now({call})' if leave else call}\n"
    )


def test_program_with_expected_error_prints_one_sentence():
    result = child.run("-c", body("raise ExpectedError('there is no GPU 7')"))
    assert (result.returncode, result.stdout, result.stderr) == (1, "", "worker: error: there is no GPU 7\n")


def test_program_with_unexpected_error_prints_a_traceback():
    result = child.run("-c", body("return 1 / 0"))
    assert result.returncode == 1
    assert "Traceback" in result.stderr
    assert "ZeroDivisionError" in result.stderr


def test_program_log_lines_begin_with_its_name():
    result = child.run("-c", body("import logging", "logging.getLogger('esync').info('hello')", "return 0"))
    assert result.stderr.endswith(" worker: hello\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_program_ended_by_signal_prints_one_sentence_and_exits_with_1(number):
    with child.started("-c", body("print('ready', flush=True)", "rest()", "return 0")) as process:
        process.send_signal(number)
        _, errors = process.communicate(timeout=20)
        assert (process.returncode, errors) == (1, f"worker: ended by {number.name}\n")


def test_program_exit_does_not_wait_for_other_threads():
    lines = ("import threading", "threading.Thread(target=stuck).start()", "print('written')", "return 4")
    result = child.run("-c", body(*lines))
    assert (result.returncode, result.stdout) == (4, "written\n")
