"""The client that queries in the background, with slow and faulty servers."""

import logging
import threading
import time

import pytest
from calling import port_of
from faulty_server import OK, FaultyServer, refusal

from esync.coordination import Coordination, ExchangeDecision, JobSettings
from esync.coordination.client import StateServerClient, StateServerError
from esync.coordination.delayed import DelayedClient
from tests.support.delaying_proxy import DelayingProxy

DELAY = 0.4


def delayed(port: int, rank: int = 0, **options) -> DelayedClient:
    return DelayedClient(StateServerClient("127.0.0.1", port, rank=rank, **{"patience": 30.0, **options}))


def test_delayed_client_does_not_wait_for_answers(url):
    with DelayingProxy(port_of(url), DELAY, jitter=DELAY / 4) as proxy:
        worker: Coordination = delayed(proxy.port)
        worker.init(JobSettings(1, 0.02))
        worker.ask(0, 0.5).wait()
        start = time.monotonic()
        question = worker.ask(1, 0.5)
        assert not question.done()
        assert time.monotonic() - start < DELAY / 4  # the answer cannot be there sooner than 3/4 of the delay
        assert question.wait() == ExchangeDecision(True)
        assert question.done()
        assert time.monotonic() - start >= 0.7 * DELAY
        assert worker.round_trip >= 0.7 * DELAY
        worker.close()


def test_delayed_client_calls_arrive_in_order(url):
    """RESET is not waited for, yet the query after it belongs to the new round."""
    with DelayingProxy(port_of(url), 0.1, jitter=0.1) as proxy:
        worker = delayed(proxy.port)
        worker.init(JobSettings(1, 0.02))
        for round in range(1, 6):
            assert worker.round == round
            question = worker.ask(1, 0.5)
            assert question.wait() == ExchangeDecision(True)
            worker.reset(round + 1)
            assert worker.round == round + 1
        assert worker.ask(1, 0.5).wait() == ExchangeDecision(True)
        worker.close()


def test_delayed_client_raises_a_refused_reset_at_the_next_query():
    with FaultyServer(refusal(409, "the job is in round 1")) as server:
        worker = delayed(server.port)
        worker.reset(7)
        for _ in range(2):
            question = worker.ask(1, 0.1)
            with pytest.raises(StateServerError, match="the job is in round 1"):
                question.wait()
            assert question.done()
        assert len(server.requests) == 1
        worker.close()


def test_delayed_client_closes_at_once(caplog):
    never = threading.Event()
    with FaultyServer(OK, never) as server, caplog.at_level(logging.WARNING):
        worker = delayed(server.port, timeout=60.0)
        worker.ask(0, 0.1).wait()
        question = worker.ask(1, 0.1)
        while len(server.requests) < 2:
            time.sleep(0.01)
        worker.close()
        assert not worker._thread.is_alive()
        with pytest.raises(StateServerError, match="has been closed"):
            question.wait()
        never.set()
    assert not caplog.records
