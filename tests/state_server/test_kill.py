"""A state server killed at random moments of a job, over real HTTP."""

import http.client
import json
import random
import signal
import socket
import threading
import time
from pathlib import Path
from urllib.parse import urlencode

import pytest

from esync.coordination.coordinator import Coordinator
from esync.state_server import journal

SPEEDS = [0.004, 0.01, 0.03, 0.1]  # seconds of an iteration, by rank
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
JSON = {"Content-Type": "application/json"}


class Job:
    """Four workers of job default in threads.

    Ranks 0 and 1 use the JSON API, 2 and 3 the published calls.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.stop = threading.Event()
        self.round = 1
        self.answers: dict[tuple[int, int, int], tuple] = {}  # (rank, round, k): ready, lease
        self.failures: list[BaseException] = []
        self._together = threading.Barrier(len(SPEEDS), action=self._next_round)
        self._done = False
        self.threads = [threading.Thread(target=self._guarded, args=(rank,)) for rank in range(len(SPEEDS))]

    def begin(self) -> None:
        self._call("/init/", urlencode({"num_workers": len(SPEEDS), "epsilon": 0.005, "run": "r"}), FORM, [None])
        for thread in self.threads:
            thread.start()

    def end(self) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join(60)

    def _guarded(self, rank: int) -> None:
        try:
            self._work(rank)
        except BaseException as error:
            self.failures.append(error)
            self._together.abort()

    def _work(self, rank: int) -> None:
        connection = [None]  # kept open until it breaks
        self._ask(rank, 0, connection)
        while not self._done:
            k, ready = 0, False
            while not ready:
                time.sleep(SPEEDS[rank])
                k += 1
                ready = self._ask(rank, k, connection)
            self._together.wait(60)  # the exchange
            if self._done:
                return
            if rank % 2:
                told = urlencode({"r": rank, "t": self.round, "te": time.time()})
                self._call("/reset/", told, FORM, connection)
            else:
                told = json.dumps({"rank": rank, "round": self.round})
                self._call("/api/v1/jobs/default/reset", told, JSON, connection)

    def _next_round(self) -> None:
        self.round += 1
        self._done = self.stop.is_set()

    def _ask(self, rank: int, k: int, connection: list) -> bool:
        c = SPEEDS[rank] * random.uniform(0.8, 1.2)
        if rank < 2:
            asked = {"rank": rank, "round": self.round, "iteration": k, "capability": c, "round_trip": 0.001}
            answer = self._call("/api/v1/jobs/default/query", json.dumps(asked), JSON, connection)
            self.answers[rank, self.round, k] = answer["ready"], answer["lease"]
        else:
            fields = urlencode({"r": rank, "k": k, "c": c, "te": time.time(), "t": self.round})
            answer = self._call("/apply/", fields, FORM, connection)
            self.answers[rank, self.round, k] = bool(answer["ready"]), None
        return bool(answer["ready"])

    def _call(self, path: str, body: str, headers: dict, connection: list) -> dict | None:
        """Ask until there is an answer, as the worker's client does."""
        limit = time.monotonic() + 60
        while True:
            try:
                connection[0] = connection[0] or http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
                connection[0].request("POST", path, body, headers)
                response = connection[0].getresponse()
                text = response.read()
                assert response.status == 200, (path, body, text)
                return json.loads(text) if text else None
            except (OSError, http.client.HTTPException):
                connection[0] = None
                if time.monotonic() > limit:
                    raise
                time.sleep(0.02)


def undisturbed(entries: list) -> tuple[Coordinator, dict[tuple[int, int, int], tuple]]:
    """What a server that was never killed answers to the same messages at the same times."""
    job, answers = Coordinator(len(SPEEDS), 0.005), {}
    for kind, now, rank, *told in entries:
        if kind == "q":
            round, k, c, round_trip = told
            decision = job.query(rank, round, k, c, now, round_trip)
            answers[rank, round, k] = decision.ready, decision.lease
        elif kind == "a":
            k, c, te, round = told
            answers[rank, round, k] = job.apply(rank, k, c, now, te, round), None
        elif kind == "r":
            job.reset(rank, told[0], now, told[1])
    return job, answers


@pytest.mark.parametrize("kills", [4, pytest.param(20, marks=pytest.mark.long)])
def test_killed_server_decides_as_one_that_was_not_killed(start_process, tmp_path, kills):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    serve = ("-m", "esync.state_server", "--port", str(port), "--state-dir", str(tmp_path / "state"))
    draw = random.Random(kills)
    server, job = start_process(*serve), Job(port)
    job.begin()
    for _ in range(kills):
        time.sleep(draw.uniform(0.05, 0.8))
        assert server.end(signal.SIGKILL) == -signal.SIGKILL
        server = start_process(*serve)
        assert server.url, server.output
    end = time.monotonic() + 60
    while job.round <= 2 * kills and not job.failures:
        assert time.monotonic() < end
        time.sleep(0.05)
    job.end()
    assert not job.failures
    contents = journal.read(Path(tmp_path / "state" / "jobs" / "default.journal"))
    assert not contents.damage
    restored, expected = undisturbed(contents.entries)
    assert job.answers == expected
    assert {ready for ready, _ in expected.values()} == {True, False}
    assert any(lease for _, lease in expected.values())
    with_server = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    with_server.request("GET", "/")
    assert json.loads(with_server.getresponse().read()) == restored.snapshot()
    assert server.end(signal.SIGTERM) == 0
    assert "Traceback" not in server.output
