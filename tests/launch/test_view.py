"""The launcher's views of a running job."""

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from esync.launch import view
from esync.launch.status_table import JobTotals, WorkerRow, line, table, totals
from esync.launch.view import LineView, QuietView, TableView
from esync.runtime.progress import Progress


def progress(rank: int, **fields: Any) -> Progress:
    values = {"round": 7, "local_iterations": 1, "samples_per_second": 10.0, "wait": 0.5, "elapsed": 65.0}
    return Progress(rank=rank, **{**values, **fields})


ROWS = [
    WorkerRow(
        "worker-0", "cloud1", "cpu", "training", progress(0, local_iterations=9, accuracy=0.71234, accuracy_round=6)
    ),
    WorkerRow(
        "worker-1", "cloud1", "cpu-1", "training", progress(1, round=8, local_iterations=3, samples_per_second=30.5)
    ),
    WorkerRow("worker-2", "cloud2", "cpu", "starting"),
]


def test_totals_add_up_the_rows_and_take_the_newest_accuracy():
    older = WorkerRow("worker-1", "cloud1", "gpu0", "lost", progress(1, accuracy=0.9, accuracy_round=2))
    assert totals([older, *ROWS]) == totals(ROWS) == JobTotals(8, 40.5, 0.71234, 6)
    assert totals([replace(older, state="done"), *ROWS]).accuracy_round == 6
    assert totals(ROWS[2:]) == JobTotals()


def test_line_summarizes_the_job():
    assert line(ROWS, 83.9) == (
        "1:23  workers: 2 training, 1 starting  round 8  40.5 samples/s  local iterations 9 3  accuracy 0.712 (round 6)"
    )
    assert line(ROWS[2:], 0) == "0:00  workers: 1 starting"
    many = [WorkerRow(f"worker-{i}", "a", "cpu", "training", progress(i, local_iterations=i + 1)) for i in range(40)]
    assert "local iterations 1 to 40" in line(many, 0)
    assert "local iterations" not in line(many[:1], 0)  # one each, as in mode sync, says nothing


def test_line_and_table_name_another_metric():
    of_loss = progress(0, accuracy=31.4159, accuracy_round=6, metric="perplexity")
    rows = [WorkerRow("worker-0", "cloud1", "cpu", "training", of_loss), *ROWS[1:]]
    assert line(rows, 0).endswith("  perplexity 31.42 (round 6)")
    assert "perplexity" in drawn(rows)
    assert "31.42 (6)" in drawn(rows)
    assert "accuracy" not in drawn(rows)


def drawn(rows: list[WorkerRow]) -> str:
    console = Console(file=io.StringIO(), width=80)
    console.print(table(rows, 83.9, "lenet, esync"))
    return console.file.getvalue()


def test_table_view_fits_the_terminal():
    text = drawn(ROWS)
    assert "lenet, esync" in text
    rows = {words[1]: " ".join(words) for words in map(str.split, text.splitlines()) if len(words) > 2}
    assert rows["cloud1/cpu"] == "0 cloud1/cpu training 7 9 10.0 0.500 0.712 (6) 1:05"
    assert rows["cloud1/cpu-1"] == "1 cloud1/cpu-1 training 8 3 30.5 0.500 1:05"
    assert rows["workers"] == "3 workers 8 40.5 0.712 (6) 1:23"
    assert any(words == ["cloud2/cpu", "starting"] for words in map(str.split, text.splitlines()))


def test_line_view_prints_at_most_every_few_seconds(capsys, monkeypatch):
    times = iter([100.0, 100.5, 101.5, 103.0, 106.0, 107.0, 108.0])
    monkeypatch.setattr(view.time, "monotonic", lambda: next(times))
    monkeypatch.setattr(view.config, "LAUNCH_LINE_EVERY", 5)
    lines = LineView()
    for rows in (ROWS, ROWS, ROWS, ROWS, ROWS, ROWS[2:]):
        lines.show(rows)
    assert [text.split()[0] for text in capsys.readouterr().out.splitlines()] == ["0:01", "0:07", "0:08"]


def test_table_view_leaves_the_last_state_on_the_terminal(monkeypatch):
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    screen = TableView(console, "title")
    screen.show(ROWS)
    done = [WorkerRow("worker-0", "cloud1", "cpu", "done", progress(0))]
    screen.show(done)  # too soon after the first for a drawing of its own
    screen.print("[a remark]")
    screen.close()
    assert "[a remark]" in console.file.getvalue()
    assert "done" in console.file.getvalue().rpartition("title")[2]


def test_view_with_follow_prints_process_output(capsys):
    view.choose("the title", quiet=False, follow=True).process_line("worker-0", "[so] it goes", "\n")
    assert capsys.readouterr().out == "worker-0 | [so] it goes\n"


@pytest.mark.parametrize(("quiet", "kind"), [(True, QuietView), (False, LineView)])
def test_view_without_terminal_prints_lines_or_nothing(quiet, kind, capsys):
    assert type(view.choose("the title", quiet)) is kind
    assert capsys.readouterr().out == ("" if quiet else "the title\n")
