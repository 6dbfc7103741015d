"""A state server killed at random moments of a job, over real HTTP."""

import contextlib
import http.client
import random
import signal
import threading
import time
from pathlib import Path

import pytest
from calling import free_port, send, until

from esync.coordination.client import StateServerClient
from esync.coordination.coordinator import Coordinator
from esync.state_server import journal

SPEEDS = [0.004, 0.01, 0.03, 0.1]  # seconds of an iteration, by rank


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
        self._call("/init/", {"num_workers": len(SPEEDS), "epsilon": 0.005, "run": "r"})
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
        client = StateServerClient("127.0.0.1", self.port, rank=rank, patience=60.0)
        self._ask(client, 0)
        while not self._done:
            k, ready = 0, False
            while not ready:
                time.sleep(SPEEDS[rank])
                k += 1
                ready = self._ask(client, k)
            self._together.wait(60)  # the exchange
            if self._done:
                return
            if rank < 2:
                client.reset(self.round)
            else:
                self._call("/reset/", {"r": rank, "t": self.round, "te": time.time()})

    def _next_round(self) -> None:
        self.round += 1
        self._done = self.stop.is_set()

    def _ask(self, client: StateServerClient, k: int) -> bool:
        rank, c = client.rank, SPEEDS[client.rank] * random.uniform(0.8, 1.2)
        if rank < 2:
            answer = client.ask(k, c).result()
            self.answers[rank, self.round, k] = answer.ready, answer.lease
            return answer.ready
        ready = bool(self._call("/apply/", {"r": rank, "k": k, "c": c, "te": time.time(), "t": self.round})["ready"])
        self.answers[rank, self.round, k] = ready, None
        return ready

    def _call(self, path: str, fields: dict) -> dict | None:
        """Make a published call until there is an answer."""

        def answered() -> list:
            with contextlib.suppress(OSError, http.client.HTTPException):
                status, content, _ = send(f"http://127.0.0.1:{self.port}{path}", fields)
                assert status == 200, (path, fields, content)
                return [content]
            return []

        return until(answered, 60)[0]


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


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.long)])
def test_killed_server_decides_as_one_that_was_not_killed(start_process, tmp_path, kills):
    port = free_port()
    serve = ("-m", "esync.state_server", "--port", str(port), "--state-dir", str(tmp_path / "state"))
    draw = random.Random(kills)
    server, job = start_process(*serve), Job(port)
    job.begin()
    for _ in range(kills):
        time.sleep(draw.uniform(0.05, 0.8))
        assert server.end(signal.SIGKILL) == -signal.SIGKILL
        server = start_process(*serve)
        assert server.url, server.output
    until(lambda: job.round > 2 * kills or job.failures, 60)
    job.end()
    assert not job.failures
    contents = journal.read(Path(tmp_path / "state" / "jobs" / "default.journal"))
    assert not contents.damage
    restored, expected = undisturbed(contents.entries)
    assert job.answers == expected
    assert {ready for ready, _ in expected.values()} == {True, False}
    assert any(lease for _, lease in expected.values())
    assert send(server.url)[1] == restored.snapshot()
    assert server.end(signal.SIGTERM) == 0
    assert "Traceback" not in server.output
