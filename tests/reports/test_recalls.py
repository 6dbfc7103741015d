"""Recall by class, from the round logs to the summary, report.html, comparisons and TensorBoard."""

from pathlib import Path

import pytest
from log_trees import sync_round, write_round

from esync.reports.comparison import compare
from esync.reports.comparison_text import comparison_text
from esync.reports.report_page.build import build_report
from esync.reports.report_page.page import report_html
from esync.reports.summary_file import load_summary


def write(base: Path, name: str, last: float, rounds: int = 20) -> Path:
    """Write a run that evaluates every second round; class 2 has no recall at first."""
    run = base / f"lenet/sync@{name}"
    for number in range(1, rounds + 1):
        entry = sync_round(number, 10.0 * number, accuracy=0.5 if number % 2 == 0 else None)
        if number % 2 == 0:
            parts = {"recall/1": 0.9, "loss": 2.0, **({"recall/2": last} if number > 2 else {"recall/2": None})}
            entry["parts"] = parts if last >= 0 else {}
        write_round(run / "host/cpu", number, entry)
    return run


def test_recalls_are_in_summary_tables_and_report(tmp_path):
    runs = [write(tmp_path, "one", 0.25), write(tmp_path, "two", 0.75)]
    comparison = compare(runs)
    for _ in range(2):  # from the rounds, then from the summary
        device = load_summary(runs[0] / "Sync.json")["host"]["cpu"]
        assert device.parts == {"recall/1": [0.9] * 10, "loss": [2.0] * 10, "recall/2": [None] + [0.25] * 9}
        text = comparison_text(compare([f"{run.name[5:]}={run}" for run in runs]))
        assert "| min recall | mean recall |" in text
        assert "|     0.2500 |      0.5750 |" in text
    one, two = comparison.rows()
    assert (one["min_recall"], one["mean_recall"], two["mean_recall"]) == (0.25, 0.575, pytest.approx(0.825))
    evaluations = comparison.evaluation_rows()
    assert (evaluations[0]["part_recall/2"], evaluations[1]["part_recall/2"]) == (None, 0.25)
    page = report_html(build_report(compare(runs[:1]), "today"))
    assert "Evaluations in detail" in page
    row = page.partition('<th scope="row">recall/2</th>')[2].partition("</tr>")[0]
    assert row.count('<td class="number shade-1">0.25</td>') == 9  # eight of ten evaluations, and the highest
    assert "8 of 10 evaluations are shown." in page
    assert '<td class="number">2</td>' in page  # the loss, which has no colour


def test_comparison_with_a_run_without_recalls_has_no_column_of_them(tmp_path):
    runs = [write(tmp_path, "one", 0.25), write(tmp_path, "none", -1.0)]
    assert "recall" not in comparison_text(compare(runs))
    assert "recall" not in report_html(build_report(compare(runs[1:]), "today"))
