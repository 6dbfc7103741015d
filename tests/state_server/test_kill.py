"""A state server killed at random moments of a job, over real HTTP."""

import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from calling import send, until

from esync.coordination import JobSettings
from esync.coordination.client import StateServerClient
from esync.coordination.coordinator import Coordinator
from esync.state_server import journal
from tests.support.ports import free_port

SPEEDS = [0.004, 0.01, 0.03, 0.1]  # seconds of an iteration, by rank


class Job:
    """Four workers of job default in threads."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.stop = threading.Event()
        self.round = 1
        self.answers: dict[tuple[int, int, int], tuple] = {}  # (rank, round, k): ready, lease
        self._together = threading.Barrier(len(SPEEDS), action=self._next_round)
        self._done = False

    def work(self, rank: int) -> None:
        """Train until the job is to stop, with the server's answers in `answers`."""
        try:
            with StateServerClient("127.0.0.1", self.port, rank=rank, patience=60.0) as client:
                if rank == 0:
                    client.init(JobSettings(len(SPEEDS), 0.005))
                self._ask(client, 0)
                while not self._done:
                    k = 1
                    while not self._ask(client, k):
                        k += 1
                    self._together.wait(60)  # the exchange
                    if not self._done:
                        client.reset(self.round)
        except BaseException:
            self._together.abort()
            raise

    def _next_round(self) -> None:
        self.round += 1
        self._done = self.stop.is_set()

    def _ask(self, client: StateServerClient, k: int) -> bool:
        if k:
            time.sleep(SPEEDS[client.rank])
        answer = client.ask(k, SPEEDS[client.rank] * random.uniform(0.8, 1.2)).result()
        self.answers[client.rank, self.round, k] = answer.ready, answer.lease
        return answer.ready


def undisturbed(entries: list) -> tuple[Coordinator, dict[tuple[int, int, int], tuple]]:
    """What a server that was never killed answers to the same messages at the same times."""
    job, answers = Coordinator(len(SPEEDS), 0.005), {}
    for kind, now, rank, *told in entries:
        if kind == "q":
            round, k, c, round_trip = told
            decision = job.query(rank, round, k, c, now, round_trip)
            answers[rank, round, k] = decision.ready, decision.lease
        elif kind == "r":
            job.reset(rank, told[0], now, told[1])
    return job, answers


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.long)])
def test_killed_server_decides_as_one_that_was_not_killed(start_process, tmp_path, kills):
    port = free_port()
    serve = ("-m", "esync.state_server", "--port", str(port), "--state-dir", str(tmp_path))
    draw = random.Random(kills)
    server, job = start_process(*serve), Job(port)
    with ThreadPoolExecutor(len(SPEEDS)) as threads:
        workers = [threads.submit(job.work, rank) for rank in range(len(SPEEDS))]
        for _ in range(kills):
            time.sleep(draw.uniform(0.05, 0.8))
            assert server.end(signal.SIGKILL) == -signal.SIGKILL
            server = start_process(*serve)
            assert server.url, server.output
        until(lambda: job.round > 2 * kills or any(worker.done() for worker in workers), 60)
        job.stop.set()
        for worker in workers:
            worker.result(60)
    contents = journal.read(tmp_path / "jobs" / "default.journal")
    assert not contents.damage
    restored, expected = undisturbed(contents.entries)
    assert job.answers == expected
    assert {ready for ready, _ in expected.values()} == {True, False}
    assert any(lease for _, lease in expected.values())
    assert send(server.url)[1] == restored.snapshot()
    server.end_well()
