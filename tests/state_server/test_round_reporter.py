"""A worker's reports to a real state server."""

import logging
import socket
import time

import pytest
from calling import content, port_of, post, rows, until
from django.conf import settings

from esync.coordination.round_reporter import RoundReporter, shares
from esync.runtime.metric import Metric
from tests.support.ports import free_port


def entry(samples: int = 64, wait: float = 0.25) -> dict:
    """A round of one second, as the log file has it."""
    phases = {"0": {"get_batch": 0.1, "forward and backward": 0.4, "check ready": 0.05, "global update": 0.4}}
    return {"num_samples": samples, "time": phases, "wait": wait, "bytes_sent": 10, "bytes_received": 20}


def tell(worker: RoundReporter, number: int, **changes: object) -> None:
    """Report a round of one iteration and one second."""
    worker.round(number, entry() | changes, local_iterations=1, seconds=1.0)


def newest(job: str, rank: int = 0) -> dict:
    """The newest report of a worker that the server has."""
    shown = content(job)
    return (shown["workers"][rank]["last_report"] if "workers" in shown else None) or {}


@pytest.fixture
def reports(url):
    """Makes senders of reports to job `mine`; they end with the test."""
    reporters = []

    def make(rank: int = 0, port: int | None = None, **options) -> RoundReporter:
        reporters.append(RoundReporter("127.0.0.1", port or port_of(url), "mine", rank, "gpu0", **options))
        return reporters[-1]

    yield make
    for one in reporters:
        one.close("the test is over")


def test_shares_divide_a_round_into_compute_wait_and_exchange():
    phases = {"0": {"get_batch": 1.0, "forward and backward": 2.0}, "1": {"local update": 0.5, "global update": 2.0}}
    assert shares(phases, wait=0.5) == {"compute": 3.5, "wait": 0.5, "exchange": 1.5}
    assert shares(phases, wait=9.0) == {"compute": 3.5, "wait": 2.0, "exchange": 0.0}  # stamps of another clock
    assert shares({}, wait=0.0) == {"compute": 0, "wait": 0, "exchange": 0}


def test_reports_send_rounds_and_later_accuracies(mine, reports):
    worker = reports(rank=1, metric=Metric("loss", "min"))
    worker.round(1, entry(), local_iterations=5, seconds=1.0)
    until(lambda: newest(mine, 1))
    last_report = newest(mine, 1)
    assert last_report["host"] == socket.gethostname()
    assert {name: last_report[name] for name in ("device", "round", "local_iterations", "samples", "accuracy")} == {
        "device": "gpu0", "round": 1, "local_iterations": 5, "samples": 64, "accuracy": None,
    }  # fmt: skip
    assert [
        last_report[name] for name in ("compute", "wait", "exchange", "bytes_sent", "bytes_received")
    ] == pytest.approx([0.5, 0.25, 0.15, 10, 20])
    worker.accuracy(1, 0.75, {"recall/3": 0.5})
    until(lambda: newest(mine, 1)["accuracy"] == 0.75)
    assert newest(mine, 1)["parts"] == {"recall/3": 0.5}
    assert (newest(mine, 1)["metric"], newest(mine, 1)["goal"]) == ("loss", "min")
    worker.accuracy(2, float("nan"))  # of weights that have diverged
    assert (newest(mine, 1)["accuracy_round"], newest(mine, 1)["samples"]) == (1, 64)
    worker.round(2, entry(), local_iterations=5, seconds=1.0)
    until(lambda: newest(mine, 1)["round"] == 2)
    assert (newest(mine, 1)["accuracy"], newest(mine, 1)["samples"]) == (0.75, 64)


def test_reports_of_fast_rounds_are_added_up(mine, reports):
    worker = reports(interval=1.0)
    for number in range(1, 101):
        logged = {"loss": float(number), "never": None, **({"late": 2.0} if number > 50 else {})}
        worker.round(number, entry(samples=1) | {"logged": logged}, local_iterations=1, seconds=0.01)
    worker.close("enough")
    got = _history(mine, 100)
    assert sum(row["samples"] for row in got) == sum(row["local_iterations"] for row in got) == 100
    assert sum(row["seconds"] for row in got) == pytest.approx(1.0)
    assert len(got) < 10
    assert got[-1]["round"] == 100
    total = sum(row["samples"] * row["logged"]["loss"] for row in got)
    assert total == pytest.approx(5050)
    assert got[-1]["logged"].keys() == {"loss", "late"}


def test_reports_to_an_absent_server_block_nobody_and_arrive_later(url, jobs, reports, caplog):
    caplog.set_level(logging.INFO)
    lost = reports(port=free_port())
    start = time.monotonic()
    for number in range(1, 2001):
        tell(lost, number)
    assert time.monotonic() - start < 5
    until(lambda: "the dashboard lags behind" in caplog.text)
    start = time.monotonic()
    lost.close("the state server never came")
    assert time.monotonic() - start < 5

    waiting = reports()  # there is no such job yet: the server says when to try again
    tell(waiting, 1)
    time.sleep(0.3)
    tell(waiting, 2)
    tell(waiting, 3)
    job = f"{url}/api/v1/jobs/mine"
    assert post(job, {"num_workers": 1})[0] == 200
    until(lambda: newest(job).get("round") == 3)
    assert sum(row["samples"] for row in _history(job, 3)) == 3 * 64


def test_reports_begin_and_end_the_job_where_no_algorithm_does(url, reports):
    job = f"{url}/api/v1/jobs/mine"
    first, second = reports(rank=0, begin=2, ends=True), reports(rank=1)
    for worker in (second, first):
        tell(worker, 1)
    until(lambda: newest(job, 0) and newest(job, 1))
    second.close("done")
    assert content(job)["ended"] is None
    first.close("done after 1 rounds")
    shown = content(job)
    assert (shown["state"], shown["reason"], shown["num_workers"]) == ("ended", "done after 1 rounds", 2)


def test_reports_of_asynchronous_workers_tell_the_round_of_the_run(url, reports):
    job = f"{url}/api/v1/jobs/mine"
    workers = reports(rank=0, begin=2, ends=True), reports(rank=1)
    for worker, exchanges, round_ in zip(workers, (9, 4), (5, 6), strict=True):
        tell(worker, exchanges, round=round_)
    until(lambda: newest(job, 0) and newest(job, 1))
    assert (newest(job, 0)["round"], newest(job, 0)["run_round"], content(job)["round"]) == (9, 5, 6)
    workers[0].close("done")
    until(lambda: content(f"{url}/api/v1/runs?job=mine")["runs"][0]["rounds"] == 6)


def test_reports_keep_a_job_from_being_replaced(url, reports):
    """As in mode sync, where no worker queries the state server."""
    job = f"{url}/api/v1/jobs/mine"
    worker = reports(begin=1, ends=True)
    tell(worker, 1)
    until(lambda: newest(job))
    key = content(job)["id"]
    other = reports(begin=2, ends=True)
    for one, number in ((worker, 2), (other, 1)):
        tell(one, number)
    until(lambda: newest(job)["round"] == 2)
    assert content(job)["id"] == key
    worker.close("done")
    until(lambda: content(job)["id"] != key)  # the other one has waited for that


def test_reports_send_the_token_and_warn_once_of_a_wrong_one(mine, reports, running, monkeypatch, caplog):
    monkeypatch.setenv("ESYNC_TOKEN", "a-secret-token")
    worker = reports()
    monkeypatch.setenv("ESYNC_TOKEN", "another-token")
    stranger = reports(rank=1, interval=0.01)
    monkeypatch.setattr(settings, "TOKEN", "a-secret-token")
    for number in (1, 2, 3):
        tell(worker, number)
        tell(stranger, number)
        time.sleep(0.1)
    worker.close("done")
    stranger.close("done")
    assert caplog.text.count("the dashboard lags behind") == 1
    assert "401" in caplog.text
    monkeypatch.setattr(settings, "TOKEN", "")
    assert newest(mine, 0)["round"] == 3
    assert newest(mine, 1) == {}


def _history(job: str, newest_round: int) -> list[dict]:
    """The rounds in the history, as soon as that one is there."""
    return until(lambda: (got := rows(job)) and got[-1]["round"] == newest_round and got)
