"""`report.html` from the history: GET /api/v1/report."""

import json
import re

import pytest
from calling import get, post, report, send, until

from esync import config
from esync.reports.report_page.page import content_security_policy
from esync.state_server import api

EVIL = "</script><script>alert(1)</script>"


def finish(url: str, name: str, rounds: int = 3, **changes: object) -> str:
    """Have two workers report these rounds of a job and end it; return the id of its run."""
    job = f"{url}/api/v1/jobs/{name}"
    assert post(job, {"num_workers": 2, "epsilon": 0.02})[0] == 200
    for number in range(1, rounds + 1):
        for rank in range(2):
            body = report(rank, number, device=f"gpu{rank}", accuracy=0.3 * number, accuracy_round=number, **changes)
            assert post(f"{job}/report", body)[0] == 200
    assert post(f"{job}/end", {"reason": "target reached"})[0] == 200

    def stored_runs() -> list[str]:
        runs = send(f"{url}/api/v1/runs?job={name}")[1]["runs"]
        return [run["id"] for run in runs if run["ended"] and run["samples"] == 448 * 2 * rounds]

    return until(stored_runs)[0]


def test_report_of_a_finished_run_shows_its_figures_and_events(url):
    run = finish(url, "report-one", logged={"loss": 0.25}, parts={"recall/shirt": 0.125})
    status, body, headers = get(url, f"/api/v1/report?runs={run}")
    text = body.decode()
    assert status == 200
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert headers["content-security-policy"].startswith(content_security_policy())
    assert "<h1>report-one</h1>" in text
    assert "reached test accuracy 0.8" in text
    assert "computing / waiting / transferring" in text
    assert "begun with 2 workers" in text
    assert "ended: target reached" in text
    assert re.search(r"recall/shirt</th><td class=.number shade-0.>0.125<", text)
    figures = json.loads(re.search(r'id="figures">(.*?)</script>', text, re.DOTALL)[1])
    assert figures[0]["curves"]["rounds"][0]["y"] == [0.3, 0.6, 0.9]
    assert [figure["curves"]["time"][0]["y"] for figure in figures if figure.get("title") == "loss"] == [[0.25] * 3]
    (timeline,) = (figure for figure in figures if figure["kind"] == "timeline")
    assert [lane["name"] for lane in timeline["lanes"]] == ["cloud1 gpu0", "cloud1 gpu1"]
    assert [block[:2] for block in timeline["lanes"][0]["blocks"]] == [[1, 1], [2, 2], [3, 3]]


def test_report_of_two_runs_compares_them_under_different_names(url):
    first, second = finish(url, "report-two"), finish(url, "report-two", rounds=2)
    text = get(url, f"/api/v1/report?runs={first},{second}")[1].decode()
    assert len(set(re.findall(r"report-two, [^<&\"]*?\d\d:\d\d:\d\d[^<&\"]*?(?= vs|</h1>)", text))) >= 1
    assert "<h2" in text
    assert "Results" in text
    figures = json.loads(re.search(r'id="figures">(.*?)</script>', text, re.DOTALL)[1])
    assert len({curve["label"] for curve in figures[0]["curves"]["time"]}) == 2


def test_report_of_rounds_that_were_reported_together_misses_none(url):
    name = "report-together"
    job = f"{url}/api/v1/jobs/{name}"
    assert post(job, {"num_workers": 1})[0] == 200
    for number in (1, 4, 9):
        assert post(f"{job}/report", report(0, number))[0] == 200
    assert post(f"{job}/end", {"reason": "done"})[0] == 200
    run = until(lambda: [one["id"] for one in send(f"{url}/api/v1/runs?job={name}")[1]["runs"] if one["rounds"] == 9])
    assert "missing" not in get(url, f"/api/v1/report?runs={run[0]}")[1].decode()


def test_report_shows_hostile_names_as_they_are(url):
    run = finish(url, "report-evil", host=EVIL)
    text = get(url, f"/api/v1/report?runs={run}")[1].decode()
    assert EVIL not in text
    assert text.count("<script") == 2
    assert "&lt;script&gt;alert(1)" in text


@pytest.mark.parametrize(
    "runs", ["", "x", "a" * 31, "../../etc", ",".join(["0" * 32] * (api.MAX_RUNS + 1)), "0" * 32 + ","]
)
def test_report_of_what_is_no_id_is_refused(url, runs):
    status, body, headers = get(url, f"/api/v1/report?runs={runs}")
    assert (status, headers["content-type"]) == (400, "application/json")
    assert "ids of runs" in json.loads(body)["error"]


def test_report_of_an_unknown_run_or_one_without_reports_is_not_found(url):
    status, body, _ = get(url, f"/api/v1/report?runs={'0' * 32}")
    assert status == 404
    assert "no run" in json.loads(body)["error"]


def test_report_of_too_many_rounds_is_refused_with_another_way(url, monkeypatch):
    run = finish(url, "report-large")
    monkeypatch.setattr(config, "HISTORY_REPORT_ROUNDS", 5)
    status, body, _ = get(url, f"/api/v1/report?runs={run}")
    assert status == 400
    assert "these runs have 6 rounds" in json.loads(body)["error"]
    assert "esync report" in json.loads(body)["error"]
