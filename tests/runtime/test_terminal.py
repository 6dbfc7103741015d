import errno
import io
import subprocess
import sys
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from esync import config
from esync.launch.description import DescriptionError
from esync.runtime.errors import ExpectedError
from esync.runtime.terminal import UNKNOWN, TerminalTable, clock, markdown, number, print_problems, right, run_command


def shown(table: TerminalTable, terminal: bool = False) -> str:
    out = io.StringIO()
    Console(file=out, width=60, force_terminal=terminal, color_system="standard" if terminal else None).print(table)
    return out.getvalue()


def test_terminal_table_prints_markup_literally():
    table = TerminalTable("name", right("count"))
    table.add("[red]mine[/red]", "12")
    assert "[red]mine[/red]" in shown(table)


def test_terminal_table_aligns_numbers_right_and_counts_wide_characters_twice():
    table = TerminalTable("name", right("count"), title="above", footer=True)
    table.add("訓練", "1")
    table.add("abcd", "100")
    title, *lines = [line for line in shown(table).splitlines() if line.strip()]
    assert title.strip() == "above"
    wide, narrow = (line for line in lines if line.rstrip().endswith(("1", "100")))
    assert narrow.index("100") + 2 == wide.index("1") + len("訓練")  # each of them is two places wide


def test_terminal_table_is_coloured_on_terminals_only():
    table = TerminalTable("name", "state")
    table.add("mine", Text("failed", "red"), style="bold")
    assert "\x1b[" in shown(table, terminal=True)
    assert "\x1b[" not in shown(table)


def test_markdown_table_is_padded_and_escapes_bars():
    lines = markdown(["name", right("count")], [["a|b", "1"], ["[x]" * 60, "100"]]).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[2].startswith(r"| a\|b ")
    assert lines[2].endswith("|     1 |")
    assert "[x]" * 60 in lines[3]


@pytest.mark.parametrize(("value", "text"), [(None, UNKNOWN), (0.5, "0.500")])
def test_number_that_is_unknown_is_shown_as_such(value, text):
    assert number(value, ".3f") == text


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (65.9, "1:05"), (3725, "62:05")])
def test_clock_shows_minutes_and_seconds(seconds, text):
    assert clock(seconds) == text


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ExpectedError("no such thing"), 1, "no such thing"),
        (DescriptionError("no such key"), 2, "no such key"),
        (OSError(errno.ENOSPC, "No space left on device", "figures.json"), 1, "figures.json: No space left on device"),
        (OSError("no name"), 1, "failed: no name"),
        (KeyboardInterrupt(), 1, "interrupted"),
    ],
)
def test_run_command_prints_an_expected_error_as_one_line(error: BaseException, code: int, message: str) -> None:
    def command() -> int:
        raise error

    printed: list[str] = []
    assert run_command(command, printed.append) == code
    assert printed == [message]


def test_run_command_returns_the_exit_code_and_lets_unexpected_errors_through(capsys: Any) -> None:
    assert run_command(lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        run_command(lambda: 1 // 0)
    assert not capsys.readouterr().err


def test_run_command_says_nothing_when_nobody_reads_the_output() -> None:
    program = "import sys; from esync.runtime.terminal import run_command; "
    program += "sys.exit(run_command(lambda: print('x' * 100_000, flush=True) or 0))"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 1


def test_print_problems_prints_the_first_ones_and_how_many_more_there_are(capsys):
    print_problems([f"problem {number}" for number in range(config.SKIPPED_SHOWN + 2)], "esync compare --json FILE")
    *first, last = capsys.readouterr().err.splitlines()
    assert first == [f"problem {number}" for number in range(config.SKIPPED_SHOWN)]
    assert last == "… and 2 more; esync compare --json FILE lists all of them"
    print_problems(["one"])
    assert capsys.readouterr().err == "one\n"
