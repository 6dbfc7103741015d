"""Programs that change the network between steps, on real clusters; --long adds ways to do so."""

import dataclasses
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ..support.variants import variants
from .changing_worker import Plan, build
from .harness import Cluster


def train(folder: Path, plans: list[Plan], expected: int = 0) -> tuple[list[dict[str, np.ndarray]], list[str]]:
    """Return the parameters that each of two workers has in the end, and what it has said."""
    from esync.runtime.mxnet_import import mx

    build(seed=9).save_parameters(str(folder / "best.params"))
    with Cluster(folder, len(plans)) as cluster:
        for rank, plan in enumerate(plans):
            cluster.start_worker(rank, dataclasses.replace(plan, out=str(folder / f"{rank}.params")).arguments())
        cluster.finish(expected)
        said = [cluster.output(f"worker-{rank}") for rank in range(len(plans))]
    files = [folder / f"{rank}.params" for rank in range(len(plans))]
    return [{name: each.asnumpy() for name, each in mx.nd.load(str(f)).items()} for f in files if f.exists()], said


def alone(folder: Path, **plan: Any) -> dict[str, np.ndarray]:
    """Return the parameters that a plain Gluon program has in the end."""
    from esync.runtime.mxnet_import import mx

    build(seed=9).save_parameters(str(folder / "best.params"))
    out = folder / "plain.params"
    subprocess.run([sys.executable, *Plan(str(out), **plan).arguments()], check=True, timeout=60)
    return {name: each.asnumpy() for name, each in mx.nd.load(str(out)).items()}


def assert_alike(one: dict[str, np.ndarray], other: dict[str, np.ndarray], tolerance: float = 0.0) -> None:
    """Check that two models are the same, up to a difference."""
    assert one.keys() == other.keys()
    for name, values in one.items():
        assert np.abs(values - other[name]).max() <= tolerance, name


#: Ways to assign weights that have nothing to do with those before.
ASSIGNMENTS = ["set_data", "load", "in_place", "initialize"]


@pytest.mark.parametrize("change", variants(["recover", "clip", *ASSIGNMENTS], quick=["recover", "clip"]))
def test_synchronous_workers_that_assign_the_same_weights_train_as_gluon_does(tmp_path: Path, change: str) -> None:
    plan: dict[str, Any] = {"change": change, "at": [3, 7], "rate_after": 0.05}
    both, _ = train(tmp_path, [Plan("", "sync", seed=rank, **plan) for rank in range(2)])
    assert_alike(*both)
    assert_alike(both[0], alone(tmp_path, **plan), tolerance=1e-5)


@pytest.mark.parametrize(
    ("mode", "at", "said"),
    [
        (
            "sync",
            ([], [3]),
            r"not all workers have assigned the same.*\(this one has assigned net_dense1_w|has assigned net_dense1_w",
        ),
        (
            "async",
            ([3], [3]),
            "assigned net_dense1_weight between two steps; .* mode 'async'.* use 'sync', or a mode with",
        ),
        pytest.param(
            "dgs", ([3], [3]), "assigned net_dense1_weight .* mode 'dgs' are differences", marks=pytest.mark.long
        ),
        pytest.param("dcasgd", ([3], [3]), "assigned net_dense1_weight .* mode 'dcasgd'", marks=pytest.mark.long),
    ],
)
def test_assigned_weights_that_servers_cannot_take_over_are_refused_by_name(
    tmp_path: Path, mode: str, at: tuple[list[int], list[int]], said: str
) -> None:
    _, outputs = train(tmp_path, [Plan("", mode, "in_place", steps) for steps in at], expected=1)
    assert any(re.search(said, output) for output in outputs), outputs


@pytest.mark.parametrize("change", variants(ASSIGNMENTS, quick=["load"]))
def test_weights_that_workers_assign_in_different_rounds_take_effect_for_all(tmp_path: Path, change: str) -> None:
    plan: dict[str, Any] = {"change": change, "options": {"local_iterations": 2}}
    both, _ = train(tmp_path, [Plan("", "local-sgd", at=[2 + 5 * rank], **plan) for rank in range(2)])
    assert_alike(*both)
    expected = {"load": build(seed=9)[2].weight.data().asnumpy()}.get(change, 0.25)
    assert np.array_equal(both[0]["net_dense1_weight"], np.broadcast_to(expected, (2, 4)))


def test_projections_of_workers_with_local_steps_are_part_of_their_updates(tmp_path: Path) -> None:
    plan: dict[str, Any] = {"change": "clip", "at": list(range(12)), "rate_after": 0.01}
    both, _ = train(tmp_path, [Plan("", "local-sgd", options={"local_iterations": 2}, **plan) for _ in range(2)])
    assert_alike(*both)
    assert_alike(both[0], alone(tmp_path, **plan), tolerance=1e-5)


@pytest.mark.parametrize(
    ("mode", "change", "said"),
    [
        ("sync", "freeze", r"grad_req of parameter net_dense0_\w+ was not 'null' .* is 'null' now"),
        ("local-sgd", "unfreeze", r"grad_req of parameter net_dense0_\w+ was 'null' .* is 'write' now"),
    ],
)
def test_changed_grad_req_is_refused_by_name(tmp_path: Path, mode: str, change: str, said: str) -> None:
    _, outputs = train(tmp_path, [Plan("", mode, change, [3]) for _ in range(2)], expected=1)
    assert any(re.search(said, output) for output in outputs), outputs


def test_layer_that_local_steps_freeze_stands_still(tmp_path: Path) -> None:
    plan: dict[str, Any] = {"change": "freeze", "at": [4], "rate_after": 0.1}
    both, _ = train(tmp_path, [Plan("", "local-sgd", options={"local_iterations": 2}, **plan) for _ in range(2)])
    assert_alike(both[0], alone(tmp_path, **plan), tolerance=1e-5)


@pytest.mark.parametrize("mode", variants(["sync", "local-sgd"], quick=["sync"]))
def test_parameters_that_the_trainer_lacks_are_the_same_on_all_workers(tmp_path: Path, mode: str) -> None:
    from esync.runtime.mxnet_import import mx

    both, _ = train(tmp_path, [Plan("", mode, seed=rank, head_only=True) for rank in range(2)])
    assert_alike(*both)
    body = build(seed=0)[0].weight.data().asnumpy()
    assert np.array_equal(both[0]["net_dense0_weight"], body)
    assert both[0]["net_batchnorm0_running_mean"].any()
    final = mx.nd.load(str(next(tmp_path.glob("0.params-logs/*/model/model.params"))))
    assert np.array_equal(final["1.running_mean"].asnumpy(), both[0]["net_batchnorm0_running_mean"])


@pytest.mark.parametrize("options", [{"outer_momentum": 0.9}, {"global_lr": 0.5}])
def test_weights_that_an_exchange_would_not_bring_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    plan = Plan("", "local-sgd", "set_data", [2], options={"local_iterations": 2, **options})
    _, outputs = train(tmp_path, [plan, plan], expected=1)
    assert any("all workers have assigned net_dense1_weight" in output for output in outputs), outputs
