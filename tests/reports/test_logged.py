"""What programs log, from the round logs to the summary and the curves of report.html."""

import json
from pathlib import Path
from typing import Any

import pytest
from log_trees import esync_round, summarize_logs, write_round, write_run

from esync.reports.comparison import compare_runs
from esync.reports.report_page.build import build_report
from esync.reports.report_page.content import Charts
from esync.reports.rounds import BadRound, read_round
from esync.reports.runs import load_run


def write_logged(folder: Path, **means: Any) -> None:
    """Write a round for each item of the lists; ... stands for a round in which the name is missing."""
    for index, values in enumerate(zip(*means.values(), strict=True)):
        logged = {name: value for name, value in zip(means, values, strict=True) if value is not ...}
        iterations = 3 if folder.name == "gpu0" else 1
        content = esync_round(index + 1, 2.0 * (index + 1), iterations=iterations)
        write_round(folder, index + 1, content | ({"logged": logged} if logged else {}))


def curves(*runs: Path) -> dict[str, list[tuple[list[float], list[float]]]]:
    """Return the curves of each chart over time, by its title."""
    loaded = [load_run(run) for run in runs]
    charts = [
        chart
        for section in build_report(compare_runs(loaded), "today").sections
        for part in section.parts
        if isinstance(part, Charts)
        for chart in part.charts
    ]
    return {chart.title: [(list(one.x), list(one.y)) for one in chart.curves["time"]] for chart in charts}


def test_logged_numbers_of_unequal_workers_are_means_by_samples(tmp_path):
    run = tmp_path / "program/esync"
    write_logged(run / "one/gpu0", loss=[4.0, 2.0, None, 1.0], rate=[0.1, 0.1, 0.1, 0.1])
    write_logged(run / "two/cpu", loss=[8.0, 6.0, 1.0, ...], own=[..., ..., 5.0, ...])
    assert summarize_logs(tmp_path, network="program") == 0
    summary = json.loads((run / "ESync.json").read_text())
    assert summary["one"]["gpu0"]["logged"] == {"loss": [4.0, 2.0, None, 1.0], "rate": [0.1] * 4}
    assert summary["two"]["cpu"]["logged"] == {"loss": [8.0, 6.0, 1.0, None], "own": [None, None, 5.0, None]}
    drawn = curves(run)
    assert drawn["loss"] == [([2.0, 4.0, 8.0], [5.0, 3.0, 1.0])]  # (3·4 + 8) ÷ 4 and so on; no number, no part
    assert drawn["rate"] == [([2.0, 4.0, 6.0, 8.0], [pytest.approx(0.1)] * 4)]
    assert drawn["own"] == [([6.0], [5.0])]
    assert curves(run) == drawn  # from the summary, too


def test_logged_numbers_of_long_runs_are_joined(tmp_path):
    write_logged(tmp_path / "gpu0", loss=[float(number) for number in range(1000)])
    x, y = curves(tmp_path / "gpu0")["loss"][0]
    assert len(x) == 112  # of nine rounds each
    assert (x[0], y[0], x[-1], y[-1]) == (18.0, 4.0, 2000.0, 999.0)


def test_reports_compare_runs_that_log_different_names_or_nothing(tmp_path):
    write_logged(tmp_path / "first/gpu0", loss=[3.0, 2.0])
    write_logged(tmp_path / "second/gpu0", other=[0.0, -1.0])
    write_run(tmp_path / "lenet/esync", {"one/gpu0": 1.0}, 10.0)
    drawn = curves(tmp_path / "first/gpu0", tmp_path / "second/gpu0", tmp_path / "lenet/esync")
    assert [drawn[name] for name in ("loss", "other")] == [[([2.0, 4.0], [3.0, 2.0])], [([2.0, 4.0], [0.0, -1.0])]]


@pytest.mark.parametrize("logged", [[1.0], {"loss": "low"}, {"loss": [0.5]}, 3])
def test_logged_numbers_that_are_none_are_named(tmp_path, logged):
    path = write_round(tmp_path, 1, esync_round(1, 2.0) | {"logged": logged})
    with pytest.raises(BadRound, match=r"^logged.*: Input should be "):
        read_round(path, 1)
    write_round(tmp_path, 1, json.dumps(esync_round(1, 2.0) | {"logged": {"loss": float("inf")}}))
    assert read_round(path, 1).logged == {"loss": None}
