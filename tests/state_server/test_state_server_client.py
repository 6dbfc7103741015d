"""The worker's client, with the real server and a faulty one."""

import json
import logging
import re
import threading

import pytest
from calling import content, port_of, states
from faulty_server import OK, FaultyServer, answer, refusal
from hypothesis import given
from hypothesis import strategies as st

from esync import config
from esync.coordination import Coordination, ExchangeDecision, JobSettings
from esync.coordination.client import StateServerClient, StateServerError, as_text, from_text
from tests.support.ports import free_port


def client_of(server: FaultyServer, **options) -> StateServerClient:
    return StateServerClient("127.0.0.1", server.port, **{"rank": 3, "timeout": 5.0, "patience": 20.0, **options})


def fields_of(request: str) -> dict:
    return json.loads(request.split(" ", 1)[1])


def test_client_plays_a_round_with_the_real_server(url):
    port = port_of(url)
    fast, slow = (StateServerClient("127.0.0.1", port, rank=rank, patience=5.0) for rank in (0, 1))
    with fast, slow:
        clients: list[Coordination] = [fast, slow]  # they are what the algorithm expects
        clients[0].init(JobSettings(2, 0.02, slowest_iterations=1))
        clients[0].init(JobSettings(2, 0.02, slowest_iterations=1))  # as after a lost answer
        for worker in clients:
            question = worker.ask(0, 0.5 + worker.rank)
            assert question.done()
            assert question.wait() == ExchangeDecision(False)
        assert fast.ask(1, 0.5).wait().ready is False
        assert slow.ask(1, 1.5).wait().ready is True
        assert fast.ask(2, 0.5).wait().ready is True
        for worker in clients:
            worker.reset(2)
            assert worker.round == 2
        answer = fast.ask(1, 0.5).wait()
        assert (answer.ready, 0 < answer.lease < 1) == (False, True)
    assert content(f"{url}/")["t"] == 2


def test_client_sends_the_documented_fields():
    with FaultyServer(OK) as server, client_of(server, job="mine") as client:
        client.init(JobSettings(4, None, 2))
        client.ask(7, 0.25)
        client.reset(2)
        client.ask(1, 0.25)
        client.reset(3, rejoin=True, members=(0, 3))
        assert client.round_trip > 0
    assert server.connections == 1  # for all calls
    paths = [request.split()[0].removeprefix("/api/v1/jobs/mine") for request in server.requests]
    init, ask, reset, next_ask, rejoin = map(fields_of, server.requests)
    assert paths == ["", "/query", "/reset", "/query", "/reset"]
    assert {**init, "run": ""} == {"num_workers": 4, "slowest_iterations": 2, "run": ""}  # epsilon is chosen
    assert init["run"]
    assert ask == {"rank": 3, "round": 1, "iteration": 7, "capability": 0.25}
    assert reset == {"rank": 3, "round": 2}
    assert (next_ask["round"], next_ask["iteration"]) == (2, 1)
    assert 0 < next_ask["round_trip"] < 5
    assert rejoin == {"rank": 3, "round": 3, "rejoin": True, "present": "9"}


def test_client_reset_fits_the_ranks_of_the_largest_job(url):
    """Every other worker is dead, the worst case for a list of ranges."""
    host, port = url.removeprefix("http://").split(":")
    alive = range(0, config.MAX_WORKERS, 2)
    with StateServerClient(host, int(port), rank=0, job="large", patience=0.1) as client:
        client.init(JobSettings(config.MAX_WORKERS, 0.02))
        client.reset(2, members=range(config.MAX_WORKERS))
        client.reset(2, members=alive)
        shown = states(f"{url}/api/v1/jobs/large")
    assert [rank for rank, state in enumerate(shown) if state != "dropped"] == list(alive)


@given(st.sets(st.integers(0, config.MAX_WORKERS - 1)))
def test_ranks_as_text_are_read_back(ranks):
    assert from_text(as_text(ranks)) == sorted(ranks)


def test_client_repeats_a_call_that_times_out_and_measures_the_answered_one():
    release = threading.Event()
    leased = answer('{"ready": false, "lease": 1.5}')
    with FaultyServer(release, leased) as server, client_of(server, timeout=0.5) as client:
        assert client.ask(1, 0.1).wait() == ExchangeDecision(False, 1.5)
        assert client.round_trip < 0.5
        assert server.connections == 2  # a late answer must not be taken for the next question's
        release.set()


@pytest.mark.parametrize("fault", ["closed", "500", "503", "cut short", "garbage", "asked to wait"])
def test_client_repeats_a_failed_call(fault):
    answers = {
        "closed": None,
        "500": refusal(500, "failed"),
        "503": refusal(503, "busy"),
        "cut short": b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\nConnection: close\r\n\r\n{",
        "garbage": b"\x00\x01\x02\r\n\r\n",
        "asked to wait": refusal(409, "not yet", "Retry-After: 1"),
    }
    with FaultyServer(answers[fault], answers[fault], OK) as server, client_of(server, timeout=0.5) as client:
        assert client.ask(1, 0.1).wait().ready is False
        assert len(server.requests) == 3
        asked = [fields_of(request) for request in server.requests]
        assert all(one == asked[0] for one in asked)  # the very same question


def test_client_reconnects_without_pause_after_the_server_closed_the_connection(monkeypatch):
    monkeypatch.setattr(config, "STATE_SERVER_RETRY_PAUSE", 1000.0)
    with FaultyServer(OK, None, OK) as server, client_of(server) as client:
        client.ask(1, 0.1)
        client.ask(2, 0.1)
        assert len(server.requests) == 3


@pytest.mark.parametrize("status", [400, 409])
def test_client_raises_a_refusal_at_once(status):
    with FaultyServer(refusal(status, "unknown rank 3")) as server, client_of(server) as client:
        with pytest.raises(
            StateServerError, match=rf"127\.0\.0\.1:{server.port} refused /api/v1/jobs/default/query: unknown rank 3"
        ):
            client.ask(1, 0.1)
        with pytest.raises(StateServerError, match="unknown rank 3"):
            client.reset(2)
        assert len(server.requests) == 2
        assert client.round == 1


@pytest.mark.parametrize(
    "body",
    ["<html>hi</html>", '{"ready": true}', "[]", '{"ready": false, "lease": "soon"}'],
)
def test_client_of_another_kind_of_server_says_so(body):
    with (
        FaultyServer(answer(body)) as server,
        client_of(server) as client,
        pytest.raises(StateServerError, match="is not a state server"),
    ):
        client.ask(1, 0.1)


def test_client_announces_its_wait_and_gives_up(monkeypatch, caplog):
    port = free_port()
    monkeypatch.setattr(config, "ANNOUNCE_AFTER", 0.2)
    client = StateServerClient("127.0.0.1", port, rank=3, patience=1.0)
    with caplog.at_level(logging.WARNING), pytest.raises(StateServerError) as error:
        client.ask(1, 0.1)
    assert re.fullmatch(
        rf"gave up on the state server at http://127\.0\.0\.1:{port} after \d s of "
        r"/api/v1/jobs/default/query: .*Connection refused",
        str(error.value),
    )
    messages = [record.getMessage() for record in caplog.records]
    assert 1 <= len(messages) <= 5
    assert f"rank 3 has been waiting 0 s for the state server at http://127.0.0.1:{port}" in messages[0]
    assert "Connection refused" in messages[0]


def test_client_init_waits_for_the_end_of_another_training(url, jobs, monkeypatch):
    monkeypatch.setattr(config, "JOB_ALIVE", 0.5)
    port = port_of(url)
    with StateServerClient("127.0.0.1", port) as old, StateServerClient("127.0.0.1", port, patience=10.0) as new:
        old.init(JobSettings(2, 0.02))
        old.ask(0, 0.1)
        before = jobs.get("default").coordinator
        new.init(JobSettings(3, 0.02))
        assert jobs.get("default").coordinator is not before
        assert jobs.get("default").coordinator.num_workers == 3
