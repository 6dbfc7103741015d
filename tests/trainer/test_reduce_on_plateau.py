"""esync.ReduceOnPlateau, in trainers that work alone or among scripted workers.

tests/cluster/test_schedules.py has several workers.
"""

import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import esync
from esync.algorithms import ALGORITHMS
from esync.exchange import Result
from esync.exchange.protocol.round_state import Limits
from esync.gluon.reduce_on_plateau import REDUCTIONS
from esync.runtime.futures import Completed
from esync.runtime.metric import Metric
from esync.runtime.mxnet_import import mx

from ..support.scripted_world import ScriptedExchange, World, steady_world
from ..support.small_net import flat, local_trainer, make_net, sgd_trainer, take_steps

LOSS = Metric("loss", "min")
HALVED = {"factor": 0.5, "patience": 1, "base_lr": 0.4}


def plateau(**options: Any) -> Any:
    return esync.ReduceOnPlateau(**{**HALVED, **options})


def evaluating(folder: Path, values: Iterable[float] = (), **options: Any) -> esync.Run:
    """A run that evaluates after every round; the trial has the first of the values."""
    numbers = iter(values)
    return esync.Run(folder, evaluate=lambda: next(numbers, 0.5), background=False, quiet=True, **options)


@pytest.mark.parametrize(
    ("options", "metric", "values", "reductions"),
    [
        ({}, Metric(), [0.5, 0.5, 0.5, 0.5, 0.5], [0, 0, 1, 1, 2]),
        ({}, Metric(), [0.5, 0.4, 0.6, 0.5, 0.6], [0, 0, 0, 0, 1]),
        ({"patience": 0}, LOSS, [3.0, 2.0, 2.0, 1.9999, 1.0], [0, 0, 1, 2, 2]),  # too little is no improvement
        ({"patience": 0, "threshold": 0.1}, Metric("f1"), [-10, -9.5, -8.9], [0, 1, 1]),
        ({"patience": 0, "threshold": 0.1, "threshold_mode": "abs"}, LOSS, [10, 9.95, 9.8], [0, 1, 1]),
        ({"patience": 0, "cooldown": 2}, LOSS, [1, 1, 1, 1, 1, 1], [0, 1, 1, 1, 2, 2]),
        ({"patience": 0, "min_lr": 0.15}, LOSS, [1, 1, 1, 1], [0, 1, 2, 2]),
        ({"patience": 0, "min_lr": 1.0}, LOSS, [1, 1, 1], [0, 0, 0]),
        ({}, LOSS, [math.nan, math.inf, math.nan, math.nan, 5.0], [0, 1, 1, 2, 2]),
    ],
)
def test_reductions_follow_evaluations(options, metric, values, reductions):
    schedule, decided = plateau(**options), []
    for value in values:
        schedule.observe(value, metric)
        decided.append(int(schedule.scalars[REDUCTIONS]))
    assert decided == reductions
    assert schedule.reductions == 0  # until an exchange brings them


def test_rate_falls_with_the_exchange_after_the_evaluation(tmp_path, capsys):
    net, rates = make_net(), []
    run = esync.Run(tmp_path, evaluate=lambda: 0.5, background=False)
    trainer = local_trainer(net, "adam", {"learning_rate": 0.4, "lr_scheduler": plateau(min_lr=0.15)}, run=run)
    for number in range(9):
        rates.append(trainer.learning_rate)
        take_steps(net, trainer, number)
    trainer.close()
    assert rates == [0.4] * 4 + [0.2] * 2 + [0.15] * 3
    messages = [line for line in capsys.readouterr().out.splitlines() if "improved" in line]
    before = "accuracy has not improved on 0.500 in 2 evaluations: the learning rate falls from"
    assert messages == [f"{before} {fall} with the next exchange" for fall in ("0.4 to 0.2", "0.2 to 0.15")]


def answering(net: Any, answers: int = 9) -> World:
    """A world whose exchanges answer with the scalars that this worker has sent."""
    world = steady_world(flat(net), answers, ready=[True] * 100)

    def prepare(exchange: ScriptedExchange) -> None:
        start = exchange.start
        exchange.start = lambda payload, model: Completed(
            replace(start(payload, model).wait(), scalars={REDUCTIONS: payload.scalars[REDUCTIONS]})
        )

    world.prepare = prepare
    return world


@pytest.mark.parametrize("name", sorted(set(ALGORITHMS) - {"local", "tiered"}))
def test_exchanges_of_every_algorithm_carry_the_decision(name, tmp_path):
    net = make_net()
    options = {"learning_rate": 0.4, "lr_scheduler": plateau(patience=0)}
    arguments = {"world": answering(net), "run": evaluating(tmp_path), "limits": Limits(samples=10_000)}
    trainer = sgd_trainer(net, name, options, **arguments)
    for number in range(4 * 16):
        if trainer._started and trainer.round == 3:
            break
        take_steps(net, trainer, number % 3)
    assert trainer.learning_rate < 0.4
    assert trainer.world.made.specification.scalars[REDUCTIONS] == "maximum"


def test_worker_takes_the_highest_number_of_all_and_never_goes_back():
    schedule = plateau()
    schedule.check("accuracy")
    for brought, number in ((2.0, 2), (1.0, 2), (3.0, 3)):
        schedule.follow(Result(1, 1, 1, 0.0, 0.0, finished=False, scalars={REDUCTIONS: brought}))
        assert (schedule.reductions, schedule.scalars[REDUCTIONS], schedule(0)) == (number, number, 0.4 * 0.5**number)


def test_resumed_run_goes_on_with_rate_and_best_value(tmp_path):
    rates = []
    for resume, values in ((False, [0, 0.6, 0.5, 0.5, 0.5]), (True, [0, 0.55, 0.55, 0.55, 0.55])):
        net, checkpoints = make_net(), esync.Checkpoints(tmp_path / "kept", every=4, resume=resume)
        run = evaluating(tmp_path / "logs", values, checkpoints=checkpoints)
        trainer = local_trainer(net, "sgd", {"lr_scheduler": plateau()}, run=run)
        trainer.start()
        for number in range(4):
            rates.append(trainer.learning_rate)
            take_steps(net, trainer, number)
        rates.append(trainer.learning_rate)
        run.close()
        checkpoints.release()
    assert rates == [0.4, 0.4, 0.4, 0.4, 0.2, 0.2, 0.2, 0.2, 0.1, 0.1]


def test_plateau_without_evaluations_is_refused(tmp_path):
    for run in (None, esync.Run(tmp_path, quiet=True)):
        with pytest.raises(ValueError, match=r"nothing is evaluated: esync\.Trainer\(.*evaluate=…\)\)"):
            local_trainer(make_net(), "sgd", {"lr_scheduler": plateau()}, run=run)
    with pytest.raises(ValueError, match="follows the metric of a run"):
        mx.optimizer.create("sgd", lr_scheduler=plateau()).learning_rate  # noqa: B018 - of a trainer of Gluon's


def test_plateau_given_after_the_beginning_is_refused(tmp_path):
    net = make_net()
    trainer = local_trainer(net, run=evaluating(tmp_path))
    trainer._init_optimizer("sgd", {"lr_scheduler": plateau()})
    take_steps(net, trainer, 0)  # before the beginning it is followed
    assert trainer.learning_rate == 0.4
    trainer._init_optimizer("sgd", {"lr_scheduler": plateau()})
    with pytest.raises(ValueError, match="give it to the optimizer before the first step"):
        take_steps(net, trainer, 1)


def test_algorithm_that_does_not_carry_the_decision_is_refused(tmp_path):
    net = make_net()
    world = steady_world(flat(net), 3)  # answers without scalars
    trainer = sgd_trainer(net, "sync", {"lr_scheduler": plateau()}, world=world, run=evaluating(tmp_path))
    with pytest.raises(
        ValueError, match=r"'sync' starts its exchanges without the scalars .* Algorithm\._start_exchange"
    ):
        take_steps(net, trainer, 0)


def test_plateau_in_a_program_that_is_measured_leaves_the_rate(monkeypatch):
    monkeypatch.setenv("ESYNC_MEASURE", "1")
    net = make_net()
    trainer = esync.Trainer(net.collect_params(), "sgd", {"lr_scheduler": plateau()}, limits=Limits(rounds=1))
    take_steps(net, trainer, 0, 1)
    assert trainer.learning_rate == 0.4


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"factor": 1.0}, "factor=1.0: it should be above 0 and below 1"),
        ({"patience": -1}, "patience=-1: it should be a number of evaluations"),
        ({"cooldown": 1.5}, "cooldown=1.5: it should be a number of evaluations"),
        ({"threshold": math.nan}, "threshold=nan: it should be 0 or more"),
        ({"min_lr": -1}, "min_lr=-1: it should be 0 or more"),
        ({"threshold_mode": "relative"}, 'threshold_mode=\'relative\': it should be "rel" or "abs"'),
    ],
)
def test_plateau_with_invalid_options_is_refused(options, reason):
    with pytest.raises(ValueError, match=reason):
        plateau(**options)
