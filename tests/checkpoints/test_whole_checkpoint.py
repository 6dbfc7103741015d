"""Whole checkpoints: workers die while they write, and the job resumes from one that all have."""

from dataclasses import replace
from pathlib import Path

import pytest

from esync.algorithms import ASGD, SSP
from esync.checkpoints.checkpoints import Checkpoints

from ..support.memory_cluster import KilledError
from .memory_jobs import Job, Life, all_of, dies, power_off

LEASE = 1.0


def gone_on_from(job: Job) -> int | None:
    """Return the round of the checkpoint from which a job continues when all of it has died.

    None means that it begins anew.
    """
    again = replace(job, resume=True, fate=lambda life, moment, round_: None, rounds=job.rounds + 4).run()
    (resumed,) = {life.trainer.checkpoints.resumed for life in again.lives}
    return resumed


def killed(directory: Path, after: int, *fates, **terms) -> Job:
    """A job whose power fails when a round is over."""
    return Job(directory, ends=after, fate=all_of(*fates, power_off(after)), rounds=20, **terms).run()


@pytest.mark.parametrize(
    ("moment", "keep", "rounds", "separate_folders"),
    [("before part", 1, (4,), False), ("within part", 1, (4,), True), ("within part", 3, (4, 6, 8), False)],
)
def test_checkpoint_with_worker_killed_while_writing_keeps_an_older_whole_one(
    tmp_path, keep, rounds, moment, separate_folders
):
    """The replacement does not write that part, and older checkpoints must stay all the same."""
    job = killed(tmp_path, rounds[-1] + 1, dies(1, moment, *rounds), keep=keep, own=separate_folders)
    assert job.held(0) == [2, *rounds]
    assert gone_on_from(job) == 2


def test_checkpoint_that_is_whole_lets_older_ones_be_deleted(tmp_path):
    job = killed(tmp_path, 9, dies(1, "within part", 4, 6), keep=1, own=True)
    assert job.held(0) == job.held(1) == [8]
    assert gone_on_from(job) == 8


@pytest.mark.parametrize("rank", [0, 1])
def test_checkpoint_part_finished_by_the_dead_worker_counts(tmp_path, rank):
    """Its replacement finds the part and offers it."""
    job = killed(tmp_path, 5, dies(rank, "after part", 4), keep=1)
    assert job.held(0) == job.held(1) == [4]
    assert gone_on_from(job) == 4


@pytest.mark.parametrize("rank", [0, 1])
def test_checkpoint_part_is_not_rewritten_by_replacement_in_a_finished_run(tmp_path, rank):
    """While it was rewritten, a power failure would have lost the whole checkpoint."""
    written = list[tuple[int, int]]()

    def fate(life: Life, moment: str, round_: int) -> None:
        if moment == "before part" and life.rank == rank:
            written.append((life.number, round_))

    job = Job(tmp_path, rounds=4, fate=all_of(fate, dies(rank, "after part", 4))).run()
    assert job.begun == [0, 0, 4]
    assert written == [(0, 2), (0, 4)]


def test_checkpoint_is_not_written_by_replacement_after_resume_of_finished_run(tmp_path, monkeypatch):
    """A part of the new job would not fit the other parts, which belong to the job before."""
    first, writers = Job(tmp_path, rounds=4).run(), list[int]()
    original = Checkpoints.begun

    def dies_once(self):
        if self._trainer.rank == 0 and not self._trainer.replacement:
            raise KilledError
        original(self)

    def fate(life: Life, moment: str, round_: int) -> None:
        if moment == "before part":
            writers.append(life.rank)

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoints, "begun", dies_once)
        job = replace(first, resume=True, fate=fate).run()
    assert [life.rank for life in job.lives].count(0) == 2
    assert writers == []
    assert gone_on_from(first) == 4


def test_checkpoint_that_is_never_whole_lets_resume_begin_anew(tmp_path):
    job = killed(tmp_path, 4, dies(1, "within part", 2), keep=1)
    (tmp_path / "round-4" / "worker-1.json").unlink()
    assert job.held(0) == [2, 4]
    assert gone_on_from(job) is None


def test_checkpoint_without_rank_0_is_neither_written_nor_deleted(tmp_path):
    job = Job(tmp_path, rounds=12, workers=3, lease=LEASE, ends=5, fate=dies(0, "round", 5)).run()
    assert job.held(0) == job.held(1) == job.held(2) == [4]
    assert gone_on_from(job) == 4


@pytest.mark.parametrize("algorithm", [ASGD, SSP])
def test_checkpoint_of_asynchronous_workers_keeps_parts_of_rank_0s_newest_model(tmp_path, algorithm):
    """Rank 0 is away for long. The others train on, and keep their parts of its last round."""

    def fate(life: Life, moment: str, round_: int) -> None:
        if life.rank == 0 and moment == "after part":
            raise KilledError

    options = {"staleness": 100} if algorithm is SSP else {}
    job = Job(tmp_path, lambda: algorithm(**options), rounds=12, workers=3, ends=0, fate=fate).run()
    newest = job.held(0)[-1]
    assert newest < job.held(1)[-1]
    assert [held for held in job.held(1) if held <= newest]
    assert gone_on_from(job) == newest


def test_checkpoint_lacking_the_part_of_an_excluded_worker_is_skipped(tmp_path):
    """Rank 0 has recorded that it needs that part, so the checkpoint never becomes whole."""
    job = Job(tmp_path, rounds=7, workers=3, every=4, lease=LEASE, ends=4, fate=dies(2, "within part", 4)).run()
    assert 4 in job.held(0)
    assert gone_on_from(job) == 7


@pytest.mark.parametrize("missing", [True, False])
def test_checkpoint_resume_with_ssp_counts_staleness_from_the_resumed_rounds(tmp_path, missing):
    """With a missing or old part, the others once waited until that worker had caught up."""
    terms = {"algorithm": lambda: SSP(staleness=1), "keep": 9, "every": 4}
    job = Job(tmp_path, rounds=12, **terms).run()
    for round_ in job.held(1):
        if missing or round_ > 4:
            (tmp_path / f"round-{round_}" / "worker-1.json").unlink()
    done, seen = {0: 0, 1: 0}, list[int]()

    def fate(life: Life, moment: str, round_: int) -> None:
        if moment == "round":
            done[life.rank] += 1
            seen.append(done[0] - done[1])

    again = replace(job, resume=True, rounds=20, fate=fate).run()
    assert again.begun == [12, 12] if missing else [12, 4]
    assert max(map(abs, seen)) <= 2


def test_checkpoint_writer_slower_than_the_lease_is_waited_for(tmp_path):
    def fate(life: Life, moment: str, round_: int) -> None:
        if moment == "before part" and life.rank == 1:
            life.store.sleep(10 * LEASE)

    job = Job(tmp_path, rounds=5, lease=LEASE, fate=fate).run()
    assert job.begun == [0, 0]
    assert job.held(0) == job.held(1) == [4, 5]


def test_checkpoint_reader_slower_than_the_lease_is_waited_for(tmp_path, monkeypatch):
    def slowly(self, *arguments):
        self._trainer.world.way.sleep(10 * LEASE)
        return take_over(self, *arguments)

    take_over = Checkpoints.take_over
    monkeypatch.setattr(Checkpoints, "take_over", slowly)
    job = Job(tmp_path, rounds=7, lease=LEASE, fate=dies(1, "round", 5)).run()
    assert job.begun == [0, 0, 5]
