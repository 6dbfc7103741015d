"""The history in SQLite and a real PostgreSQL, also while the database is away."""

import signal
import threading
import time

import pytest
from calling import ask, begin, content, post, report, rows, send, until
from postgres import MissingError, cluster

from esync import config
from esync.state_server import history_writer
from esync.state_server.history import History
from esync.state_server.history_entries import HistoryEntry, RunRecord

LOSS = {"metric": "loss", "goal": "min"}
SERVE = ("-m", "esync.state_server", "--port", "0")
INFO = RunRecord("key", "a", "", 1.0, 2, 0.02, 1)


@pytest.fixture(scope="module")
def postgres():
    try:
        with cluster() as postgres:
            yield postgres
    except MissingError as reason:
        pytest.skip(str(reason))


def logged(rank: int, round: int) -> dict[str, float]:
    """What a worker logs: one name always, one in the second round only."""
    return {"größe": round + 10.0 * rank, **({"rate__0": 0.5} if round == 2 else {})}


def tell(job: str, rounds: int, first: int = 1) -> None:
    for round in range(first, first + rounds):
        for rank in range(2):
            body = report(rank, round, accuracy=round / 100, accuracy_round=round, logged=logged(rank, round), **LOSS)
            assert post(f"{job}/report", body)[0] == 200


@pytest.fixture(params=["sqlite", "postgres"])
def database(request, tmp_path) -> dict[str, str]:
    """Environment of a state server with one of the databases."""
    if request.param == "sqlite":
        return {}
    return {"DATABASE_URL": request.getfixturevalue("postgres").url}


def test_history_stores_what_workers_report(start_process, database):
    server = start_process(*SERVE, **database)
    job = begin(server.url, "first", [0.1, 1.1])
    tell(job, rounds=3)
    tell(job, rounds=1)  # again: counted once
    post(f"{job}/report", report(0, 3, accuracy=0.5, accuracy_round=3, **LOSS))  # again, with a later value
    until(lambda: len(rows(job)) == 6)
    page = content(f"{job}/rounds?limit=4")
    assert [(row["round"], row["rank"]) for row in page["rounds"]] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    row = page["rounds"][1]
    assert {**row, **report(1, 1, accuracy=0.01, accuracy_round=1, logged=logged(1, 1), **LOSS)} == row
    next_page = content(f"{job}/rounds?after={page['next']}")
    assert [(row["round"], row["rank"], row["accuracy"]) for row in next_page["rounds"]] == [(3, 0, 0.5), (3, 1, 0.03)]
    assert content(f"{job}/rounds?after={next_page['next']}") == {"rounds": [], "next": next_page["next"]}
    post(f"{job}/end", {"reason": "enough"})
    begin(server.url, "first", [0.1, 1.1, 2.1])
    until(lambda: len(content(f"{server.url}/api/v1/runs")["runs"]) == 2)
    newest, oldest = content(f"{server.url}/api/v1/runs?job=first")["runs"]
    assert (newest["num_workers"], newest["rounds"], newest["ended"]) == (3, 0, None)
    assert (oldest["rounds"], oldest["samples"], oldest["bytes_sent"], oldest["reason"]) == (3, 6 * 448, 600, "enough")
    assert (oldest["best_accuracy"], oldest["compute"], oldest["wait"]) == (0.01, 9.0, pytest.approx(1.8))
    assert rows(job) == []
    assert len(rows(job, query=f"?run={oldest['id']}")) == 6
    assert (oldest["metric"], oldest["goal"]) == ("loss", "min")
    curves = content(f"{job}/curves?points=2&run={oldest['id']}")
    assert (curves["metric"], curves["goal"], len(curves["at"]) <= 2) == ("loss", "min", True)
    assert [point["round"] for point in curves["accuracy"]] == [1, 3]
    assert sorted(oldest["logged"]) == ["größe", "rate__0"]
    means = {name: {point["value"] for point in points} for name, points in curves["logged"].items()}
    assert means["rate__0"] == {0.5}
    assert all(6 <= mean <= 8 for mean in means["größe"])  # by which of the three rounds fall together
    kinds = [event["kind"] for event in rows(job, "events", f"?run={oldest['id']}")]
    assert kinds == ["begin", "end"]
    assert content(f"{server.url}/api/v1/runs?job=none") == {"runs": []}
    server.end_well()


def test_history_after_restart_is_kept_and_completed(start_process, tmp_path):
    server = start_process(*SERVE, "--state-dir", str(tmp_path / "state"))
    job = begin(server.url, "a", [0.1, 1.1])
    tell(job, rounds=5)  # most of it is still waiting
    server.end(signal.SIGKILL)
    server = start_process(*SERVE, "--state-dir", str(tmp_path / "state"))
    job = f"{server.url}/api/v1/jobs/a"
    until(lambda: len(rows(job)) == 10)
    until(lambda: "restart" in [event["kind"] for event in rows(job, "events")])
    assert sorted((row["rank"], row["round"]) for row in rows(job)) == [(k, t) for k in (0, 1) for t in range(1, 6)]
    assert server.end(signal.SIGTERM) == 0


def test_history_records_the_slowest_worker_as_an_event(mine):
    for rank in range(3):
        ask(mine, rank, 1, [9.0, 1.0, 1.0][rank])
    for rank in range(3):
        post(f"{mine}/reset", {"rank": rank, "round": 2})
    until(lambda: any(event["kind"] == "slowest" for event in rows(mine, "events")))
    event = next(event for event in rows(mine, "events") if event["kind"] == "slowest")
    assert (event["rank"], event["round"], event["text"]) == (0, 2, "9 s an iteration")
    assert abs(event["at"] - time.time()) < 60


@pytest.mark.parametrize("query", ["after=-1", "after=x", "limit=0", "run=%00", "after=" + "9" * 30])
def test_history_page_with_invalid_query_is_refused(mine, query):
    status, answer, _ = send(f"{mine}/rounds?{query}")
    assert status == 400
    assert query.partition("=")[0] in answer["error"]
    assert send(f"{mine}/rounds?run={'0' * 32}")[0] == 404


def test_history_database_that_is_away_delays_no_query(start_process, postgres):
    """PostgreSQL is stopped during a training and started again; nothing is lost."""
    server = start_process(*SERVE, DATABASE_URL=postgres.url)
    job = begin(server.url, "away", [0.1, 1.1])
    tell(job, rounds=2)
    until(lambda: len(rows(job)) == 4)
    postgres.stop()
    try:
        tell(job, rounds=2, first=3)
        for k in range(50):
            ask(job, 0, k, 0.1)
        assert content(job)["history_dropped"] == 0
        status, answer, headers = send(f"{job}/rounds")
        assert (status, headers["Retry-After"]) == (503, "1")
        assert "cannot be reached" in answer["error"]
    finally:
        postgres.start()
    until(lambda: len(rows(job)) == 8)
    assert server.end(signal.SIGTERM) == 0
    assert "the database of the history cannot be reached, trying again" in server.output
    assert "the database of the history is back" in server.output


def test_server_starts_and_answers_without_its_database(start_process):
    server = start_process(*SERVE, DATABASE_URL="postgres://nobody:secret-word@127.0.0.1:1/none")
    job = begin(server.url, "a", [0.1, 1.1])
    tell(job, rounds=1)
    assert send(f"{job}/rounds")[0] == 503
    assert server.end(signal.SIGTERM) == 0
    assert "secret-word" not in server.output


def test_server_with_invalid_database_url_is_refused(start_process):
    server = start_process(*SERVE, DATABASE_URL="mystery://host/secret-word")
    assert server.wait() == 1
    assert server.output.startswith("DATABASE_URL cannot be read")
    assert "secret-word" not in server.output


def test_history_queue_is_bounded_and_never_blocks(monkeypatch, running):
    """The database never answers; what does not fit is dropped and counted."""
    gate = threading.Event()
    monkeypatch.setattr(history_writer, "write", lambda batch: gate.wait(30) and len(batch))
    monkeypatch.setattr(config, "HISTORY_QUEUE", 100)
    history = History()
    history.start()
    history.add(HistoryEntry("event", INFO, {}))
    until(lambda: not history._queue)  # the thread has taken it and is stuck
    began = time.monotonic()
    for _ in range(250):
        history.add(HistoryEntry("report", INFO, {}))
    assert time.monotonic() - began < 10
    assert history.dropped == 150
    gate.set()
    history.stop()
    assert history.dropped == 150


def test_history_entries_refused_by_the_database_are_left_out(running):
    def item(at: float | None) -> HistoryEntry:
        return HistoryEntry("event", INFO, {"at": at, "kind": "x", "rank": 0, "round": 0, "text": ""})

    try:
        assert history_writer.write([item(1.0), item(None)]) == 0
        assert history_writer.write([item(1.0)]) == 1
    finally:
        history_writer.disconnect()


def test_history_deletes_old_runs(running, monkeypatch):
    from esync.state_server.models import Event, Run

    monkeypatch.setattr(config, "HISTORY_RUNS", 3)
    try:
        for number in range(6):
            info = RunRecord(f"old-{number}", "old", "", float(number), 1, 0.02, 1)
            event = HistoryEntry("event", info, {"at": 1.0, "kind": "begin", "rank": None, "round": None, "text": ""})
            history_writer.write([event])
            history_writer.write([HistoryEntry("end", info, {"ended": 9.0, "reason": ""})])
        keys = Run.objects.filter(job="old").values_list("key", flat=True)
        assert len(keys) <= 4
        assert "old-5" in keys
        assert not Event.objects.filter(run__key="old-0").exists()
    finally:
        history_writer.disconnect()
