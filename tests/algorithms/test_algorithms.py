"""Every algorithm on one worker, with scripted exchanges, state server and clock."""

from typing import Any

import numpy as np
import pytest

from esync import config
from esync.algorithms import ASGD, DCASGD, SSGD, SSP, DiLoCo, DyLU, ESync, GDAsync, Hyper, LocalSGD, SyncSwitch
from esync.algorithms.assigned_weights import SCALARS as ASSIGNED
from esync.algorithms.gradient_noise import GradientNoise
from esync.exchange import STATISTICS, WEIGHTS, Result, Specification
from esync.exchange.protocol.round_state import Limits

from ..support.scripted_world import ScriptedExchange, Sent, World, begun, steady_world
from ..support.small_net import flat, make_net, sgd_trainer, take_steps


def fixed() -> ESync:
    """ESync that exchanges after every iteration."""
    return ESync(local_iterations=1)


#: What every synchronous exchange carries.
SCALARS = {**ASSIGNED, **GradientNoise.SCALARS}


@pytest.mark.parametrize(
    ("algorithm", "specification"),
    [
        (SSGD(), Specification("sgd", synchronous=True, scalars=SCALARS)),
        (ASGD(), Specification("sgd", synchronous=False)),
        (
            DCASGD(strength=0.7, adaptive=True, on="sum"),
            Specification(
                "delay_compensated_sgd", False, {"strength": 0.7, "adaptive": True, "on": "sum"}, private=True
            ),
        ),
        (ESync(local_iterations=1), Specification("add_mean_update", synchronous=True, scalars=SCALARS)),
        (LocalSGD(), Specification("add_mean_update", synchronous=True, scalars=SCALARS)),
        (SSP(staleness=2), Specification("sgd", synchronous=False, staleness=2)),
        (DyLU(), Specification("delayed_nesterov", synchronous=False)),
        (
            DiLoCo(weighting="samples"),
            Specification("outer_nesterov", synchronous=True, weighting="samples", scalars=SCALARS),
        ),
    ],
)
def test_algorithm_start_asks_the_servers_for_its_specification(algorithm, specification):
    world, _ = begun(algorithm, limits=Limits(rounds=9))
    assert world.made.specification == specification
    assert world.made.log[:2] == [
        ("join", {WEIGHTS: 2, STATISTICS: 1}, Limits(rounds=9), {"network": "lenet"}),
        ("begin", [0.0, 0.0], [5.0]),
    ]


@pytest.mark.parametrize("kind", [SSGD, DCASGD, fixed, ESync])
def test_algorithm_of_a_replacement_continues_the_counters_of_its_slot(kind):
    world, algorithm = begun(kind(), replaces=7, answers=[([0, 0], False, True)], ready=[True])
    assert algorithm.round == 7
    world.step(algorithm, [0, 0])
    assert algorithm.round == 8


@pytest.mark.parametrize("kind", [SSGD, ASGD, DCASGD, fixed])
def test_algorithm_started_in_a_finished_run_is_finished(kind):
    algorithm = kind()

    class Over(ScriptedExchange):
        def begin(self, *model: Any) -> Result:
            return Result(3, 9, 0, 0.0, 0.0, finished=True)

    world = World()
    world.exchange = lambda specification: Over(specification, 0, [])
    world.start(algorithm)
    assert algorithm.finished


@pytest.mark.parametrize("kind", [SSGD, ASGD, DCASGD, fixed])
def test_algorithm_passes_stop_abort_and_close_to_the_exchange(kind):
    algorithm = kind()
    for early in (algorithm.stop, algorithm.close):
        early()  # before the start there is nobody to tell
    algorithm.abort("too early")
    world, _ = begun(algorithm)
    del world.made.log[:]
    algorithm.stop()
    algorithm.abort("the loss is NaN")
    algorithm.close()
    assert world.made.log[:3] == ["stop", ("abort", "the loss is NaN"), "close"]
    assert world.made.log[3:] == (["no more questions"] if kind is ESync else [])


def test_ssgd_sends_mean_gradient_and_statistics():
    world, algorithm = begun(SSGD(), answers=[([3, 4], False, True), ([5, 6], True, True)])
    world.hyper = [Hyper(0.1, 0.9, 0.01, 2.0), Hyper(0.05, 0.8, 0.0, 1.0)]
    world.step(algorithm, [8, -4], batch_size=4)
    assert world.replica.weights.values.tolist() == [3, 4]
    world.step(algorithm, [8, -4], batch_size=2)
    assert world.made.sent == [
        Sent([4.0, -2.0], [5.0], 4, 0.1, 0.9, 0.01),  # gradient · rescale ÷ batch size
        Sent([4.0, -2.0], [5.0], 2, 0.05, 0.8, 0.0),
    ]
    assert world.replica.steps == []  # no local optimizer


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("kind", [ASGD, DCASGD])
def test_asynchronous_algorithm_sends_statistics_and_rank_0_receives_their_mean(kind, rank):
    world, algorithm = begun(kind(), rank=rank, answers=[([3, 4], False, True)])
    world.step(algorithm, [8, -4])
    assert world.made.sent == [Sent([2.0, -1.0], [5.0], 4, 0.1, 0.9, 0.01)]
    assert world.made.returned == [{WEIGHTS, STATISTICS} if rank == 0 else {WEIGHTS}]
    assert world.replica.own_statistics == [True] * (rank == 0)


def test_asynchronous_algorithm_with_statistics_rank0_sends_none():
    world, algorithm = begun(ASGD(statistics="rank0"), answers=[([3, 4], False, True)])
    world.step(algorithm, [8, -4])
    assert world.made.sent == [Sent([2.0, -1.0], None, 4, 0.1, 0.9, 0.01)]
    assert world.replica.own_statistics == []


def test_dylu_takes_iterations_by_its_speed_and_reports_it():
    world, algorithm = begun(DyLU(local_iterations=5), answers=[([3, 4], False, True), ([5, 6], False, True)])
    world.made.fastest = 1.0  # this device takes 2 s
    exchanged = []
    for _ in range(3):
        world.step(algorithm, [1, 0])
        exchanged.append(algorithm.exchanged)
    assert exchanged == [True, False, True]
    assert [sent.values for sent in world.made.sent] == [[1.0, 0.0], [2.0, 0.0]]
    assert [sent.samples for sent in world.made.sent] == [4, 8]
    assert {(sent.learning_rate, sent.momentum, sent.pace) for sent in world.made.sent} == {
        (config.DILOCO_GLOBAL_LR, config.DILOCO_OUTER_MOMENTUM, 2.0)
    }
    assert world.made.sent[0].statistics == [5.0]
    assert world.replica.own_statistics == [True, True]  # … and the mean is kept beside them


def test_diloco_exchanges_after_its_local_iterations_with_the_outer_momentum():
    algorithm = DiLoCo(local_iterations=2, global_lr=0.7, outer_momentum=0.9)
    world, _ = begun(algorithm, answers=[([3, 4], False, True)])
    world.step(algorithm, [1, 0])
    assert not algorithm.exchanged
    world.step(algorithm, [1, 1])
    assert algorithm.exchanged
    assert world.made.sent == [Sent([2.0, 1.0], [5.0], 8, 0.7, 0.9, 0.0)]
    assert not world.addresses  # nobody has asked for a state server


@pytest.mark.parametrize("mode", ["gd-async", "dgs"])
def test_sparse_algorithm_sends_statistics_with_every_tenth_exchange(mode):
    net = make_net()
    world = steady_world(flat(net), answers=21)
    take_steps(net, sgd_trainer(net, mode, world=world), *range(21))
    assert [number for number, sent in enumerate(world.made.sent) if sent.statistics] == [0, 10, 20]


def test_sparse_algorithm_sends_a_share_of_large_tensors_and_small_ones_whole():
    sent = {}
    for below in (0, 10):  # tensors have 30, 18, and thrice 6 and 3 values
        net = make_net()
        world = steady_world(flat(net), answers=1)
        take_steps(net, sgd_trainer(net, GDAsync(ratio=0.1, dense_below=below), world=world), 0)
        sent[below] = np.count_nonzero(world.made.sent[0].values)
    assert 3 + 2 < sent[0] <= 3 + 2 + 4 < 15 < sent[10] <= 3 + 2 + 21


@pytest.mark.parametrize("kind", [SSGD, ASGD, DCASGD])
def test_gradient_algorithms_count_every_iteration_as_a_round(kind):
    world, algorithm = begun(kind(), answers=[([0, 0], number == 3, True) for number in (1, 2, 3)])
    for round_ in (1, 2, 3):
        assert not algorithm.finished
        world.step(algorithm, [1, 1])
        assert (algorithm.round, algorithm.iterations, algorithm.exchanged) == (round_, 1, True)
        assert algorithm.result is not None
        assert algorithm.result.wait == 0.5
    assert algorithm.finished


@pytest.mark.parametrize("kind", [ASGD, DCASGD, fixed])
def test_algorithm_ignores_an_answer_that_comes_after_the_end(kind):
    world, algorithm = begun(kind(), answers=[([0, 0], False, True), ([0, 0], True, False)])
    world.step(algorithm, [1, 1])
    world.step(algorithm, [1, 1])
    assert (algorithm.round, algorithm.exchanged, algorithm.finished) == (1, False, True)


def test_sync_switch_checkpoint_terms_are_the_schedule_and_the_policy():
    algorithm = SyncSwitch(train_steps=(4, 12), batch_size=4, lr_decay="0.5:0.1")
    assert algorithm.checkpoint_terms == {
        "batch size": 4,
        "schedule": "Schedule(order='10', train_steps=(4, 12), bsp_share=None, ckpt_frequency=(), hparams=())",
        "decay of the learning rate": "((0.5, 0.1),)",
        "online policy": "None",
        "momentum at the switch": "keep",
    }
    assert algorithm.terms == {**algorithm.checkpoint_terms, "evaluated statistics": "mean"}


def test_sync_switch_checkpoint_terms_name_the_ramp_only_where_there_is_one():
    schedule: Any = {"train_steps": (4, 12), "batch_size": 4}
    usual = SyncSwitch(**schedule).checkpoint_terms.items()
    assert dict(SyncSwitch(**schedule, switch_momentum="reset").checkpoint_terms.items() - usual) == {
        "momentum at the switch": "reset"
    }
    assert dict(SyncSwitch(**schedule, switch_momentum="linear").checkpoint_terms.items() - usual) == {
        "momentum at the switch": "linear",
        "momentum ramp": config.MOMENTUM_RAMP,
    }
