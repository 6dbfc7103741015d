"""`report.html`: what it shows, that it is one file, and that no text in it does anything."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from statistics import stdev
from typing import Any

import pytest
from log_trees import esync_round, write_round, write_run

from esync.reports import report, summarize
from esync.reports.comparison import Comparison, compare, compare_runs
from esync.reports.job_events import OUTCOME_FILE, events_of
from esync.reports.modes import mode_of
from esync.reports.report_page.build import build_report
from esync.reports.report_page.content import Cell, LineStyle, Report, Section, Table
from esync.reports.report_page.page import content_security_policy, report_html
from esync.reports.report_page.series import Series, mean_series, rate_over_time, thinned
from esync.reports.report_page.timeline import BLOCKS, timelines
from esync.reports.runs import LoggedRun, load_run
from esync.reports.summary_file import DeviceSummary, RunInfo
from esync.runtime.output import printable
from tests.support.json_files import change_json

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>'\"&{{figures}}<!--\u2028"


class Page(HTMLParser):
    """Elements and texts of a page, as a browser sees them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.scripts: list[str] = []
        self.within: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.within.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self.within and self.within.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        inside = self.within[-1] if self.within else ""
        (self.scripts if inside == "script" else self.texts).append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    @property
    def figures(self) -> list[dict[str, Any]]:
        """What the script draws."""
        return json.loads(self.scripts[0])


def device(rounds: int, step: float, wait: float, seed: int = 0, iterations: int = 1) -> DeviceSummary:
    """A device whose rounds are computing, then waiting, then 0.1 s of transfer; every round is evaluated."""
    period = iterations * step + wait + 0.1
    ends = [round((number + 1) * period, 3) for number in range(rounds)]
    values = [0.9 - 0.8 / (1 + 0.05 * number) - 0.0004 * seed for number in range(rounds)]
    return DeviceSummary(
        accuracy_list=values,
        num_samples_list=[64 * iterations] * rounds,
        self_iters_list=[iterations] * rounds,
        elapsed_time_list=[round(end) for end in ends],
        aggregate_time_list=[wait + 0.1] * rounds,
        accuracy_rounds=list(range(1, rounds + 1)),
        accuracy_time_list=ends,
        accuracy_exact_list=values,
        computing_time_list=[iterations * step] * rounds,
        bytes_sent_list=[1000] * rounds,
        bytes_received_list=[1000] * rounds,
        wait_list=[wait] * rounds,
        transfer_list=[0.1] * rounds,
        total_time_list=ends,
        total_time=ends[-1],
        iterations=rounds * iterations,
    )


def logged(seed: int, overlap: bool, rounds: int = 20, devices: int = 2) -> LoggedRun:
    """A run of esync as it would be loaded from its logs."""
    info = RunInfo.model_validate(
        {"seed": seed, "network": "mlp", "options": {"overlap": overlap, "seed": seed}, "mode": "esync"}
    )
    wait = 0.01 * (seed if not overlap else 1)
    columns = {f"gpu{rank}": device(rounds, 0.5, wait, seed) for rank in range(devices)}
    for column in columns.values():
        column.run = info
    return LoggedRun(Path(f"logs/mlp/esync@{'o' * overlap or 'p'}-seed{seed}"), mode_of("esync"), {"one": columns})


def page_of(comparison: Comparison, **options: Any) -> Page:
    return Page(report_html(build_report(comparison, "today", **options)))


def test_page_allows_only_its_own_script_and_style_by_their_digests():
    page = report_html(Report("T", "S", ["V"], [], [], [], "M"))
    parsed = Page(page)
    policy = next(attributes["content"] for tag, attributes in parsed.elements if "http-equiv" in attributes)
    assert policy == content_security_policy()
    assert "default-src 'none'" in policy

    def digest(text: str) -> str:
        return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)[1]
    assert f"script-src 'sha256-{digest(parsed.scripts[1])}'" in policy
    assert f"style-src 'sha256-{digest(style)}'" in policy


def test_page_names_no_other_file():
    parsed = page_of(compare_runs([logged(1, False)]))
    loading = {"src", "href", "srcset", "data", "action", "poster", "background"}
    elements = [(tag, set(attributes) & loading) for tag, attributes in parsed.elements if set(attributes) & loading]
    assert elements == [("a", {"href"})]  # to the main part
    assert not re.search(r"url\(|@import|import\s*\(|fetch\(|XMLHttp|WebSocket|\bexport\b", "".join(parsed.scripts))


def test_page_shows_hostile_texts_as_they_are_and_runs_none():
    run = logged(1, False)
    info = RunInfo.model_validate(
        {"seed": 1, "network": EVIL, "options": {"overlap": EVIL, EVIL: EVIL}, "versions": {EVIL: EVIL}}
    )
    column = run.summary["one"]["gpu0"]
    column.run = info
    hostile = replace(
        run,
        folder=Path(EVIL),
        summary={EVIL: {"gpu0": column}},
        mode=replace(run.mode, method=EVIL),
        problems=(EVIL,),
    )
    other = replace(hostile, folder=Path("b"))
    page = report_html(
        build_report(compare_runs([hostile, other], [EVIL, "b"]), EVIL, {hostile.folder: [(EVIL, EVIL)]})
    )
    parsed = Page(page)
    harmless = Page(report_html(Report("T", "S", ["V"], [], [], [], "M")))
    assert len(parsed.scripts) == len(harmless.scripts) == 2
    assert parsed.scripts[1] == harmless.scripts[1]
    assert not set("<>&") & set(parsed.scripts[0])  # neither an end of the element nor the begin of a comment
    assert sum(tag == "script" for tag, _ in parsed.elements) == 2
    assert not [tag for tag, _ in parsed.elements if tag in ("img", "iframe", "object", "embed")]
    assert not [
        name for _, attributes in parsed.elements for name in attributes if name.startswith("on") or name == "style"
    ]
    assert "alert(1)" in parsed.text
    assert "{{figures}}" in parsed.text  # a text is not taken for a place in the template
    assert any(
        curve["label"] == printable(EVIL)
        for chart in parsed.figures
        if chart["kind"] == "chart"
        for curve in chart["curves"]["time"]
    )
    assert any(
        EVIL in lane["name"] for chart in parsed.figures if chart["kind"] == "timeline" for lane in chart["lanes"]
    )


def test_page_writes_no_attribute_that_stands_in_a_colour():
    table = Table(["a"], [[Cell("x", style=LineStyle('red" onload="alert(1)', (1.0,)))]])
    parsed = Page(report_html(Report("T", "S", [], [], [], [Section("s", [table])], "M")))
    assert not any("onload" in attributes for _, attributes in parsed.elements)


def test_comparison_of_two_groups_of_three_seeds_has_bands_intervals_and_what_differs():
    runs = [logged(seed, overlap) for overlap in (False, True) for seed in (1, 2, 3)]
    comparison = compare_runs(runs, target=0.5)
    parsed = page_of(comparison)
    metric = parsed.figures[0]
    assert metric["title"] == "Test accuracy"
    assert set(metric["curves"]) == {"time", "rounds"}
    for axis in ("time", "rounds"):
        assert len(metric["curves"][axis]) == 2
        for curve in metric["curves"][axis]:
            assert len(curve["low"]) == len(curve["high"]) == len(curve["y"])
    rounds = metric["curves"]["rounds"][0]
    values = [run.figures.accuracies[4] for run in runs[:3]]
    assert rounds["x"][4] == 5
    assert rounds["y"][4] == pytest.approx(sum(values) / 3, abs=1e-5)
    assert rounds["high"][4] - rounds["y"][4] == pytest.approx(stdev(values), abs=1e-5)
    assert "3 runs, seeds 1, 2, 3" in parsed.text
    assert "95 % confidence interval of the mean" in parsed.text
    assert re.search(r"What differs option .* overlap off on", parsed.text)
    assert len({curve["color"] for curve in metric["curves"]["time"]}) == 2
    assert len({str(curve["dash"]) for curve in metric["curves"]["time"]}) == 2  # without colours as well
    assert "as fast as" in parsed.text


def test_report_of_three_seeds_in_two_groups_of_1000_rounds_is_small_and_says_what_was_thinned():
    runs = [logged(seed, overlap, rounds=1000, devices=6) for overlap in (False, True) for seed in (1, 2, 3)]
    comparison = compare_runs(runs)
    page = report_html(build_report(comparison, "today"))
    assert len(page.encode()) < 2e6
    parsed = Page(page)
    assert max(len(curve["x"]) for curve in parsed.figures[0]["curves"]["time"]) <= 300
    assert re.search(r"\d+ of [\d,]+ points are drawn", parsed.text)
    assert "13 rounds together" in parsed.text


def test_thinned_series_keeps_its_last_point():
    series = Series(tuple(map(float, range(1000))), tuple(map(float, range(1000))))
    short, step = thinned(series, 300)
    assert step == 4
    assert len(short.x) == 250
    assert short.x[-1] == short.y[-1] == 999
    assert thinned(short, 300) == (short, 1)


def test_mean_of_one_run_has_no_band():
    only = Series((1.0, 2.0), (3.0, 4.0))
    assert mean_series([only, Series((), ())]) == only
    assert mean_series([]) == Series((), ())


def test_rate_over_time_adds_up_to_the_amount():
    one, other = device(50, 0.5, 0.0), device(25, 1.0, 0.1, iterations=1)
    series = rate_over_time([(one, one.num_samples_list), (other, other.num_samples_list)])
    width = series.x[1] - series.x[0]
    end = series.x[-1] + width / 2
    expected = sum(
        64 * min(1.0, max(0.0, (end - begin) / (until - begin)))
        for columns in (one, other)
        for begin, until in zip([0.0, *columns.total_time_list], columns.total_time_list, strict=False)
    )
    assert sum(series.y) * width == pytest.approx(expected)


def test_rate_over_time_ends_with_the_device_that_finishes_first_but_not_with_one_that_is_lost():
    complete, lost = device(50, 0.5, 0.0), device(10, 0.5, 0.0)
    series = rate_over_time([(complete, complete.num_samples_list), (lost, lost.num_samples_list)])
    assert series.x[-1] > 0.95 * complete.total_time
    assert series.y[0] == pytest.approx(2 * series.y[-1])
    earlier = device(49, 0.5, 0.0)
    series = rate_over_time([(complete, complete.num_samples_list), (earlier, earlier.num_samples_list)])
    assert series.x[-1] < earlier.total_time
    assert series.y[-1] == pytest.approx(series.y[0])


def test_timeline_of_many_rounds_merges_them_and_keeps_their_sums():
    overview, close = timelines("a run", {"one": {"gpu0": device(1000, 0.5, 0.2), "gpu1": device(1000, 0.6, 0.1)}})
    for lane, compute, wait in zip(overview.lanes, (500, 600), (200, 100), strict=True):
        assert len(lane.blocks) <= BLOCKS
        assert sum(block.compute for block in lane.blocks) == pytest.approx(compute)
        assert sum(block.wait for block in lane.blocks) == pytest.approx(wait)
        assert (lane.blocks[0].first, lane.blocks[-1].last) == (1, 1000)
    assert "13 rounds together" in overview.note
    assert close.begin == pytest.approx(800 - 12 * 0.8)
    assert all(block.first == block.last for lane in close.lanes for block in lane.blocks)


def test_timeline_shows_an_exchange_behind_training_as_computing():
    column = device(5, 1.0, 0.0)
    column.aggregate_time_list = [0.0] * 5
    column.transfer_list = [0.9] * 5  # under --overlap
    (timeline,) = timelines("a run", {"one": {"gpu0": column}})
    assert {(block.compute, block.wait, block.exchange) for block in timeline.lanes[0].blocks} == {(1.0, 0.0, 0.0)}


def test_report_of_logs_names_invalid_runs_and_missing_rounds(tmp_path):
    mode = tmp_path / "logs/lenet/esync"
    write_run(mode, {"one/gpu0": 1.0, "two/cpu": 3.0}, 60, overruns=5)
    (mode / "two/cpu/iter-4.txt").unlink()
    parsed = page_of(compare([mode]))
    assert "invalid: overruns" in parsed.text
    share = re.search(r"invalid: overruns ([\d.]+ %)", parsed.text)
    assert share is not None
    assert (
        f"overruns: {share[1]} of the iterations took longer than their step time (by device: two cpu " in parsed.text
    )
    assert "These figures are not valid" in parsed.text
    assert "iter-4.txt missing" in parsed.text
    assert "1 missing" in parsed.text


def test_overruns_of_batches_by_speed_name_the_batch_that_takes_the_step_time(tmp_path):
    mode = tmp_path / "lenet/esync"
    write_run(mode, {"one/cpu": 3.0}, 60, overruns=5, options={"batch_by_speed": True})
    comparison = compare([mode])
    assert " % of 3 s for 64 samples)" in comparison.sections[0].groups[0].runs[0].figures.overruns
    assert "emulates 3.00 s for 64 samples" in page_of(comparison).text


def test_timeline_after_a_missing_round_does_not_stretch_the_next_one(tmp_path):
    mode = tmp_path / "lenet/esync"
    for number in (1, 2, 5):
        write_round(mode / "one/cpu", number, esync_round(number, 2.6 * number, exchange=0.5))
    (timeline,) = timelines("a run", load_run(mode).summary)
    assert timeline.note == ""
    *_, last = timeline.lanes[0].blocks
    assert last.end == pytest.approx(13.0)
    assert last.end - last.begin == pytest.approx(2 * 0.95 + 0.5)


def test_events_are_those_that_launch_has_left(tmp_path):
    mode = tmp_path / "lenet/esync"
    write_run(mode, {"one/gpu0": 1.0}, 10)
    change_json(mode / "one/gpu0/run.json", resumed=7)
    path = mode / OUTCOME_FILE
    path.parent.mkdir()
    outcome = {
        "seconds": 75.0,
        "replacements": [{"name": "worker 1", "how": "was killed by SIGKILL", "at": 62.0, "joined": 65.5}],
        "lost": ["worker 2"],
        "lost_hosts": ["two"],
        "failures": [{"name": "worker 0", "where": "one", "how": "ended with exit code 1"}],
        "interrupted": "SIGINT",
    }
    path.write_text(json.dumps(outcome))
    assert events_of(load_run(mode)) == [
        ("0:00", "went on from the checkpoint of round 7"),
        ("1:02", "worker 1 was killed by SIGKILL and was replaced; the new one had the model at 1:05"),
        ("", "worker 2 was lost; the others went on"),
        ("", "the host two no longer answered; the job went on without it"),
        ("1:15", "worker 0 on one ended with exit code 1"),
        ("1:15", "the job was ended by SIGINT"),
    ]


@pytest.mark.parametrize(
    "content", ["", "[]", '{"replacements": 3, "lost": ["worker 1"], "seconds": 1}', "\xff", "[" * 10**5]
)
def test_events_of_a_broken_file_are_none(tmp_path, content):
    mode = tmp_path / "lenet/esync"
    write_run(mode, {"one/gpu0": 1.0}, 10)
    (mode / OUTCOME_FILE).parent.mkdir()
    (mode / OUTCOME_FILE).write_text(content, encoding="latin-1")
    assert events_of(load_run(mode)) == []


def test_report_command_writes_the_file_and_the_log_tools_do_not_notice_it(tmp_path, capsys):
    mode = tmp_path / "logs/lenet/esync"
    write_run(mode, {"one/gpu0": 1.0, "two/cpu": 3.0}, 60)
    assert report.main([str(mode), "-o", str(mode / "report.html")]) == 0
    captured = capsys.readouterr()
    assert re.search(r"report\.html: 1 run in 1 group, \d+ kB", captured.out)
    assert captured.err == ""
    parsed = Page((mode / "report.html").read_text())
    assert "ESync reached test accuracy 0.8" in parsed.text or "ESync did not reach" in parsed.text
    assert summarize.main(["-b", str(tmp_path / "logs"), "-n", "lenet", "-m", "esync"]) == 0
    assert "skipped" not in capsys.readouterr().err
    assert len(compare([tmp_path / "logs"]).runs) == 1


def test_report_command_without_a_run_says_so(tmp_path, capsys):
    assert report.main([str(tmp_path / "nowhere"), "-o", str(tmp_path / "x.html")]) == 2
    assert "there is no such folder" in capsys.readouterr().err
    assert not (tmp_path / "x.html").exists()


def test_report_of_many_problems_lists_the_first_ones_and_their_number():
    run = replace(logged(1, False), problems=tuple(f"skipped file {number}" for number in range(1000)))
    parsed = page_of(compare_runs([run]))
    assert "skipped file 39" in parsed.text
    assert "skipped file 40" not in parsed.text
    assert "… and 960 more" in parsed.text
