"""What is whole: workers die while they write, and the job still goes on from a checkpoint that all have."""

from dataclasses import replace
from pathlib import Path

import pytest

from esync.algorithms import ASGD, SSP
from esync.checkpoints.checkpoints import Checkpoints
from esync.exchange.keystores.memory import KilledError

from .memory_jobs import Job, Life, all_of, dies, power_off

LEASE = 1.0


def gone_on_from(job: Job) -> int | None:
    """The round of the checkpoint that a job goes on from when all of it has died; None: it begins anew."""
    again = replace(job, resume=True, fate=lambda life, moment, round_: None, rounds=job.rounds + 4).run()
    (resumed,) = {life.trainer.checkpoints.resumed for life in again.lives}
    return resumed


def killed(directory: Path, after: int, *fates, **terms) -> Job:
    """A job whose power fails when a round is over."""
    return Job(directory, ends=after, fate=all_of(*fates, power_off(after)), rounds=20, **terms).run()


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("moment", ["before part", "within part"])
@pytest.mark.parametrize(("keep", "rounds"), [(1, (4,)), (3, (4, 6, 8))])
def test_a_worker_that_dies_while_it_writes_costs_no_checkpoint(tmp_path, keep, rounds, moment, own):
    """The newcomer does not write that part; what is older was once deleted all the same."""
    job = killed(tmp_path, rounds[-1] + 1, dies(1, moment, *rounds), keep=keep, own=own)
    assert job.held(0) == [2, *rounds]
    assert gone_on_from(job) == 2


@pytest.mark.parametrize("own", [False, True])
def test_the_next_checkpoint_that_is_whole_lets_the_older_ones_go(tmp_path, own):
    job = killed(tmp_path, 9, dies(1, "within part", 4, 6), keep=1, own=own)
    assert job.held(0) == job.held(1) == [8]
    assert gone_on_from(job) == 8


@pytest.mark.parametrize("rank", [0, 1])
def test_a_part_that_the_dead_worker_has_finished_counts(tmp_path, rank):
    """Its newcomer finds it, and says so in its place."""
    job = killed(tmp_path, 5, dies(rank, "after part", 4), keep=1)
    assert job.held(0) == job.held(1) == [4]
    assert gone_on_from(job) == 4


@pytest.mark.parametrize("rank", [0, 1])
def test_the_last_part_is_not_written_again_by_a_replacement_that_finds_the_run_finished(tmp_path, rank):
    """While it wrote, its part was not there, and without power the whole checkpoint would have been lost."""
    written = list[tuple[int, int]]()

    def fate(life: Life, moment: str, round_: int) -> None:
        if moment == "before part" and life.rank == rank:
            written.append((life.number, round_))

    job = Job(tmp_path, rounds=4, fate=all_of(fate, dies(rank, "after part", 4))).run()
    assert job.begun == [0, 0, 4]
    assert written == [(0, 2), (0, 4)]


def test_a_replacement_in_a_job_that_goes_on_from_a_finished_run_writes_nothing(tmp_path, monkeypatch):
    """A part with the new job's number would not fit the others, which have that of the job before."""
    first, written = Job(tmp_path, rounds=4).run(), list[int]()
    begun = Checkpoints.begun

    def dies_once(self):
        if self._trainer.rank == 0 and not self._trainer.replacement:
            raise KilledError
        begun(self)

    def fate(life: Life, moment: str, round_: int) -> None:
        if moment == "before part":
            written.append(life.rank)

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoints, "begun", dies_once)
        job = replace(first, resume=True, fate=fate).run()
    assert [life.rank for life in job.lives].count(0) == 2
    assert written == []
    assert gone_on_from(first) == 4


def test_a_first_checkpoint_that_is_never_whole_is_no_reason_to_refuse(tmp_path):
    job = killed(tmp_path, 4, dies(1, "within part", 2), keep=1)
    (tmp_path / "round-4" / "worker-1.json").unlink()
    assert job.held(0) == [2, 4]
    assert gone_on_from(job) is None


def test_without_rank_0_nothing_is_written_and_nothing_deleted(tmp_path):
    job = Job(tmp_path, rounds=12, workers=3, lease=LEASE, ends=5, fate=dies(0, "round", 5)).run()
    assert job.held(0) == job.held(1) == job.held(2) == [4]
    assert gone_on_from(job) == 4


@pytest.mark.parametrize("algorithm", [ASGD, SSP])
def test_asynchronous_workers_keep_what_fits_rank_0s_newest_model(tmp_path, algorithm):
    """Rank 0 is gone for long, and nobody has noticed; the others go on, and once deleted all that is of its time."""

    def fate(life: Life, moment: str, round_: int) -> None:
        if life.rank == 0 and moment == "after part":
            raise KilledError

    options = {"staleness": 100} if algorithm is SSP else {}
    job = Job(tmp_path, lambda: algorithm(**options), rounds=12, workers=3, ends=0, fate=fate).run()
    newest = job.held(0)[-1]
    assert newest < job.held(1)[-1]
    assert [held for held in job.held(1) if held <= newest]
    assert gone_on_from(job) == newest


def test_with_a_part_missing_of_a_worker_that_was_left_out_the_one_before_is_taken(tmp_path):
    """Rank 0 has written that it needs that part; the others are told of no whole checkpoint."""
    job = Job(tmp_path, rounds=7, workers=3, every=4, lease=LEASE, ends=4, fate=dies(2, "within part", 4)).run()
    assert 4 in job.held(0)
    assert gone_on_from(job) == 7


@pytest.mark.parametrize("missing", [True, False])
def test_ssp_reckons_who_is_ahead_from_where_the_workers_have_gone_on(tmp_path, missing):
    """A part that is missing, or old, once had all others wait until its worker had caught up."""
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


def test_who_writes_for_longer_than_the_lease_is_waited_for(tmp_path):
    def fate(life: Life, moment: str, round_: int) -> None:
        if moment == "before part" and life.rank == 1:
            life.store.sleep(10 * LEASE)

    job = Job(tmp_path, rounds=5, lease=LEASE, fate=fate).run()
    assert job.begun == [0, 0]
    assert job.held(0) == job.held(1) == [4, 5]


def test_a_newcomer_that_reads_a_part_for_longer_than_the_lease_is_waited_for(tmp_path, monkeypatch):
    def slowly(self, *arguments):
        self._trainer.world.store.sleep(10 * LEASE)
        return take_over(self, *arguments)

    take_over = Checkpoints.take_over
    monkeypatch.setattr(Checkpoints, "take_over", slowly)
    job = Job(tmp_path, rounds=7, lease=LEASE, fate=dies(1, "round", 5)).run()
    assert job.begun == [0, 0, 5]
