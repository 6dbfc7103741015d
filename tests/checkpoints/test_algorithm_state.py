"""An algorithm's own state in checkpoints, with a trainer of one device."""

import json
from pathlib import Path

import numpy as np
import pytest

import esync
from esync.algorithms import Local, option
from esync.checkpoints.store import CheckpointError
from esync.exchange import ExchangeError

from ..support.small_net import BATCH, backward, make_net, values


class Plain(Local):
    """Remembers nothing."""


class Remembering(Local):
    """Has a running mean of gradients, which moves the weights, and every other kind of state."""

    restored: dict | None = None

    def start(self, context):
        super().start(context)
        self.mean = np.zeros(self.replica.weights.size, np.float32)
        self.steps, self.seen = 0, [(0, "begin")]

    def before_local_step(self, model):
        assert self.steps == self.round
        self.mean = np.float32(0.5) * (self.mean + model.gradient)
        model.gradient += self.mean
        self.steps += 1
        self.seen.append((self.steps, np.array([self.steps % 2 == 0, True])))

    def state(self):
        return {"mean": self.mean, "steps": np.int64(self.steps), "seen": self.seen, "places": {3: None, "x": 0.1}}

    def restore(self, state):
        if state["steps"] > 100:
            raise ValueError("it has taken 100 steps at most")
        self.restored = state
        self.mean, self.steps, self.seen = state["mean"], state["steps"], state["seen"]


class Run:
    """A run with a checkpoint after every third step."""

    def __init__(self, directory: Path, algorithm: Local, **options) -> None:
        self.net, self.algorithm = make_net(), algorithm
        self.checkpoints = esync.Checkpoints(directory, every=3, **options)
        self.trainer = esync.Trainer(
            self.net.collect_params(),
            "sgd",
            {"learning_rate": 0.1, "momentum": 0.9},
            algorithm=algorithm,
            checkpoints=self.checkpoints,
        )
        self.trainer.start()

    def go(self, until: int) -> "Run":
        while self.trainer.round < until:
            backward(self.net, self.trainer.round)
            self.trainer.step(BATCH)
            self.checkpoints.save_if_due()
        return self


def facts(directory: Path, round_: int) -> dict:
    return json.loads((directory / f"round-{round_}" / "worker-0.json").read_text())


def test_algorithm_state_resumes_as_if_uninterrupted(tmp_path, caplog):
    reference = Run(tmp_path / "a", Remembering()).go(8)
    Run(tmp_path / "b", Remembering()).go(5)
    resumed = Run(tmp_path / "b", Remembering(), resume=True)
    assert resumed.algorithm.restored is not None
    assert resumed.algorithm.steps == 3
    resumed.go(8)
    assert values(resumed.net) == values(reference.net)
    ours, theirs = resumed.algorithm.state(), reference.algorithm.state()
    assert ours["mean"].dtype == np.float32
    assert ours["mean"].tobytes() == theirs["mean"].tobytes()
    assert str(ours["seen"]) == str(theirs["seen"])  # tuples, numbers and arrays of booleans are what they were
    assert resumed.algorithm.restored["places"] == {3: None, "x": 0.1}
    assert "state" not in caplog.text


def test_algorithm_state_that_is_empty_is_not_written(tmp_path):
    class Empty(Remembering):
        def state(self):
            return {}

    for name, algorithm in (("plain", Plain()), ("empty", Empty()), ("remembering", Remembering())):
        Run(tmp_path / name, algorithm).go(3)
        assert ("algorithm_state" in facts(tmp_path / name, 3)) == (name == "remembering")
    assert facts(tmp_path / "plain", 3)["files"].keys() == facts(tmp_path / "empty", 3)["files"].keys()
    with np.load(tmp_path / "plain" / "round-3" / "worker-0.npz") as ours:
        assert set(ours) == {f"array-{number}" for number in range(6)}  # the optimizer's momentum


def test_algorithm_state_missing_from_checkpoint_begins_anew(tmp_path, caplog):
    Run(tmp_path, Plain()).go(3)
    run = Run(tmp_path, Remembering(), resume=True)
    assert "there is no state of algorithm 'local' to go on from: on this worker it begins anew" in caplog.text
    assert run.algorithm.restored is None
    run.algorithm.steps = 3
    run.go(4)


def test_algorithm_state_for_algorithm_without_restore_is_refused(tmp_path):
    Run(tmp_path, Remembering()).go(3)
    with pytest.raises(
        CheckpointError,
        match=r"round 3 has a state that does not fit algorithm 'local': it has no state that could be restored",
    ):
        Run(tmp_path, Plain(), resume=True)


@pytest.mark.parametrize(
    ("state", "message"), [({"steps": 101}, "it has taken 100 steps at most"), ({"other": 1}, "there is no 'steps'")]
)
def test_algorithm_state_that_does_not_fit_names_the_mismatch(tmp_path, state, message):
    class Other(Remembering):
        def state(self):
            return state

    Run(tmp_path, Other()).go(3)
    with pytest.raises(CheckpointError, match=f"has a state that does not fit algorithm 'local': {message}"):
        Run(tmp_path, Remembering(), resume=True)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"set": {1}}, "set cannot be put into a checkpoint"),
        ({"objects": np.array([{}])}, "an array of Python objects cannot be put into a checkpoint"),
        ([1], r"state\(\) should return a dict, but has returned list"),
    ],
)
def test_algorithm_state_that_cannot_be_stored_raises_at_the_start(tmp_path, state, message):
    class Wrong(Remembering):
        def state(self):
            return state

    with pytest.raises(CheckpointError, match=f"the state of algorithm 'local': {message}"):
        Run(tmp_path, Wrong())


@pytest.mark.parametrize("name", ["state", "restore"])
def test_algorithm_with_state_but_without_restore_is_refused(tmp_path, name):
    half = type("Half", (Local,), {name: getattr(Remembering, name)})
    with pytest.raises(CheckpointError, match="'local' has only one of the methods state and restore"):
        Run(tmp_path, half())


def test_algorithm_state_of_dead_worker_is_taken_by_its_replacement_in_the_same_job(tmp_path, caplog):
    dead = Run(tmp_path, Remembering()).go(4)
    job = dead.checkpoints._job
    for ours in (True, False):
        caplog.clear()
        replacement = Run(tmp_path / "unused", Remembering(), overwrite=True)
        checkpoints = esync.Checkpoints(tmp_path, every=3)
        checkpoints.bind(replacement.trainer, {**dead.trainer._agreement, "algorithm": "local"})
        checkpoints._agreement = dict(dead.checkpoints._agreement)
        checkpoints.offers(0, 1)
        checkpoints.settle(0, job if ours else job + 1, resume_at=-1, replacement=True)
        assert replacement.algorithm.restored is None  # the algorithm's own start may not be over yet
        checkpoints.begun()
        assert replacement.algorithm.steps == (3 if ours else 0)
        assert ("on this worker it begins anew" in caplog.text) == (not ours)


class Tuned(Local):
    """Has an option that a run must keep, and one that may be another one after a resume."""

    class Options(Local.Options):
        kept: float = option(1.0, fixed=True, help="stays")
        free: float = option(1.0, help="may change")


def test_algorithm_option_fixed_in_checkpoint_must_match(tmp_path):
    Run(tmp_path, Tuned(kept=2.0)).go(3)
    with pytest.raises(ExchangeError, match=r"does not fit: --kept 2\.0 instead of 1\.0"):
        Run(tmp_path, Tuned(), resume=True)
    assert Run(tmp_path, Tuned(kept=2.0, free=5.0), resume=True).trainer.round == 3
