"""Programs with several optimizers, alone against plain Gluon, and on real clusters."""

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import esync
from esync.algorithms import ALGORITHMS
from esync.exchange import ExchangeError
from esync.runtime.mxnet_import import mx

from .harness import outputs_of
from .several_optimizers_worker import BATCH, OPTIMIZERS, PROGRAMS, Plan, batches, gan, networks, parameters_of, values

ROUNDS = 50


def plain(program: str, rounds: int, workers: int = 1) -> np.ndarray:
    """The weights after training with two trainers of Gluon, with the batches of all workers as one."""
    nets = networks()
    parameters = parameters_of(program, nets)
    trainers = [
        mx.gluon.Trainer(part, name, dict(options), kvstore=None)
        for part, (name, options) in zip(parameters, OPTIMIZERS[-len(parameters) :], strict=True)
    ]
    parts = zip(*(batches(rank, workers, 0, rounds) for rank in range(workers)), strict=True)
    for part in parts:
        batch = tuple(mx.nd.concat(*arrays, dim=0) for arrays in zip(*part, strict=True))
        PROGRAMS[program](nets, trainers, batch)
    return values(nets)


def trainers_of(nets: tuple[Any, Any], algorithm: Any) -> tuple[Any, Any]:
    trainer = esync.Trainer(nets[0].collect_params(), *OPTIMIZERS[0], algorithm=algorithm)
    return trainer, trainer.add_optimizer(nets[1].collect_params(), *OPTIMIZERS[1])


@pytest.mark.parametrize("program", ["gan", "metric"])
def test_two_optimizers_alone_are_two_gluon_trainers_to_the_last_bit(program: str) -> None:
    nets = networks()
    trainers = trainers_of(nets, "local")
    with trainers[0].trial():
        PROGRAMS[program](nets, trainers, next(batches(0, 1, 99, 100)))
    for batch in batches(0, 1, 0, ROUNDS):
        PROGRAMS[program](nets, trainers, batch)
    assert trainers[0].round == ROUNDS
    assert trainers[0].samples == ROUNDS * BATCH
    assert values(nets).tobytes() == plain(program, ROUNDS).tobytes()


def train(folder: Path, plans: list[Plan], servers: int = 1, expected: int = 0) -> list[str]:
    plans = [replace(plan, weights=str(folder / f"{rank}.npy")) for rank, plan in enumerate(plans)]
    return outputs_of(folder, [plan.arguments() for plan in plans], expected, servers)


@pytest.mark.parametrize("program", ["clipped", "single"])
def test_optimizers_and_multipliers_of_mode_sync_step_with_the_mean_gradient(tmp_path: Path, program: str) -> None:
    outputs = train(tmp_path, [Plan(program, "sync", "", ROUNDS)] * 2, servers=2)
    assert all(f"{ROUNDS} steps, round {ROUNDS}, {2 * BATCH * ROUNDS} samples" in output for output in outputs)
    first, second = (np.load(tmp_path / f"{rank}.npy") for rank in range(2))
    assert first.tobytes() == second.tobytes()
    assert np.allclose(first, plain(program, ROUNDS, workers=2), rtol=1e-3, atol=1e-4)
    assert not np.allclose(first, plain(program, ROUNDS - 1, workers=2), rtol=1e-3, atol=1e-4)


def test_killed_run_of_two_optimizers_resumes_bit_for_bit(tmp_path: Path) -> None:
    plan = Plan("gan", "sync", "", directory=str(tmp_path / "a"))
    train(tmp_path / "whole", [plan] * 2)
    parts = replace(plan, directory=str(tmp_path / "b"), resume=True)
    train(tmp_path / "killed", [replace(parts, killed=7)] * 2, expected=-signal.SIGKILL)
    outputs = train(tmp_path / "resumed", [parts] * 2)
    assert all("begins after round 4" in output for output in outputs)
    for rank in range(2):
        weights = [(tmp_path / name / f"{rank}.npy").read_bytes() for name in ("whole", "resumed")]
        assert weights[0] == weights[1]


def test_workers_that_step_their_optimizers_in_other_orders_are_named(tmp_path: Path) -> None:
    plans = [Plan("metric", "sync", "", swapped=swapped) for swapped in (False, True)]
    outputs = train(tmp_path, plans, expected=1)
    assert all("committed steps of weights" in output and "to round 1" in output for output in outputs), outputs


def test_two_optimizers_train_with_local_iterations(tmp_path: Path) -> None:
    plan = Plan("metric", "esync", "", 6, str(tmp_path / "kept"), options={"local_iterations": 3})
    outputs = train(tmp_path, [plan] * 2)
    assert all(f"18 steps, round 6, {2 * 18 * BATCH} samples" in output for output in outputs), outputs
    first, second = (np.load(tmp_path / f"{rank}.npy") for rank in range(2))
    assert first.tobytes() == second.tobytes()
    assert not np.allclose(first, values(networks()), atol=1e-3)


REFUSED = [
    ("async", {}, "has the servers take the steps of one optimizer"),
    ("scaffold", {}, "changes the gradients of all parameters together"),
    ("fedprox", {}, "changes the gradients of all parameters together"),
    ("sync", {"compression": "fp16"}, "packs one vector of weights with --compression"),
]


@pytest.mark.parametrize(("algorithm", "options", "reason"), REFUSED)
def test_algorithm_of_one_optimizer_is_named(algorithm: str, options: dict[str, Any], reason: str) -> None:
    from esync.world import RealWorld

    net = networks()[0]
    net.collect_params().setattr("lr_mult", 1)
    instance = ALGORITHMS[algorithm](**options)
    trainer = esync.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, algorithm=instance, world=RealWorld())
    with pytest.raises(ValueError, match=reason):
        trainer.add_optimizer(networks()[1].collect_params(), "sgd", {"learning_rate": 0.1})


def test_parameters_or_optimizer_that_another_one_has_are_refused() -> None:
    nets = networks()
    trainer, further = trainers_of(nets, "local")
    with pytest.raises(ValueError, match="parameter second_dense0_bias has an optimizer already"):
        trainer.add_optimizer(nets[1].collect_params(), "sgd")
    with pytest.raises(ValueError, match="make an optimizer for each"):
        trainer.add_optimizer(networks()[0].collect_params(), further.optimizer)
    with pytest.raises(ValueError, match="params is empty"):
        trainer.add_optimizer([], "sgd")


def test_checkpoint_of_two_networks_with_the_same_names_is_of_both(tmp_path: Path) -> None:
    def begin(seed: int, divided: int) -> tuple[Any, list[Any]]:
        mx.random.seed(seed)
        layers = [mx.gluon.nn.Dense(2, in_units=2, use_bias=False, prefix="same_") for _ in range(3)]
        for layer in layers:
            layer.initialize()
        checkpoints = esync.Checkpoints(tmp_path / "kept", every=1, resume=True)
        weights = [layer.weight for layer in layers]
        trainer = esync.Trainer(weights[:divided], "adam", algorithm="local", checkpoints=checkpoints)
        trainers = trainer.add_optimizer(weights[divided:], "adam"), trainer
        trainer.start()
        return trainers, weights

    trainers, weights = begin(1, 2)
    with mx.autograd.record():
        loss = sum(weight.data().sum() for weight in weights)
    loss.backward()
    for trainer in trainers:
        trainer.step(1)
    assert trainers[1].checkpoints.save_if_due()
    trainers[1].close()
    trainers, resumed = begin(2, 2)
    trainers[1].close()
    for one, other in zip(weights, resumed, strict=True):
        assert one.data().asnumpy().tobytes() == other.data().asnumpy().tobytes()
    with pytest.raises(ExchangeError, match="does not fit: parameters by optimizer, lr_mult and wd_mult"):
        begin(2, 1)


def test_optimizer_added_after_the_first_step_is_refused() -> None:
    nets = networks()
    trainers = trainers_of(nets, "local")
    gan(nets, trainers, next(batches(0, 1, 0, 1)))
    with pytest.raises(ValueError, match="add all optimizers before its first step"):
        trainers[0].add_optimizer(networks()[0].collect_params(), "sgd")
