"""The journal of a job: what a process that ends at any moment leaves behind."""

import copy
import errno
import json
import os
import random
import zlib
from pathlib import Path

import pytest
from calling import report

from esync import config
from esync.coordination.coordinator import Coordinator
from esync.coordination.straggler_policies import OnlinePolicySettings
from esync.state_server import journal, lifecycle
from esync.state_server.jobs import Job
from esync.state_server.journal import DamagedJournalError
from esync.state_server.lifecycle import PersistentClock
from esync.state_server.registry import JobRegistry
from esync.state_server.responses import UnavailableError
from esync.state_server.schema import Report

pytestmark = pytest.mark.usefixtures("never_forgotten")


@pytest.fixture
def jobs(tmp_path) -> JobRegistry:
    return JobRegistry(tmp_path)


@pytest.fixture
def job(jobs) -> Job:
    """Of two workers."""
    return jobs.begin("a", 2, 0.02, 1)


def reopened(jobs: JobRegistry) -> JobRegistry:
    """Return what a new process finds after the old one has ended without a word.

    The old one's files stay open.
    """
    again = JobRegistry(jobs._folder)
    again.restore()
    return again


def fill_disk(monkeypatch: pytest.MonkeyPatch, room: int = 0) -> None:
    """Let the disk have no room for more than so many bytes of each line, and for no new file."""
    real = os.write
    monkeypatch.setattr(os, "write", lambda file, data: real(file, data[:room]) if room else 0)

    def refuse(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(journal, "write_atomically", refuse)


def same(job: Job, other: Job) -> bool:
    """Whether two jobs will decide alike for ever."""
    return job.coordinator == other.coordinator


@pytest.mark.parametrize("limit", [2_000, 10**9])
@pytest.mark.parametrize("seed", range(2))
def test_journal_of_interrupted_job_restores_the_same_decisions(tmp_path, monkeypatch, seed, limit):
    monkeypatch.setattr(config, "JOURNAL_BYTES", limit)
    draw = random.Random(seed)
    speeds = [0.03, 0.3, 0.5, 1.0]
    jobs = JobRegistry(tmp_path)
    jobs.begin("a", 4, 0.02, 1, "run")
    undisturbed = Coordinator(4, 0.02, 1)
    now, round, done, interruptions = 1000.0, 1, [0] * 4, 0
    due = [(now + speed, rank) for rank, speed in enumerate(speeds)]
    ready: set[int] = set()
    for _ in range(700):
        if draw.random() < 0.05:
            jobs, interruptions = reopened(jobs), interruptions + 1
        now, rank = min(due)
        done[rank] += 1
        c = speeds[rank] * draw.uniform(0.8, 1.2)
        if rank % 2:
            answer = jobs.get("a").query(rank, round, done[rank], c, now, 0.001)
            assert answer == undisturbed.query(rank, round, done[rank], c, now, 0.001)
            is_ready = answer.ready
        else:
            is_ready = jobs.get("a").query(rank, None, done[rank], c, now, te=now).ready
            assert is_ready == undisturbed.query(rank, None, done[rank], c, now, te=now).ready
        due[rank] = (now + speeds[rank], rank)
        if is_ready:
            ready.add(rank)
            due[rank] = (float("inf"), rank)
        if len(ready) == 4:
            round, done, now, ready = round + 1, [0] * 4, now + 0.05, set()
            for rank in draw.sample(range(4), 4):
                jobs.get("a").reset(rank, round, now, te=now)
                undisturbed.reset(rank, round, now, te=now)
                due[rank] = (now + speeds[rank], rank)
    assert round > 10
    assert interruptions > 20
    assert jobs.get("a").coordinator == undisturbed
    if limit == 2_000:
        assert (tmp_path / "a.journal").stat().st_size < 10_000


def test_journal_with_truncated_last_line_ignores_it(tmp_path, jobs, job):
    job.query(0, 1, 0, 0.5, now=1.0)
    path = tmp_path / "a.journal"
    before, state = path.read_bytes(), copy.deepcopy(job.coordinator.records)
    job.query(1, 1, 0, 1.5, now=2.0)
    line = path.read_bytes()[len(before) :]
    assert line.endswith(b"\n")
    for length in range(len(line)):
        path.write_bytes(before + line[:length])
        again = reopened(jobs).get("a")
        assert again.coordinator.records == state
        again.query(1, 1, 0, 1.5, now=2.0)  # asked again, because nobody was answered
        assert same(again, job)
        assert same(reopened(jobs).get("a"), job)


def test_journal_with_damage_in_the_middle_reports_and_ignores_the_rest(tmp_path, caplog, jobs, job):
    job.query(0, 1, 0, 0.5, now=1.0)
    state = copy.deepcopy(job.coordinator.records)
    for k in range(3):
        job.query(1, 1, k, 1.5, now=2.0 + k)
    path = tmp_path / "a.journal"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b"1.5", b"9.5")
    path.write_bytes(b"".join(lines))
    again = reopened(jobs).get("a")
    assert again.coordinator.records == state
    assert "is damaged: line 3 of 5 and what follows are ignored" in caplog.text
    again.query(1, 1, 0, 1.5, now=2.0)
    caplog.clear()
    assert same(reopened(jobs).get("a"), again)
    assert not caplog.text


@pytest.mark.parametrize("content", [b"", b"\n", b"00000000 {}\n", b"\xff" * 100, journal.encode({"format": 99})])
def test_journal_without_head_is_put_aside(tmp_path, caplog, content):
    (tmp_path / "a.journal").write_bytes(content)
    jobs = JobRegistry(tmp_path)
    jobs.begin("b", 1, 0.02, 1)
    again = reopened(jobs)
    assert [job.name for job in again.all()] == ["b"]
    assert "job a is lost" in caplog.text
    assert (tmp_path / "a.damaged").read_bytes() == content
    with pytest.raises(DamagedJournalError):
        journal.read(tmp_path / "a.damaged")


ODD_ENTRIES = [
    [], {}, 7, ["q"], ["q", 1.0, 0], ["q", "x", 0, 1, 1, 0.1, None], ["r", 1.0, 0, 2, 0.0, False, 5],
    ["s", 1.0, 0, 0, 0, 1.0], ["p", 1.0, 0, 1.0, {"rank": 0}], ["e", 1.0, None, 5, "x"],
    ["q", 1.0, 10**9, 1, 1, 0.1, None, 1, 1],
]  # fmt: skip


def test_journals_that_are_malformed_are_put_aside_and_the_others_restored(tmp_path, caplog):
    jobs = JobRegistry(tmp_path)
    jobs.begin("good", 2, 0.02, 1).query(0, 1, 0, 0.5, now=1.0)
    head = jobs.begin("odd", 2, 0.02, 1, watching=OnlinePolicySettings())._head()
    (tmp_path / "odd.journal").rename(tmp_path / "another.journal")
    for number, entry in enumerate(ODD_ENTRIES):
        lines = map(journal.encode, [{**head, "job": {**head["job"], "name": f"odd-{number}"}}, entry])
        (tmp_path / f"odd-{number}.journal").write_bytes(b"".join(lines))
    deep = b"[" * 100_000 + b"]" * 100_000
    (tmp_path / "deep.journal").write_bytes(b"%08x %s\n" % (zlib.crc32(deep), deep))
    restored = reopened(jobs)
    assert [job.name for job in restored.all()] == ["good"]
    lost = {path.stem for path in tmp_path.glob("*.damaged")}
    assert lost == {f"odd-{number}" for number in range(len(ODD_ENTRIES))} | {"deep", "another"}
    assert all(f"job {name} is lost" in caplog.text for name in lost)


def test_journal_restores_reports_and_the_end_of_a_job(tmp_path):
    jobs = JobRegistry(tmp_path)
    job = jobs.begin("a", 2, 0.02, 1, "mine")
    job.report(Report(**report(rank=1, accuracy=0.5, accuracy_round=1)), now=5.0, at=100.0)
    job.query(0, 1, 0, 0.5, now=6.0)
    jobs.begin("b", 1, 0.02, 1).end("done", now=1.0)
    again = reopened(jobs).get("a")
    assert (again.run, again.key, again.started, again.heard) == ("mine", job.key, job.started, [6.0, 5.0])
    assert again.reports == job.reports
    ended = reopened(jobs).get("b")
    assert (ended.reason, ended.ended is None) == ("done", False)
    assert reopened(jobs).begin("a", 2, 0.02, 1, "mine").key == job.key  # the same run, told again


def test_journal_on_full_disk_is_completed_afterwards(monkeypatch, caplog, jobs, job):
    monkeypatch.setattr(config, "JOURNAL_RETRY", 0.0)
    with monkeypatch.context() as full:
        fill_disk(full, room=30)
        for k in range(3):
            job.query(0, 1, k, 0.5, now=1.0 + k)
    assert "cannot write the journal" in caplog.text
    assert "no room" in caplog.text
    assert reopened(jobs).get("a").coordinator.snapshot()["records"][0][1] == 0  # so far it is lost
    job.query(0, 1, 3, 0.5, now=4.0)
    assert same(reopened(jobs).get("a"), job)


@pytest.mark.parametrize("why", ["it was broken", "it is long"])
def test_journal_of_a_replaced_job_never_overwrites_its_successors(monkeypatch, why, jobs, job):
    monkeypatch.setattr(config, "JOURNAL_RETRY", 0.0)
    old = job
    old.query(0, 1, 0, 0.1, now=old.clock.now() - 100.0)
    if why == "it was broken":
        with monkeypatch.context() as full:
            fill_disk(full)
            old.query(1, 1, 0, 0.1, now=old.clock.now() - 100.0)
    else:
        monkeypatch.setattr(config, "JOURNAL_BYTES", 0)
        old._journal._compacted_size = 0
    new = jobs.begin("a", 3, 0.02, 1)
    assert old.ended is not None
    old.query(1, 1, 1, 0.1, now=old.clock.now())  # a thread that still has it
    assert reopened(jobs).get("a").key == new.key


def test_journal_that_cannot_be_created_leaves_the_present_job(tmp_path, monkeypatch, jobs, job):
    old = job
    with monkeypatch.context() as full:
        fill_disk(full)
        with pytest.raises(UnavailableError, match=r"a\.journal cannot be written: no room"):
            jobs.begin("a", 3, 0.02, 1)
    assert (jobs.get("a") is old, old.ended) == (True, None)
    old.query(0, 1, 0, 0.1, now=old.clock.now())
    assert [path.name for path in tmp_path.iterdir()] == ["a.journal"]
    assert same(reopened(jobs).get("a"), old)


def test_persistent_clock_after_reboot_uses_the_wall_clock(monkeypatch, tmp_path):
    mark = PersistentClock(offset=12.5).mark()
    assert PersistentClock.resumed(json.loads(json.dumps(mark))).offset == 12.5
    monkeypatch.setattr(lifecycle, "_BOOT_ID", tmp_path / "missing")  # unknown: never that of another start
    assert lifecycle._boot() == ""
    mark["wall"] -= 60.0
    assert PersistentClock.resumed(mark).now() == pytest.approx(mark["time"] + 60.0, abs=5.0)
    mark["wall"] += 10_000.0  # and where that was set back, time stands still rather than going back
    assert PersistentClock.resumed(mark).now() == pytest.approx(mark["time"], abs=5.0)
    ahead = mark["time"] + 99.0
    assert PersistentClock.resumed(mark, latest=ahead).now() == pytest.approx(ahead, abs=5.0)
