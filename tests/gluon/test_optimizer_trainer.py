"""Optimizers, and their states, that a program replaces during a run."""

from typing import Any

import numpy as np
import pytest

import esync
from esync.algorithms import LocalSGD
from esync.gluon.optimizer_trainer import ReplacedOptimizerError
from esync.runtime.mxnet_import import mx

from ..support.scripted_world import steady_world
from ..support.small_net import differentiate, single_weight

FAST = {"learning_rate": 0.25}
SLOW = {"learning_rate": 2.0**-6}
HEAVY = {"learning_rate": 0.25, "momentum": 0.5}


def make_trainer(
    algorithm: Any, optimizer: Any = "sgd", options: Any = None, kind: str = "float32", **kwargs: Any
) -> esync.Trainer:
    """A trainer of a weight among scripted workers that answer with ones."""
    algorithm = LocalSGD(local_iterations=100) if algorithm == "local-sgd" else algorithm
    kwargs |= {"algorithm": algorithm, "world": steady_world([1.0, 1.0])}
    return esync.Trainer([single_weight(kind)], optimizer, dict(options or FAST), **kwargs)


def weights(trainer: Any) -> list[float]:
    return trainer._params[0].data().asnumpy().tolist()


def step(trainer: Any) -> None:
    (weight,) = trainer._params
    differentiate(lambda: (weight.data() ** 2).sum())
    trainer.step(1)


def by_method(trainer: Any, name: str, options: dict[str, Any]) -> None:
    trainer._init_optimizer(name, options)


def by_object(trainer: Any, name: str, options: dict[str, Any]) -> None:
    trainer._init_optimizer(mx.optimizer.create(name, **options), None)


def by_assignment(trainer: Any, name: str, options: dict[str, Any]) -> None:
    trainer._optimizer = mx.optimizer.create(name, param_dict=dict(enumerate(trainer._params)), **options)
    trainer._updaters = [mx.optimizer.get_updater(trainer._optimizer)]


WAYS = [by_method, by_object, by_assignment]


@pytest.mark.parametrize("replace", WAYS)
@pytest.mark.parametrize("algorithm", ["local", "local-sgd"])
@pytest.mark.parametrize("kind", ["float32", "float16"])
def test_replaced_optimizer_of_a_worker_steps_as_in_gluon(kind, algorithm, replace):
    options = {"multi_precision": kind == "float16"}
    ours = make_trainer(algorithm, options=FAST | options, kind=kind)
    theirs = mx.gluon.Trainer([single_weight(kind)], "sgd", FAST | options, kvstore=None)
    for trainer in (ours, theirs):
        for name, extra in (("adam", {}), ("sgd", {"momentum": 0.5})):
            step(trainer)
            replace(trainer, name, SLOW | extra | options)
            step(trainer)
    assert weights(ours) == weights(theirs)


def test_replaced_optimizers_float32_copies_are_exchanged():
    options = FAST | {"multi_precision": True}
    trainer = make_trainer(LocalSGD(local_iterations=1), options=options, kind="float16")
    step(trainer)
    trainer._init_optimizer("sgd", {"learning_rate": 2.0**-12, "multi_precision": True})
    step(trainer)
    assert trainer.world.made.sent[-1].values == [-(2.0**-11)] * 2  # below what float16 tells from 1


@pytest.mark.parametrize("replace", WAYS)
@pytest.mark.parametrize(("first", "second"), [(FAST, SLOW), (FAST, HEAVY), (HEAVY, SLOW)])
def test_sgd_without_momentum_on_servers_can_replace_sgd(first, second, replace):
    trainer = make_trainer("sync", options=first)
    for _ in range(2):
        step(trainer)
    replace(trainer, "sgd", second)
    step(trainer)
    sent = trainer.world.made.sent
    assert [payload.learning_rate for payload in sent] == [first["learning_rate"]] * 2 + [second["learning_rate"]]
    assert sent[-1].momentum == second.get("momentum", 0.0)


def test_schedule_of_replaced_optimizer_begins_anew():
    trainer = make_trainer("sync")
    for _ in range(4):
        step(trainer)
    schedule = mx.lr_scheduler.FactorScheduler(step=2, factor=0.5, base_lr=0.4)
    trainer._init_optimizer("sgd", {"lr_scheduler": schedule})
    for _ in range(3):
        step(trainer)
    assert [payload.learning_rate for payload in trainer.world.made.sent[4:]] == [0.4, 0.4, 0.2]


@pytest.mark.parametrize("replace", WAYS)
@pytest.mark.parametrize(
    ("algorithm", "first", "name", "second"),
    [
        ("sync", FAST, "adam", SLOW),
        ("async", HEAVY, "sgd", HEAVY),
        ("sync", FAST, "sgd", {**FAST, "clip_gradient": 1.0}),
        ("dcasgd", FAST, "sgd", SLOW),
        ("dgs", FAST, "sgd", SLOW),
        ("sync", FAST, "ftrl", SLOW),
        ("scaffold", FAST, "adam", SLOW),
        ("local-sgd", FAST, "ftrl", SLOW),
    ],
)
def test_replaced_optimizer_that_cannot_be_followed_is_refused(algorithm, first, name, second, replace):
    trainer = make_trainer(algorithm, options=first)
    step(trainer)

    def go_on() -> None:
        replace(trainer, name, second)
        step(trainer)

    with pytest.raises(ValueError, match=f"algorithm {algorithm!r}"):
        go_on()


@pytest.mark.parametrize(
    ("algorithm", "optimizer", "option", "value"),
    [("sync", "adam", "beta1", 0.5), ("async", "sgd", "clip_gradient", 1.0), ("scaffold", "sgd", "clip_gradient", 1.0)],
)
def test_option_that_servers_do_not_follow_is_refused_when_it_changes(algorithm, optimizer, option, value):
    trainer = make_trainer(algorithm, optimizer)
    step(trainer)
    setattr(trainer.optimizer, option, value)
    with pytest.raises(ValueError, match=f"algorithm {algorithm!r}"):
        step(trainer)


def test_optimizer_replaced_before_the_start_is_that_of_the_run():
    trainer = make_trainer("sync")
    trainer._init_optimizer("adam", SLOW)
    step(trainer)
    assert trainer.world.made.specification.rule == "adam"


def test_optimizer_without_its_updater_is_refused():
    trainer = make_trainer("local")
    trainer._optimizer = mx.optimizer.create("adam")
    with pytest.raises(ReplacedOptimizerError, match=r"trainer._init_optimizer\(optimizer, options\)"):
        step(trainer)


@pytest.mark.parametrize("algorithm", ["local", "local-sgd"])
def test_replaced_optimizer_keeps_weight_decay_relative_to_the_mean_gradient(algorithm):
    results = []
    for scale in (1.0, 4.0):
        trainer = make_trainer(algorithm, gradient_scale=scale, options={"learning_rate": 0.25 / scale})
        trainer._init_optimizer("sgd", {"learning_rate": 0.25 / scale, "wd": 0.5})
        step(trainer)
        results.append(weights(trainer))
    assert results[0] == results[1]


@pytest.mark.parametrize("algorithm", ["sync", "async", "ssp", "dcasgd", "dgs"])
def test_states_that_are_not_on_this_worker_are_refused(tmp_path, algorithm):
    trainer = make_trainer(algorithm)
    for method in ("save_states", "load_states"):
        with pytest.raises(ReplacedOptimizerError, match=rf"{method}: .*{algorithm}.*esync.Checkpoints"):
            getattr(trainer, method)(str(tmp_path / "states"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("algorithm", ["local", "local-sgd"])
def test_loaded_states_bring_their_optimizer(tmp_path, algorithm):
    options = {"learning_rate": 2.0**-12, "multi_precision": True, "wd": 0.5}
    before = make_trainer(algorithm, "sgd", options, "float16", gradient_scale=4.0)
    for _ in range(3):
        step(before)
    before.save_states(str(tmp_path / "states"))
    after = make_trainer(algorithm, "adam", SLOW, "float16", gradient_scale=4.0)
    after.start()
    after.load_states(str(tmp_path / "states"))
    after._params[0].set_data(before._params[0].data())
    copies = []
    for trainer in (before, after):
        for _ in range(2):
            step(trainer)
        (weight,) = trainer._params
        copies.append((trainer._master(weight) if algorithm != "local" else weight.data()).asnumpy())
    assert np.array_equal(*copies)
