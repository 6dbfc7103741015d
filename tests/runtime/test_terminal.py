import io

import pytest
from rich.console import Console
from rich.text import Text

from esync.runtime.terminal import NOT_KNOWN, TerminalTable, clock, markdown, number, right


def shown(table: TerminalTable, terminal: bool = False) -> str:
    out = io.StringIO()
    Console(file=out, width=60, force_terminal=terminal, color_system="standard" if terminal else None).print(table)
    return out.getvalue()


def test_texts_are_no_markup():
    table = TerminalTable("name", right("count"))
    table.add("[red]mine[/red]", "12")
    assert "[red]mine[/red]" in shown(table)


def test_figures_are_on_the_right_and_wide_characters_take_two_places():
    table = TerminalTable("name", right("count"), title="above", footer=True)
    table.add("訓練", "1")
    table.add("abcd", "100")
    title, *lines = [line for line in shown(table).splitlines() if line.strip()]
    assert title.strip() == "above"
    wide, narrow = (line for line in lines if line.rstrip().endswith(("1", "100")))
    assert narrow.index("100") + 2 == wide.index("1") + len("訓練")  # each of them is two places wide


def test_colours_are_for_terminals_only():
    table = TerminalTable("name", "state")
    table.add("mine", Text("failed", "red"), style="bold")
    assert "\x1b[" in shown(table, terminal=True)
    assert "\x1b[" not in shown(table)


def test_markdown_is_padded_at_its_natural_width_and_bars_in_cells_are_escaped():
    lines = markdown(["name", right("count")], [["a|b", "1"], ["[x]" * 60, "100"]]).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[2].startswith(r"| a\|b ")
    assert lines[2].endswith("|     1 |")
    assert "[x]" * 60 in lines[3]


@pytest.mark.parametrize(("value", "text"), [(None, NOT_KNOWN), (0.5, "0.500")])
def test_figures_that_nobody_knows(value, text):
    assert number(value, ".3f") == text


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (65.9, "1:05"), (3725, "62:05")])
def test_the_clock(seconds, text):
    assert clock(seconds) == text
