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
    weight: Any, algorithm: Any, optimizer: Any = "sgd", options: Any = None, **kwargs: Any
) -> esync.Trainer:
    """A trainer among scripted workers that answer with ones."""
    algorithm = LocalSGD(local_iterations=100) if algorithm == "local-sgd" else algorithm
    return esync.Trainer(
        [weight], optimizer, dict(options or FAST), algorithm=algorithm, world=steady_world([1.0, 1.0]), **kwargs
    )


def step(weight: Any, trainer: Any) -> None:
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
    weights, results = [single_weight(kind), single_weight(kind)], []
    trainers = [
        make_trainer(weights[0], algorithm, options=FAST | options),
        mx.gluon.Trainer([weights[1]], "sgd", FAST | options, kvstore=None),
    ]
    for weight, trainer in zip(weights, trainers, strict=True):
        for name, extra in (("adam", {}), ("sgd", {"momentum": 0.5})):
            step(weight, trainer)
            replace(trainer, name, SLOW | extra | options)
            step(weight, trainer)
        results.append(weight.data().asnumpy().tolist())
    assert results[0] == results[1]


def test_replaced_optimizers_float32_copies_are_exchanged():
    weight = single_weight("float16")
    trainer = make_trainer(weight, LocalSGD(local_iterations=1), options=FAST | {"multi_precision": True})
    step(weight, trainer)
    trainer._init_optimizer("sgd", {"learning_rate": 2.0**-12, "multi_precision": True})
    step(weight, trainer)
    assert trainer.world.made.sent[-1].values == [-(2.0**-11)] * 2  # below what float16 tells from 1


@pytest.mark.parametrize("replace", WAYS)
@pytest.mark.parametrize(("first", "second"), [(FAST, SLOW), (FAST, HEAVY), (HEAVY, SLOW)])
def test_sgd_without_momentum_on_servers_can_replace_sgd(first, second, replace):
    weight = single_weight()
    trainer = make_trainer(weight, "sync", options=first)
    for _ in range(2):
        step(weight, trainer)
    replace(trainer, "sgd", second)
    step(weight, trainer)
    sent = trainer.world.made.sent
    assert [payload.learning_rate for payload in sent] == [first["learning_rate"]] * 2 + [second["learning_rate"]]
    assert sent[-1].momentum == second.get("momentum", 0.0)


def test_schedule_of_replaced_optimizer_begins_anew():
    weight = single_weight()
    trainer = make_trainer(weight, "sync")
    for _ in range(4):
        step(weight, trainer)
    schedule = mx.lr_scheduler.FactorScheduler(step=2, factor=0.5, base_lr=0.4)
    trainer._init_optimizer("sgd", {"lr_scheduler": schedule})
    for _ in range(3):
        step(weight, trainer)
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
    weight = single_weight()
    trainer = make_trainer(weight, algorithm, options=first)
    step(weight, trainer)

    def go_on() -> None:
        replace(trainer, name, second)
        step(weight, trainer)

    with pytest.raises(ValueError, match=f"algorithm {algorithm!r}"):
        go_on()


@pytest.mark.parametrize(
    ("algorithm", "optimizer", "option", "value"),
    [("sync", "adam", "beta1", 0.5), ("async", "sgd", "clip_gradient", 1.0), ("scaffold", "sgd", "clip_gradient", 1.0)],
)
def test_option_that_servers_do_not_follow_is_refused_when_it_changes(algorithm, optimizer, option, value):
    weight = single_weight()
    trainer = make_trainer(weight, algorithm, optimizer)
    step(weight, trainer)
    setattr(trainer.optimizer, option, value)
    with pytest.raises(ValueError, match=f"algorithm {algorithm!r}"):
        step(weight, trainer)


def test_optimizer_replaced_before_the_start_is_that_of_the_run():
    weight = single_weight()
    trainer = make_trainer(weight, "sync")
    trainer._init_optimizer("adam", SLOW)
    step(weight, trainer)
    assert trainer.world.made.specification.rule == "adam"


def test_optimizer_without_its_updater_is_refused():
    weight = single_weight()
    trainer = make_trainer(weight, "local")
    trainer._optimizer = mx.optimizer.create("adam")
    with pytest.raises(ReplacedOptimizerError, match=r"trainer._init_optimizer\(optimizer, options\)"):
        step(weight, trainer)


@pytest.mark.parametrize("algorithm", ["local", "local-sgd"])
def test_replaced_optimizer_keeps_weight_decay_relative_to_the_mean_gradient(algorithm):
    results = []
    for scale in (1.0, 4.0):
        weight = single_weight()
        trainer = make_trainer(weight, algorithm, gradient_scale=scale, options={"learning_rate": 0.25 / scale})
        trainer._init_optimizer("sgd", {"learning_rate": 0.25 / scale, "wd": 0.5})
        step(weight, trainer)
        results.append(weight.data().asnumpy().tolist())
    assert results[0] == results[1]


@pytest.mark.parametrize("algorithm", ["sync", "async", "ssp", "dcasgd", "dgs"])
def test_states_that_are_not_on_this_worker_are_refused(tmp_path, algorithm):
    trainer = make_trainer(single_weight(), algorithm)
    for method in ("save_states", "load_states"):
        with pytest.raises(ReplacedOptimizerError, match=rf"{method}: .*{algorithm}.*esync.Checkpoints"):
            getattr(trainer, method)(str(tmp_path / "states"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("algorithm", ["local", "local-sgd"])
def test_loaded_states_bring_their_optimizer(tmp_path, algorithm):
    weight, other = single_weight("float16"), single_weight("float16")
    options = {"learning_rate": 2.0**-12, "multi_precision": True, "wd": 0.5}
    before = make_trainer(weight, algorithm, options=options, gradient_scale=4.0)
    for _ in range(3):
        step(weight, before)
    before.save_states(str(tmp_path / "states"))
    after = make_trainer(other, algorithm, "adam", SLOW, gradient_scale=4.0)
    after.start()
    after.load_states(str(tmp_path / "states"))
    other.set_data(weight.data())
    for parameter, trainer in ((weight, before), (other, after)):
        for _ in range(2):
            step(parameter, trainer)
    copies = [
        trainer._master(parameter) if algorithm != "local" else parameter.data()
        for parameter, trainer in ((weight, before), (other, after))
    ]
    assert np.array_equal(*[copy.asnumpy() for copy in copies])
