"""esync.Checkpoints with a trainer of one device; several workers: tests/cluster/test_resume.py."""

from pathlib import Path

import pytest

import esync
from esync.checkpoints.contents import save_model
from esync.checkpoints.store import CheckpointError
from esync.exchange import ExchangeError, Specification
from esync.exchange.protocol.resume_negotiation import RunProgress
from esync.exchange.protocol.round_state import Limits
from esync.runtime.mxnet_import import mx

from ..support.disks import fill
from ..support.scripted_world import World
from ..support.small_net import backward, make_net, values


class Place:
    """Something tracked."""

    def __init__(self) -> None:
        self.at = 0

    def state(self) -> dict:
        return {"at": self.at}

    def restore(self, state: dict) -> None:
        if state["at"] < 0:
            raise ValueError("there is no such place")
        self.at = state["at"]


class Run:
    """A run of algorithm local with two samples a step.

    `place` says the numbers of its batches.
    """

    def __init__(self, directory: Path, prefix: str = "net_", rounds: float = 100, agreement=None, **options) -> None:
        self.net = make_net(prefix)
        self.checkpoints = esync.Checkpoints(directory, every=3, keep=2, **options)
        self.trainer = esync.Trainer(
            self.net.collect_params(),
            "adam",
            {"learning_rate": 0.01},
            algorithm="local",
            limits=Limits(rounds=rounds),
            agreement={"network": "small", **(agreement or {})},
            checkpoints=self.checkpoints,
        )
        self.trainer.start()
        self.place = Place()
        self.checkpoints.track("place", self.place)

    def go(self, rounds: int) -> "Run":
        for _ in range(rounds):
            self.place.at += 1
            backward(self.net, self.place.at)
            self.trainer.step(2)
            self.checkpoints.save_if_due()
        return self


def folders(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir() if not path.name.startswith(".")}


def test_resume_continues_as_if_uninterrupted(tmp_path):
    reference = Run(tmp_path / "a").go(10)
    Run(tmp_path / "b").go(8)
    resumed = Run(tmp_path / "b", resume=True)
    assert (resumed.checkpoints.resumed, resumed.trainer.round, resumed.place.at) == (6, 6, 6)
    resumed.go(4)
    assert values(resumed.net) == values(reference.net)
    assert resumed.trainer.algorithm.result.progress.samples == 20


def test_save_during_an_exchange_is_refused(tmp_path, monkeypatch):
    run = Run(tmp_path).go(1)
    monkeypatch.setattr(type(run.trainer.algorithm), "in_flight", True)
    with pytest.raises(CheckpointError, match=r"round 1: an exchange is under way.*call save_if_due after every step"):
        run.checkpoints.save()
    assert not folders(tmp_path)


def test_checkpoints_keep_two_once_the_newest_is_whole(tmp_path):
    run = Run(tmp_path).go(9)
    assert folders(tmp_path) == {"round-3", "round-6", "round-9"}
    run.go(1)
    assert folders(tmp_path) == {"round-6", "round-9"}


def test_resume_counts_limits_from_the_beginning_of_the_run(tmp_path):
    Run(tmp_path).go(6)
    run = Run(tmp_path, resume=True, rounds=8).go(1)
    assert not run.trainer.finished
    assert run.go(1).trainer.finished
    assert Run(tmp_path, resume=True, rounds=6).trainer.finished


def test_resume_ignores_a_checkpoint_that_was_being_written(tmp_path):
    Run(tmp_path).go(6)
    (tmp_path / "round-6" / "worker-0.json").unlink()
    (tmp_path / "round-6" / ".worker-0.json.77").write_text("half")
    run = Run(tmp_path, resume=True)
    assert run.trainer.round == 3
    assert folders(tmp_path) == {"round-3"}  # a later one would be another run's, once this one comes there


def test_checkpoints_of_an_earlier_run_are_refused_without_overwrite(tmp_path):
    Run(tmp_path).go(6)
    with pytest.raises(ExchangeError, match=r"holds checkpoints of an earlier run \(round 6\): go on with --resume"):
        Run(tmp_path)
    assert folders(tmp_path) == {"round-3", "round-6"}
    Run(tmp_path, overwrite=True)
    assert folders(tmp_path) == set()


def test_resume_with_other_settings_names_them(tmp_path):
    Run(tmp_path, agreement={"seed": 0}).go(3)
    with pytest.raises(ExchangeError, match=r"network small instead of big; seed 0 instead of 1; give what it was "):
        Run(tmp_path, agreement={"network": "big", "seed": 1}, resume=True)
    assert folders(tmp_path) == {"round-3"}


def test_resume_with_other_optimizer_algorithm_or_workers_is_refused(tmp_path):
    run = Run(tmp_path).go(3)
    run.checkpoints._agreement |= {"algorithm": "sync", "workers": 2}
    run.trainer._init_optimizer("sgd", {"learning_rate": 0.1})
    run.go(3)
    message = "algorithm sync instead of local; optimizer sgd instead of adam; workers 2 instead of 1"
    with pytest.raises(ExchangeError, match=message):
        Run(tmp_path, resume=True)


def test_resume_refused_by_a_tracked_object_raises(tmp_path):
    run = Run(tmp_path).go(2)
    run.place.state = lambda: {"at": -1}
    run.go(1)
    with pytest.raises(CheckpointError, match="the checkpoint of round 3 does not fit: there is no such place"):
        Run(tmp_path, resume=True)


def test_resume_with_another_parameter_prefix_succeeds(tmp_path):
    first = Run(tmp_path).go(3)
    assert values(Run(tmp_path, prefix="other_", resume=True).net) == values(first.net)


def test_checkpoint_model_loads_in_gluon(tmp_path):
    run = Run(tmp_path).go(3)
    net = make_net()
    net.initialize(mx.init.Zero(), force_reinit=True)
    net.collect_params().load(str(tmp_path / "round-3" / "model.params"))
    assert values(net) == values(run.net)


def test_save_before_start_is_refused(tmp_path):
    with pytest.raises(RuntimeError, match="has not been started"):
        Run(tmp_path).checkpoints.save()


@pytest.mark.parametrize("option", [{"every": 0}, {"keep": 0}])
def test_checkpoints_with_every_or_keep_of_0_are_refused(tmp_path, option):
    with pytest.raises(ValueError, match="both should be 1 or more"):
        esync.Checkpoints(tmp_path, **option)


# --- with servers ---------------------------------------------------------------------------------


def second_worker(directory: Path, job: int, resume: bool = True, workers: int = 2) -> tuple[Run, list]:
    """Worker 1 in a job of two, without the job; with what it would say that it holds."""
    run = Run(directory / "unused")
    checkpoints = esync.Checkpoints(directory, every=3, resume=resume)
    checkpoints.bind(run.trainer, {"network": "small"})
    offers = checkpoints.offers(1, workers)
    checkpoints._job = job
    run.checkpoints = checkpoints
    return run, [(part.round, part.job) for part in offers.parts]


def test_replacement_takes_the_part_of_the_dead_worker_in_the_same_job(tmp_path):
    dead, offers = second_worker(tmp_path, job=5)
    assert offers == []
    dead.trainer.algorithm.exchange = World(rank=1).exchange(Specification("add_mean_update", True))
    dead.checkpoints.track("place", dead.place)
    dead.go(4)
    for job, restored in ((5, True), (6, False)):
        replacement, _ = second_worker(tmp_path, job, resume=False)  # as the dead one was started
        before = values(replacement.net)
        assert replacement.checkpoints.settle(1, job, resume_at=-1, replacement=True) is None
        place = Place()
        replacement.checkpoints.track("place", place)
        assert place.at == (3 if restored else 0)
        states = replacement.trainer._updaters[0].states
        assert bool(states) == restored
        assert values(replacement.net) == before  # the model is the running job's


def test_resume_of_asynchronous_worker_without_part_begins_its_batches_anew(tmp_path, caplog):
    late, _ = second_worker(tmp_path, job=5)
    state = late.checkpoints.settle(1, 5, resume_at=40, replacement=False)
    assert (state.exchanges, state.progress) == (40, None)  # about as many as everybody's
    assert "no part of the checkpoint of round 40" in caplog.text


def test_resume_restores_the_round_counters_on_rank_0_only(tmp_path):
    run = Run(tmp_path).go(3)
    again = esync.Checkpoints(tmp_path, resume=True)
    again.bind(run.trainer, {"algorithm": "local", **run.trainer._agreement})
    again._agreement = {**run.checkpoints._agreement}
    assert [part.round for part in again.offers(0, 1).parts] == [3]
    state = again.settle(0, 1, 3, replacement=False)
    assert state.exchanges == 3
    assert isinstance(state.progress, RunProgress)
    assert (state.progress.round, state.progress.version, state.progress.samples) == (3, 3, 6)


def test_save_model_on_full_disk_raises(small_disk):
    run = Run(small_disk / "kept")
    fill(small_disk)
    with pytest.raises(OSError, match="No space left on device"):
        save_model(small_disk / "model.params", run.trainer)
