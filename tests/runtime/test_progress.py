import io
import subprocess
import sys
from dataclasses import replace

import pytest

from esync.runtime.progress import MARK, VARIABLE, Progress, ProgressReporter, parse, parse_event, report_event, split

ROUND = Progress(rank=2, round=17, local_iterations=23, samples_per_second=1234.56, wait=0.0415, elapsed=99.5)
EVALUATED = Progress(0, 17, 1, 12.3, 0.5, 99.5, accuracy=0.8125, accuracy_round=15)


def lines(reporter_options: dict, use) -> list[str]:
    stream = io.StringIO()
    use(ProgressReporter(**reporter_options, stream=stream))
    return stream.getvalue().splitlines()


def test_only_the_process_that_launch_started_reports(monkeypatch, capfd):
    monkeypatch.setenv(VARIABLE, "json")
    child = "import esync.runtime.progress as p; p.report_event('joined', rank=7)"
    report_event("ready")
    subprocess.run([sys.executable, "-c", child], check=True)
    report_event("joined", rank=1)
    events = [parse_event(line) for line in capfd.readouterr().out.splitlines()]
    assert [(event["kind"], event.get("rank")) for event in events] == [("ready", None), ("joined", 1)]


def test_progress_line_contains_round_speed_and_wait():
    words = ROUND.line().split()
    assert words == ["round", "17", "23", "local", "iterations", "1234.6", "samples/s", "wait", "0.042", "s"]


def test_progress_line_with_one_iteration_uses_the_singular():
    assert "1 local iteration " in EVALUATED.line()


def test_progress_line_names_the_round_of_the_accuracy():
    assert EVALUATED.line().endswith("accuracy 0.812 (round 15)")
    assert "accuracy" not in ROUND.line()


def test_progress_lines_have_aligned_columns():
    assert len(ROUND.line()) == len(Progress(0, 1, 1, 5.0, 12.0, 1.0).line())


@pytest.mark.parametrize("progress", [ROUND, EVALUATED])
def test_progress_line_for_machines_is_parsed_by_the_launcher(progress):
    (line,) = lines({"quiet": True, "machine": True}, lambda reporter: reporter.round(progress))
    assert parse(line) == progress


@pytest.mark.parametrize(
    "line",
    [
        "",
        "round 17 …",
        MARK,
        f"{MARK}garbage",
        f'{MARK}{{"rank": 1}}',
        f"{MARK}[1, 2]",
        f"{MARK}null",
        f'{MARK}{{"rank": 1, "unknown": 2}}',
        'x @progress {"rank": 1}',
    ],
)
def test_progress_parse_of_other_lines_is_none(line):
    assert parse(line) is None


def test_progress_reporter_prints_for_people_or_machines():
    def use(reporter: ProgressReporter) -> None:
        reporter.print("hello")
        reporter.round(ROUND)
        reporter.accuracy(15, 0.81251)

    assert lines({"quiet": False, "machine": False}, use) == ["hello", ROUND.line(), "round   15  accuracy 0.8125"]
    assert lines({"quiet": True, "machine": False}, use) == []
    both = lines({"quiet": False, "machine": True}, use)
    later = replace(ROUND, accuracy=0.81251, accuracy_round=15)
    assert [parse(line) for line in both] == [None, ROUND, None, later, None]
    assert [line for line in both if line.startswith(MARK)] == [both[1], both[3]]


@pytest.mark.parametrize(("before"), ["", "epoch 1: 10 %", "\r 10%|## | 3/30 "])
def test_report_behind_an_unfinished_line_is_found(before):
    (line,) = lines({"quiet": True, "machine": True}, lambda reporter: reporter.round(ROUND))
    output, report = split(before + line)
    assert (output, parse(report)) == (before, ROUND)
    assert split(before) == (before, "")
