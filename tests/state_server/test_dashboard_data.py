"""The dashboard's files, and the figures behind it."""

import re
from importlib.resources import files
from pathlib import Path

import pytest
from calling import content, get, post, report, rows, send, states, until
from django.conf import settings

from esync.state_server import schema
from esync.state_server.jobs import Job

KINDS = {".css", ".js", ".svg"}
BROWSER = "text/html,application/xhtml+xml,*/*;q=0.8"


# --- the page -------------------------------------------------------------------------------------


def test_root_redirects_a_browser_to_the_dashboard_and_answers_json_to_programs(url):
    status, _, headers = get(url, "/", Accept=BROWSER)
    assert (status, headers["location"], headers["vary"]) == (303, "/dashboard/", "Accept")
    assert get(url, "/dashboard")[2]["location"] == "/dashboard/"
    for accept in ("*/*", "application/json"):
        status, body, headers = get(url, "/", Accept=accept)
        assert (status, headers["content-type"]) == (200, "application/json")
        assert b'"num_workers"' in body


def test_dashboard_page_allows_only_its_own_scripts_and_needs_no_token(url, monkeypatch):
    status, body, headers = get(url, "/dashboard/", Accept=BROWSER)
    assert status == 200
    assert headers["content-type"].startswith("text/html")
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "connect-src", "img-src")} == {"'self'"}
    monkeypatch.setattr(settings, "TOKEN", "a-secret-token")
    assert get(url, "/dashboard/", Accept=BROWSER)[0] == 200
    assert get(url, "/", Accept=BROWSER)[0] == 303
    assert get(url, "/")[0] == get(url, "/api/v1/jobs", Accept=BROWSER)[0] == 401
    assert get(url, "/dashboard/", Host="evil.example")[0] == 400
    assert b"<style" not in body
    assert not re.search(rb"<script(?![^>]* src=)|\son\w+=|\sstyle=", body)


def test_dashboard_page_loads_only_its_own_existing_files(url):
    needed = {"/dashboard/"}
    seen: set[str] = set()
    while needed - seen:
        path = (needed - seen).pop()
        seen.add(path)
        status, body, headers = get(url, path)
        assert status == 200, path
        text = body.decode()
        if not path.endswith((".min.js", ".svg")):
            assert not re.search(r"""["'(]https?://""", text), path
        needed |= set(re.findall(r'(?:href|src)="(/dashboard/[^"]+)"', text))
        if headers["content-type"].startswith("text/javascript"):
            needed |= {f"/dashboard/assets/{name}" for name in re.findall(r'from "\./([\w.]+)"', text)}
    folders = files("esync.state_server") / "dashboard", files("esync.web")
    assets = [file for folder in folders for file in Path(str(folder)).rglob("*.*") if file.suffix in KINDS]
    assert {path.rpartition("/")[2] for path in seen - {"/dashboard/"}} == {file.name for file in assets}
    assert "MIT" in (files("esync.state_server") / "dashboard/uplot/LICENSE").read_text()


def test_dashboard_file_that_is_unchanged_is_not_sent_again(url):
    _, body, headers = get(url, "/dashboard/assets/main.js")
    assert body
    assert get(url, "/dashboard/assets/main.js", If_None_Match=headers["etag"])[:2] == (304, b"")


@pytest.mark.parametrize("path", ["/dashboard/x", "/dashboard/assets/../../settings.py", "/dashboard/assets/LICENSE"])
def test_dashboard_serves_no_other_files(url, path):
    assert get(url, path)[0] == 404


# --- who is the slowest, and what it costs --------------------------------------------------------


def test_job_names_the_slowest_worker_and_adds_up_its_cost(mine):
    # Two workers: 100 and 50 samples/s while they compute; the first waits for half of the round.
    for rank, compute, wait in ((0, 1.0, 0.9), (1, 1.9, 0.0)):
        samples = int(compute * (100, 50)[rank])
        body = report(rank, seconds=2.0, compute=compute, wait=wait, exchange=0.1, samples=samples, local_iterations=1)
        assert post(f"{mine}/report", body)[0] == 200
    shown = content(mine)
    assert shown["slowest"] == 2  # by the speeds that the workers told when they asked: 0.1, 1.1 and 2.1 s
    assert [worker["seconds_per_iteration"] for worker in shown["workers"]] == [0.1, 1.1, 2.1]
    assert [worker["speed"] for worker in shown["workers"]] == pytest.approx([100, 50, 0])
    totals = shown["totals"]
    assert totals["workers"] == 2
    assert totals["speed_limit"] == pytest.approx(150)
    assert totals["throughput"] == pytest.approx((100 + 95) / 2)
    assert totals["efficiency"] == pytest.approx(97.5 / 150)
    assert totals["lost_waiting"] == pytest.approx(100 * 0.45)
    assert totals["lost_exchanging"] == pytest.approx(150 * 0.05)


def test_job_without_queries_finds_the_slowest_worker_from_reports(url):
    job = f"{url}/api/v1/jobs/sync"
    assert post(job, {"num_workers": 2})[0] == 200
    assert content(job)["slowest"] is None
    assert content(job)["totals"] is None
    for rank in range(2):
        body = report(rank, round=8, compute=1.0 + rank, local_iterations=10, metric="loss", goal="min")
        newer = {"accuracy": 9.5 - rank, "accuracy_round": 5 - 2 * rank}
        assert post(f"{job}/report", body | newer)[0] == 200
    shown = content(job)
    totals = [shown["totals"][name] for name in ("accuracy", "accuracy_round", "metric", "goal")]
    assert totals == [9.5, 5, "loss", "min"]
    assert (shown["slowest"], shown["round"]) == (1, 8)
    assert [worker["seconds_per_iteration"] for worker in shown["workers"]] == [0.1, 0.2]


def test_job_shows_silent_workers_and_done_ones_after_its_end(mine, jobs):
    job = jobs.find("mine")
    job.heard[0] -= 100
    assert states(mine) == ["silent", "computing", "computing"]
    assert post(f"{mine}/end", {"reason": "enough"})[0] == 200
    assert set(states(mine)) == {"done"}


# --- curves ---------------------------------------------------------------------------------------


def tell(job: Job, second: float, fields: dict) -> None:
    """Report at that time of the run."""
    job.report(schema.Report(**fields), job.clock.now(), at=job.started + second)


def test_curves_add_up_the_workers(mine, jobs):
    """Two workers of 100 and 50 samples/s, whose rounds take 1 s and 2 s."""
    job = jobs.find("mine")
    for second in range(1, 21):
        tell(job, second, report(0, second, seconds=1.0, samples=100, bytes_sent=1000, bytes_received=2000))
        if second % 2 == 0:
            tell(job, second, report(1, second // 2, seconds=2.0, samples=100, bytes_sent=1000, bytes_received=2000))
    until(lambda: len(rows(mine)) == 30)
    curves = content(f"{mine}/curves?points=10")
    assert len(curves["at"]) in (10, 11)
    assert curves["at"][0] == pytest.approx(2)
    assert curves["samples"][:10] == pytest.approx([150] * 10)
    assert curves["bytes_sent"][:10] == pytest.approx([1500] * 10)
    assert curves["bytes_received"][:10] == pytest.approx([3000] * 10)
    assert send(f"{mine}/curves?points=1")[0] == 400


def test_curves_of_logged_numbers_are_means_by_samples(mine, jobs):
    job = jobs.find("mine")
    for rank, samples, loss in ((0, 300, 1.0), (1, 100, 5.0), (2, 0, 2.0)):
        tell(job, 4, report(rank, 1, seconds=1.0, samples=samples, logged={"loss": loss}))
    tell(job, 8, report(0, 2, seconds=1.0, logged={"größe__in": -1}))
    until(lambda: len(rows(mine)) == 4)
    (point,) = content(f"{mine}/curves")["logged"]["loss"]
    assert (point["at"], point["value"]) == (pytest.approx(4), pytest.approx((300 + 500 + 2) / 401))
    (point,) = content(f"{mine}/curves")["logged"]["größe__in"]
    assert point["value"] == -1


def test_curves_file_a_late_accuracy_under_its_round(mine):
    assert post(f"{mine}/report", report(0, 1))[0] == 200
    assert post(f"{mine}/report", report(0, 2, accuracy=0.5, accuracy_round=1))[0] == 200
    until(lambda: len(rows(mine)) == 2)
    assert post(f"{mine}/report", report(0, 2, accuracy=0.6, accuracy_round=2))[0] == 200
    until(lambda: rows(mine)[-1]["accuracy"] == 0.6)
    assert [row["accuracy_round"] for row in rows(mine)] == [None, 2]
    (point,) = content(f"{mine}/curves")["accuracy"]
    assert (point["round"], point["accuracy"]) == (2, 0.6)


def test_rounds_page_lists_the_newest_in_order(mine):
    for number in range(1, 6):
        assert post(f"{mine}/report", report(0, number))[0] == 200
    until(lambda: len(rows(mine)) == 5)
    page = content(f"{mine}/rounds?newest=2")
    assert [row["round"] for row in page["rounds"]] == [4, 5]
    assert content(f"{mine}/rounds?after={page['next']}")["rounds"] == []


def test_curves_of_a_run_without_rounds_are_empty(mine):
    curves = until(lambda: (answer := send(f"{mine}/curves"))[0] == 200 and answer[1])
    assert (curves["at"], curves["samples"], curves["accuracy"], curves["logged"]) == ([], [], [], {})
