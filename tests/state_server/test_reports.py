"""Reports of rounds: sent in the background, to the real server and to one that is away or refuses them."""

import logging
import socket
import time

import pytest
from calling import begin, report, send
from faulty_server import FaultyServer, refusal

from esync import config
from esync.coordination.reports import Reports, account

DONE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


def told(rank: int, round: int) -> dict:
    fields = report(rank, round)
    del fields["rank"]
    return fields


def test_reports_reach_the_server(url):
    job = begin(url, "mine", [0.1, 1.1])
    reports = Reports("127.0.0.1", url.rsplit(":", 1)[1], rank=1, job="mine")
    for number in (1, 2, 3):
        reports.round(told(1, number))
    reports.end("done after 3 rounds")
    reports.close()
    shown = send(job)[1]
    assert shown["workers"][1]["last_report"]["round"] == 3
    assert (shown["state"], shown["reason"]) == ("ended", "done after 3 rounds")


def test_nobody_waits_for_a_server_that_is_away(monkeypatch):
    monkeypatch.setattr(config, "REPORTS_WAITING", 5)
    monkeypatch.setattr(config, "REPORTS_FAREWELL", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    reports = Reports("127.0.0.1", port, rank=0)
    began = time.monotonic()
    for number in range(1, 1000):
        reports.round(told(0, number))
    assert len(reports._waiting) <= 5
    reports.close()
    assert time.monotonic() - began < 20
    reports._thread.join(20)
    assert not reports._thread.is_alive()


def test_a_server_that_refuses_reports_gets_no_more(caplog):
    with FaultyServer(refusal(404, "no such path"), DONE) as server:
        reports = Reports("127.0.0.1", server.port, rank=0)
        reports.round(told(0, 1))
        reports._thread.join(20)
        reports.round(told(0, 2))
        reports.close()
        assert len(server.requests) == 1
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "the reports of rank 0 end here" in caplog.text


def test_what_a_report_says():
    iteration = {"get_batch": 0.1, "forward and backward": 0.3, "local update": 0.1}
    entry = {
        "time": {"0": iteration, "1": iteration, "2": {"check ready": 0.01, "global update": 0.7}},
        "num_samples": 128,
        "wait": 0.5,
        "bytes_sent": 10,
        "bytes_received": 20,
    }
    made = account(4, entry, 2.0, 2, ("get_batch", "forward and backward", "local update"), ("global update",))
    assert (made["round"], made["local_iterations"], made["samples"], made["seconds"]) == (4, 2, 128, 2.0)
    assert (made["compute"], made["wait"], made["exchange"]) == (pytest.approx(1.0), 0.5, pytest.approx(0.2))
    assert (made["bytes_sent"], made["bytes_received"]) == (10, 20)
