"""esync.Trainer.log: the numbers that a program logs, on their way into the logs of a round."""

import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import esync
from esync.algorithms import LocalSGD
from esync.reports.runs import load_run
from esync.reports.tensorboard_export import export
from esync.runtime.logged_values import MAX_NAMES, LoggedValueError
from esync.runtime.mxnet_import import mx

from ..support.event_files import scalars
from ..support.scripted_world import steady_world
from ..support.small_net import BATCH, backward, flat, local_trainer, make_net, sgd_trainer, take_steps


def entries(run: esync.Run) -> list[dict[str, float | None] | None]:
    """What each round's log file has of what was logged."""
    assert run.folder is not None
    paths = sorted(run.folder.glob("iter-*.txt"), key=lambda path: int(path.stem.removeprefix("iter-")))
    return [json.loads(path.read_text(), parse_constant=lambda text: pytest.fail(text)).get("logged") for path in paths]


def logging_run(folder: Path, **options: Any) -> esync.Run:
    return esync.Run(folder, quiet=True, background=False, **options)


def test_log_of_local_has_each_iteration_and_numbers_of_all_kinds(tmp_path):
    pytest.importorskip("tensorboardX")
    run, net = logging_run(tmp_path / "logs", tensorboard=tmp_path / "events", evaluate=lambda: 0.5), make_net()
    with local_trainer(net, run=run, limits=esync.Limits(rounds=5)) as trainer:
        changed = mx.nd.array([1.0])
        for number, values in enumerate(
            [
                {"loss": changed, "rate": trainer.learning_rate, "count": 3, "of_numpy": np.array([[2]], np.int8)},
                {"loss": mx.np.array(0.25), "flag": True, "größe": np.float16(0.5)},
                {"loss": math.nan, "rate": mx.nd.array([math.inf])},
                {},
                {"loss": mx.nd.array([2.0], dtype="float16")},
            ]
        ):
            trainer.log(**values)
            if number == 4:
                trainer.log(loss=4)  # the mean of both
            changed += 10  # in place, after it was logged
            take_steps(net, trainer, number)
    assert entries(run) == [
        {"loss": 1.0, "rate": 0.1, "count": 3.0, "of_numpy": 2.0},
        {"loss": 0.25, "flag": 1.0, "größe": 0.5},
        {"loss": None, "rate": None},
        None,
        {"loss": 3.0},
    ]
    assert run.folder is not None
    (exported,) = export([load_run(run.folder)], tmp_path / "exported")
    for folder in (tmp_path / "events" / "cpu", next(exported.glob("*/cpu"))):
        series = scalars(folder)
        assert [(step, value) for step, value, _ in series["loss"]] == [(1, 1.0), (2, 0.25), (5, 3.0)]
        assert [step for step, _, _ in series["rate"]] == [1]


def test_log_has_the_mean_of_a_round_without_left_out_batches(tmp_path):
    run, net = logging_run(tmp_path), make_net()
    trainer = sgd_trainer(net, LocalSGD(local_iterations=3), world=steady_world(flat(net), 2), run=run)
    with trainer.trial():
        backward(net, 0)
        trainer.log(loss=100.0)
        trainer.step(BATCH)
    trainer.log(loss=50.0)
    backward(net, 0)
    net[0].weight.set_data(net[0].weight.data() + 1)  # so that the gradients are not those of the common weights
    trainer.step(BATCH)
    assert trainer.abandoned
    for number in range(6):
        trainer.log(loss=float(number))
        if number == 4:
            trainer.log(rare=7)
        take_steps(net, trainer, number)
    trainer.close()
    assert entries(run) == [{"loss": 1.0}, {"loss": 4.0, "rare": 7.0}]


def test_log_without_run_keeps_nothing_that_grows():
    net = make_net()
    trainer = local_trainer(net)
    for number in range(50):
        trainer.log(loss=mx.nd.array([number]))
        take_steps(net, trainer, 0)
    assert (trainer._logged._pending, trainer.world.recorder._logged) == ([], {"loss": (24.5, 50)})


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"loss": "0.5"}, "loss is '0.5', but should be one number"),
        ({"loss": None}, "loss is None, but"),
        ({"loss": Decimal(1)}, r"loss is Decimal\('1'\), but"),
        ({"loss": 1j}, "loss is 1j, but"),
        ({"loss": [[1], [2, 3]]}, "loss is .*, but"),
        ({"loss": np.zeros(2)}, r"loss is an array of float64, \(2,\), but"),
        ({"loss": mx.nd.zeros((3, 1))}, r"loss is an array of .*float32.*, \(3, 1\), but .* the loss's mean\(\)"),
        ({"train loss": 1}, "'train loss' is no name: write it like a Python variable"),
        ({"x" * 61: 1}, "is no name"),
        ({"accuracy": 1}, "the logs have another value named 'accuracy': choose another name"),
        ({"get_batch": 1}, "the logs have another value named 'get_batch'"),
        ({"samples_per_second": 1}, "the logs have another value named 'samples_per_second'"),
        ({f"name{number}": 1 for number in range(MAX_NAMES + 1)}, f"'name{MAX_NAMES}' is name 33, but .* 32"),
    ],
)
def test_log_refuses_by_name(values, reason, tmp_path):
    trainer = local_trainer(make_net(), run=logging_run(tmp_path, evaluate=lambda: 0.5))
    with pytest.raises(LoggedValueError, match=rf"^trainer\.log: .*{reason}"):
        trainer.log(**values)


def test_log_of_a_resumed_run_goes_on(tmp_path):
    for resume, rounds in ((False, 2), (True, 4)):
        net, checkpoints = make_net(), esync.Checkpoints(tmp_path / "kept", every=1, resume=resume)
        run = logging_run(tmp_path / "logs", checkpoints=checkpoints)
        with local_trainer(net, run=run, limits=esync.Limits(rounds=rounds)) as trainer:
            trainer.start()
            while not trainer.finished:
                trainer.log(**{"second" if resume else "first": trainer.round})
                take_steps(net, trainer, trainer.round)
    assert entries(run) == [{"first": 0.0}, {"first": 1.0}, {"second": 2.0}, {"second": 3.0}]
