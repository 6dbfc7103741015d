"""Exchanges of the float32 copies that an optimizer keeps of float16 weights."""

from pathlib import Path

import numpy as np
import pytest

import esync
from esync.algorithms import DyLU, ESync, LocalSGD
from esync.gluon.master_weights import NoMasterWeightsError
from esync.runtime.mxnet_import import mx
from esync.world import RealWorld

from ..support.scripted_world import World, steady_world
from ..support.small_net import differentiate, single_weight

#: Between 1 and 2 float16 counts in steps of 2⁻¹⁰.
FINE = 1 + 2.0**-13
SGD = {"learning_rate": 2.0**-12, "multi_precision": True}
OPTIMIZERS = ["sgd", "nag", "adam", "lars", "lamb", "lbsgd", "rmsprop", "adagrad", "dcasgd", "signum", "nadam"]


def make_world(*answers: float) -> World:
    """Make a world where the common weights are 1 at first, and then each of the answers."""
    return World(answers=[([answer, answer], False, True) for answer in answers], beginning=[1.0, 1.0])


def make_trainer(weight, world, optimizer="sgd", options=None, algorithm=None, **kwargs) -> esync.Trainer:
    algorithm = algorithm or LocalSGD(local_iterations=1)
    options = {**SGD, **(options or {})} if isinstance(optimizer, str) else None
    return esync.Trainer([weight], optimizer, options, algorithm=algorithm, world=world, **kwargs)


def step(trainer, slope: float = -1.0) -> None:
    """A step of a gradient that does not depend on the weight."""
    (weight,) = trainer._params
    differentiate(lambda: (weight.data() * slope).sum())
    trainer.step(1)


@pytest.mark.parametrize(
    "algorithm",
    [LocalSGD(local_iterations=1), ESync(local_iterations=1, outer_momentum=0.5), DyLU(local_iterations=1)],
    ids=lambda algorithm: algorithm.name,
)
def test_master_weights_make_updates_exact_to_the_last_bit(algorithm):
    weight, world = single_weight("float16"), make_world(FINE, 2 * FINE, 3.0)
    trainer = make_trainer(weight, world, algorithm=algorithm)
    for common in (FINE, 2 * FINE, 3.0):
        step(trainer)
        assert weight.data().asnumpy().tolist() == [np.float16(common)] * 2
    assert [sent.values for sent in world.made.sent] == [[2.0**-12] * 2] * 3


@pytest.mark.parametrize("momentum", [0.0, 0.5])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_master_weights_of_every_optimizer_are_found(name, momentum):
    """The step after an exchange starts from the common model, also with momentum."""
    options = {"momentum": momentum} if name in ("sgd", "nag", "lars", "lbsgd", "signum") else {}
    weight, world = single_weight("float16"), make_world(FINE, 2 * FINE)
    trainer = make_trainer(weight, world, name, options)
    for _ in range(2):
        step(trainer)
    assert weight.data().asnumpy().tolist() == [np.float16(2 * FINE)] * 2
    assert np.abs(world.made.sent[1].values).max() < 0.02  # 0.9 where the copy had stayed at 1


def test_master_weights_beside_float32_weights_are_exchanged_together():
    half, single = single_weight("float16"), mx.gluon.Parameter("whole", shape=(2,), init="ones")
    single.initialize()
    world = steady_world([1.0] * 4)
    world.answers = [([FINE] * 4, False, True)] * 2
    trainer = esync.Trainer([half, single], "sgd", SGD, algorithm=LocalSGD(local_iterations=1), world=world)
    for _ in range(2):
        differentiate(lambda: -half.data().astype("float32").sum() - single.data().sum())
        trainer.step(1)
    assert world.made.sent[1].values == [2.0**-12] * 4
    assert single.data().asnumpy().tolist() == [np.float32(FINE)] * 2


def test_master_weights_hidden_by_the_optimizer_are_refused():
    class Secretive(mx.optimizer.SGD):
        def create_state_multi_precision(self, index, weight):
            return {"copy": weight.astype("float32")}

    weight = single_weight("float16")
    trainer = make_trainer(weight, make_world(), Secretive(multi_precision=True))
    with pytest.raises(NoMasterWeightsError, match="'Secretive' has multi_precision, but its state does not show"):
        trainer.start()
    make_trainer(weight, RealWorld(), Secretive(multi_precision=True), algorithm="local").start()  # exchanges nothing


@pytest.mark.parametrize("before", [0, 1])
def test_master_weights_are_unchanged_by_a_trial(before):
    weight, world = single_weight("float16"), make_world(FINE, 2 * FINE)
    trainer = make_trainer(weight, world, options={"momentum": 0.5})
    for _ in range(before):
        step(trainer)
    with trainer.trial():
        step(trainer, -1000.0)
    step(trainer)
    assert world.made.sent[-1].values == [2.0**-12 * (1 + 0.5 * before)] * 2


# --- checkpoints ----------------------------------------------------------------------------------


def keep(directory: Path, weight=None, options=None, rank: int = 0, resume: bool = True, world=None, **changes):
    """A trainer with checkpoints after every round; `changes` are made to its exchange."""
    world = world or make_world(FINE, 2 * FINE, 3 * FINE)

    def prepare(exchange) -> None:
        for name, value in changes.items():
            setattr(exchange, name, value)
        exchange.resume = lambda progress: None
        exchange.rule_state = list
        exchange.version = lambda: 0

    world.rank, world.prepare = rank, prepare
    checkpoints = esync.Checkpoints(directory, every=1, resume=resume)
    return make_trainer(weight or single_weight("float16"), world, options=options, checkpoints=checkpoints)


def kept_round(directory: Path, **kwargs) -> None:
    """Train until the checkpoint of the first round."""
    trainer = keep(directory, resume=False, **kwargs)
    step(trainer)
    trainer.checkpoints.save_if_due()


def test_master_weights_of_resumed_worker_0_start_the_run(tmp_path):
    kept_round(tmp_path)
    trainer = keep(tmp_path, resume_at=1)
    trainer.start()
    assert trainer.world.made.log[1] == ("begin", [FINE] * 2, [])


def test_master_weights_that_differ_from_the_model_are_replaced_by_it(tmp_path):
    """Checkpoints of earlier releases hold the optimizer's own copies."""
    trainer = keep(tmp_path, resume=False)
    step(trainer)
    trainer._updaters[0].states[0][1][:] = mx.nd.array([7.0, FINE])
    trainer.checkpoints.save_if_due()
    trainer = keep(tmp_path, resume_at=1)
    trainer.start()
    assert trainer.world.made.log[1] == ("begin", [1.0, FINE], [])


def test_master_weights_of_a_replacement_come_from_the_common_model(tmp_path):
    kept_round(tmp_path, rank=1, options={"momentum": 0.5})
    world = make_world(5.0, 6.0)
    kwargs = {"rank": 1, "options": {"momentum": 0.5}, "replacement": True, "beginning": [3.0, FINE]}
    trainer = keep(tmp_path, world=world, resume=False, **kwargs)
    trainer.start()
    assert trainer._params[0].data().asnumpy().tolist() == [3.0, np.float16(FINE)]
    step(trainer)
    assert world.made.sent[0].values == [2.0**-12 * 1.5] * 2  # with the dead worker's momentum


@pytest.mark.parametrize("flag", [True, False])
def test_master_weights_in_checkpoint_must_match_the_run(tmp_path, flag, caplog):
    kept_round(tmp_path, options={"multi_precision": not flag})
    trainer = keep(tmp_path, options={"multi_precision": flag}, job=7, replacement=True)
    trainer.start()
    assert f"begins anew: {tmp_path / 'round-1'} does not fit: multi_precision" in caplog.text
    step(trainer)
    trainer = keep(tmp_path, options={"multi_precision": flag})
    trainer.start()
    problem = f"round-1 does not fit: multi_precision {not flag} instead of {flag}; give what it was written with, or "
    assert problem in trainer.world.made.offers.problem


def test_master_weights_of_float32_parameters_do_not_exist(tmp_path):
    kept_round(tmp_path, weight=single_weight("float32"), options={"multi_precision": True})
    trainer = keep(tmp_path, single_weight("float32"), {"multi_precision": False})
    trainer.start()
    offers = trainer.world.made.offers
    assert (offers.problem, len(offers.parts)) == ("", 1)
