"""Programs that change the network between steps, on real clusters; --long adds ways to do so.

What is refused is refused by each worker for itself: its exchange is scripted.
"""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import esync
from esync.algorithms import ALGORITHMS
from esync.algorithms.assigned_weights import HIGHEST, LOWEST, AssignedWeightsError
from esync.exchange import Payload, Result
from esync.gluon.parameter_kinds import UnsuitableParametersError
from esync.runtime.futures import Completed
from esync.runtime.mxnet_import import mx

from ..support.scripted_world import ScriptedExchange, World
from ..support.small_net import flat
from ..support.variants import variants
from . import changing_worker
from .changing_worker import Plan, build, main
from .harness import outputs_of


def train(folder: Path, plans: list[Plan]) -> list[dict[str, np.ndarray]]:
    """Return the parameters that each of two workers has in the end."""
    build(seed=9).save_parameters(str(folder / "best.params"))
    files = [str(folder / f"{rank}.params") for rank in range(len(plans))]
    outputs_of(
        folder, [dataclasses.replace(plan, out=file).arguments() for plan, file in zip(plans, files, strict=True)]
    )
    return [{name: array.asnumpy() for name, array in mx.nd.load(file).items()} for file in files]


def alone(folder: Path, **plan: Any) -> dict[str, np.ndarray]:
    """Return the parameters that a plain Gluon program has in the end."""
    build(seed=9).save_parameters(str(folder / "best.params"))
    out = folder / "plain.params"
    main(Plan(str(out), **plan))
    return {name: array.asnumpy() for name, array in mx.nd.load(str(out)).items()}


def assert_alike(one: dict[str, np.ndarray], other: dict[str, np.ndarray], tolerance: float = 0.0) -> None:
    """Check that two models are the same, up to a difference."""
    assert one.keys() == other.keys()
    for name, values in one.items():
        assert np.abs(values - other[name]).max() <= tolerance, name


#: Ways to assign weights that have nothing to do with those before.
ASSIGNMENTS = ["set_data", "load", "in_place", "initialize"]


@pytest.mark.parametrize("change", variants(["recover", *ASSIGNMENTS], quick=["recover"]))
def test_synchronous_workers_that_assign_the_same_weights_train_as_gluon_does(tmp_path: Path, change: str) -> None:
    plan: dict[str, Any] = {"change": change, "at": [3, 7], "rate_after": 0.05}
    both = train(tmp_path, [Plan("", "sync", seed=rank, **plan) for rank in range(2)])
    assert_alike(*both)
    assert_alike(both[0], alone(tmp_path, **plan), tolerance=1e-5)


#: Mode with options → change of the network, what a round's scalars are with those of others, and what is refused.
REFUSED: list[tuple[str, dict[str, Any], str, dict[str, float] | None, str]] = [
    ("sync", {}, "in_place", {LOWEST: 0.0}, "has assigned net_dense1_weight .*not all workers have assigned the same"),
    ("sync", {}, "", {HIGHEST: 7.0}, "another worker has assigned weights .*not all workers have assigned the same"),
    ("async", {}, "in_place", None, "assigned net_dense1_weight between .* mode 'async'.* use 'sync', or a mode with"),
    ("dgs", {"ratio": 0.1}, "in_place", None, "assigned net_dense1_weight .* mode 'dgs' are differences"),
    ("sync", {}, "freeze", None, r"grad_req of parameter net_dense0_\w+ was not 'null' .* is 'null' now"),
    ("local-sgd", {}, "unfreeze", None, r"grad_req of parameter net_dense0_\w+ was 'null' .* is 'write' now"),
    ("local-sgd", {"outer_momentum": 0.9}, "set_data", {}, "all workers have assigned net_dense1_weight"),
    ("local-sgd", {"global_lr": 0.5}, "set_data", {}, "all workers have assigned net_dense1_weight"),
]


@pytest.mark.parametrize(("mode", "options", "change", "other_scalars", "message"), REFUSED)
def test_change_that_an_exchange_would_not_bring_is_refused_by_name(
    tmp_path: Path,
    mode: str,
    options: dict[str, Any],
    change: str,
    other_scalars: dict[str, float] | None,
    message: str,
) -> None:
    if mode == "local-sgd":
        options = {"local_iterations": 1, **options}
    plan = Plan(str(tmp_path / "out"), change=change)
    net = build(seed=0)
    if change == "unfreeze":
        changing_worker.freeze(net, plan)
    weights = flat(net)

    def prepare(exchange: ScriptedExchange) -> None:
        exchange.beginning, start = weights, exchange.start

        def with_scalars(payload: Payload, model: Any) -> Completed[Result]:
            scalars = {**payload.scalars, **(other_scalars or {})}
            return Completed(dataclasses.replace(start(payload, model).wait(), scalars=scalars))

        exchange.start = with_scalars  # type: ignore[method-assign]

    world = World(answers=[(weights, False, True)] * 3, prepare=prepare)
    algorithm = ALGORITHMS[mode](**options)
    trainer = esync.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, algorithm=algorithm, world=world)
    trainer.start()

    def step() -> None:
        with mx.autograd.record():
            loss = net(mx.nd.ones((4, 3))).sum()
        loss.backward()
        trainer.step(4)

    if change:  # otherwise the scalars are another worker's from the beginning
        other_scalars, scalars = None, other_scalars
        step()
        other_scalars = scalars
        getattr(changing_worker, change)(net, plan)
    with pytest.raises((AssignedWeightsError, UnsuitableParametersError), match=message):
        step()


@pytest.mark.parametrize("change", variants(ASSIGNMENTS, quick=["load"]))
def test_weights_that_workers_assign_in_different_rounds_take_effect_for_all(tmp_path: Path, change: str) -> None:
    plan: dict[str, Any] = {"change": change, "options": {"local_iterations": 2}}
    both = train(tmp_path, [Plan("", "local-sgd", at=[2 + 5 * rank], **plan) for rank in range(2)])
    assert_alike(*both)
    expected = {"load": build(seed=9)[2].weight.data().asnumpy()}.get(change, 0.25)
    assert np.array_equal(both[0]["net_dense1_weight"], np.broadcast_to(expected, (2, 4)))


@pytest.mark.parametrize(("change", "at", "rate"), [("clip", [*range(12)], 0.01), ("freeze", [4], 0.1)])
def test_changes_of_workers_with_local_steps_are_part_of_their_updates(
    tmp_path: Path, change: str, at: list[int], rate: float
) -> None:
    plan: dict[str, Any] = {"change": change, "at": at, "rate_after": rate}
    both = train(tmp_path, [Plan("", "local-sgd", options={"local_iterations": 2}, **plan) for _ in range(2)])
    assert_alike(*both)
    assert_alike(both[0], alone(tmp_path, **plan), tolerance=1e-5)


@pytest.mark.parametrize("mode", variants(["sync", "local-sgd"], quick=["sync"]))
def test_parameters_that_the_trainer_lacks_are_the_same_on_all_workers(tmp_path: Path, mode: str) -> None:
    both = train(tmp_path, [Plan("", mode, seed=rank, head_only=True) for rank in range(2)])
    assert_alike(*both)
    body = build(seed=0)[0].weight.data().asnumpy()
    assert np.array_equal(both[0]["net_dense0_weight"], body)
    assert both[0]["net_batchnorm0_running_mean"].any()
    final = mx.nd.load(str(next(tmp_path.glob("0.params-logs/*/model/model.params"))))
    assert np.array_equal(final["1.running_mean"].asnumpy(), both[0]["net_batchnorm0_running_mean"])
