"""One worker's algorithm in a world whose other workers, and whose state server, are scripted."""

import subprocess
import sys
from typing import Any

import pytest

from esync import config
from esync.algorithms import (
    ALGORITHMS,
    ASGD,
    DCASGD,
    SSGD,
    SSP,
    AlgorithmContext,
    DiLoCo,
    DyLU,
    ESync,
    Hyper,
    Local,
    LocalSGD,
    SyncSwitch,
    make,
)
from esync.algorithms.context import NoCheckpoints
from esync.algorithms.switch_schedule import Schedule
from esync.exchange import STATISTICS, WEIGHTS, Result, Specification
from esync.exchange.protocol.resume_negotiation import ResumeState, RunProgress
from esync.exchange.protocol.round_state import Limits

from ..support.scripted_world import ScriptedExchange, Sent, World


def fixed() -> ESync:
    """ESync that exchanges after every iteration."""
    return ESync(local_iterations=1)


@pytest.mark.parametrize(
    ("name", "kind"), [("esync", ESync), ("sync", SSGD), ("async", ASGD), ("dcasgd", DCASGD), ("local", Local)]
)
def test_algorithms_by_name(name, kind):
    assert type(make(name)) is kind
    assert kind.name == name
    assert name in ALGORITHMS


def test_an_algorithm_object_is_taken_as_it_is():
    mine = ESync(global_lr=0.5)
    assert make(mine) is mine


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match=r"unknown algorithm 'ssgd'.*sync"):
        make("ssgd")


def test_algorithms_and_protocol_need_no_mxnet():
    """They also run in the simulator and in tests; nothing of what they import may load the engine."""
    modules = (
        "algorithms",
        "exchange.protocol.parameter_server",
        "exchange.protocol.handshake",
        "rules",
        "runtime.phase_timer",
        "runtime.device",
    )
    program = "import sys; sys.modules['mxnet'] = None\n" + "".join(f"import esync.{name}\n" for name in modules)
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize(
    ("algorithm", "specification"),
    [
        (SSGD(), Specification("sgd", synchronous=True)),
        (ASGD(), Specification("sgd", synchronous=False)),
        (
            DCASGD(0.7, adaptive=True, on="sum"),
            Specification(
                "delay_compensated_sgd", False, {"strength": 0.7, "adaptive": True, "on": "sum"}, private=True
            ),
        ),
        (
            DCASGD(),
            Specification(
                "delay_compensated_sgd",
                False,
                {
                    "strength": config.DCASGD_LAMBDA,
                    "adaptive": config.DCASGD_ADAPTIVE,
                    "on": config.DCASGD_LAMBDA_ON,
                },
                private=True,
            ),
        ),
        (ESync(local_iterations=1), Specification("add_mean_update", synchronous=True)),
        (LocalSGD(), Specification("add_mean_update", synchronous=True)),
        (SSP(2), Specification("sgd", synchronous=False, staleness=2)),
        (DyLU(), Specification("delayed_nesterov", synchronous=False)),
        (DiLoCo(weighting="samples"), Specification("outer_nesterov", synchronous=True, weighting="samples")),
    ],
)
def test_what_the_servers_are_asked_for(algorithm, specification):
    world = World(limits=Limits(rounds=9))
    world.start(algorithm)
    assert world.made.specification == specification
    assert world.made.log[:2] == [
        ("join", {WEIGHTS: 2, STATISTICS: 1}, Limits(rounds=9), {"network": "lenet"}),
        ("begin", [0.0, 0.0], [5.0]),
    ]


@pytest.mark.parametrize("kind", [SSGD, ASGD, DCASGD, fixed])
def test_all_begin_with_the_common_model(kind):
    algorithm = kind()
    world = World()
    world.start(algorithm)
    assert world.replica.weights.values.tolist() == [1.0, 2.0]
    assert not world.replica.is_open
    assert (algorithm.round, algorithm.exchanged, algorithm.finished) == (0, False, False)


@pytest.mark.parametrize("kind", [SSGD, ASGD, DCASGD, fixed, ESync])
def test_a_replacement_goes_on_counting_where_its_slot_is(kind):
    algorithm = kind()

    def replaced(exchange: ScriptedExchange) -> None:
        exchange.replacement, exchange.exchanges = True, 7

    world = World(prepare=replaced, answers=[([0, 0], False, True)], ready=[True])
    world.start(algorithm)
    assert algorithm.round == 7
    world.step(algorithm, [0, 0])
    assert algorithm.round == 8


@pytest.mark.parametrize("kind", [SSGD, ASGD, DCASGD, fixed])
def test_a_run_that_is_over_already_is_finished_at_once(kind):
    algorithm = kind()

    class Over(ScriptedExchange):
        def begin(self, *model: Any) -> Result:
            return Result(3, 9, 0, 0.0, 0.0, finished=True)

    world = World()
    world.exchange = lambda specification: Over(specification, 0, [])  # type: ignore[method-assign]
    world.start(algorithm)
    assert algorithm.finished


@pytest.mark.parametrize("kind", [SSGD, ASGD, DCASGD, fixed])
def test_stop_abort_and_close_are_passed_on(kind):
    algorithm = kind()
    for early in (algorithm.stop, algorithm.close):
        early()  # before the start there is nobody to tell
    algorithm.abort("too early")
    world = World()
    world.start(algorithm)
    del world.made.log[:]
    algorithm.stop()
    algorithm.abort("the loss is NaN")
    algorithm.close()
    assert world.made.log[:3] == ["stop", ("abort", "the loss is NaN"), "close"]
    assert world.made.log[3:] == (["no more questions"] if kind is ESync else [])


def test_ssgd_sends_the_mean_gradient_and_the_statistics():
    world, algorithm = World(answers=[([3, 4], False, True), ([5, 6], True, True)]), SSGD()
    world.start(algorithm)
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
@pytest.mark.parametrize("kind", [ASGD, DCASGD, SSP])
def test_asynchronous_workers_send_their_statistics_and_rank_0_is_sent_the_mean_beside_its_own(kind, rank):
    algorithm = kind()
    world = World(rank, answers=[([3, 4], False, True)])
    world.start(algorithm)
    world.step(algorithm, [8, -4])
    assert world.made.sent == [Sent([2.0, -1.0], [5.0], 4, 0.1, 0.9, 0.01)]
    assert world.made.returned == [{WEIGHTS, STATISTICS} if rank == 0 else {WEIGHTS}]
    assert world.replica.own_statistics == [True] * (rank == 0)


@pytest.mark.parametrize("kind", [ASGD, DCASGD, SSP])
def test_the_published_way_leaves_statistics_where_they_are(kind):
    algorithm = kind(statistics="rank0")
    world = World(answers=[([3, 4], False, True)])
    world.start(algorithm)
    world.step(algorithm, [8, -4])
    assert world.made.sent == [Sent([2.0, -1.0], None, 4, 0.1, 0.9, 0.01)]
    assert world.replica.own_statistics == []


@pytest.mark.parametrize("kind", [ASGD, DCASGD, SSP, DyLU, SyncSwitch])
def test_unknown_statistics_are_refused(kind):
    with pytest.raises(ValueError, match="statistics is 'rank1', but should be one of mean, rank0"):
        kind(statistics="rank1")


@pytest.mark.parametrize("kind", [SSGD, ASGD, DCASGD])
def test_every_iteration_is_a_round(kind):
    algorithm = kind()
    world = World(answers=[([0, 0], False, True), ([0, 0], False, True), ([0, 0], True, True)])
    world.start(algorithm)
    for round_ in (1, 2, 3):
        assert not algorithm.finished
        world.step(algorithm, [1, 1])
        assert (algorithm.round, algorithm.local_iterations, algorithm.exchanged) == (round_, 1, True)
        assert algorithm.result is not None
        assert algorithm.result.wait == 0.5
    assert algorithm.finished


@pytest.mark.parametrize("kind", [ASGD, DCASGD, fixed])
def test_what_came_after_the_end_does_not_count(kind):
    algorithm = kind()
    world = World(answers=[([0, 0], False, True), ([0, 0], True, False)])
    world.start(algorithm)
    world.step(algorithm, [1, 1])
    world.step(algorithm, [1, 1])
    assert (algorithm.round, algorithm.exchanged, algorithm.finished) == (1, False, True)


def test_the_phases_of_an_iteration_with_exchange():
    world, algorithm = World(answers=[([0, 0], False, True)]), SSGD()
    world.start(algorithm)
    world.step(algorithm, [1, 1])
    assert world.recorder.take()["time"] == {"0": {"forward and backward": 2.0, "global aggregate": 0.0}}


def test_checkpoints_of_sync_switch_hold_what_a_plan_is_made_of_and_no_more():
    """Those of earlier versions hold these names; with another one they could not be resumed."""
    algorithm = SyncSwitch(Schedule(train_steps=(4, 12)), batch_size=4, decay=[(0.5, 0.1)])
    assert algorithm.checkpoint_terms == {
        "batch size": 4,
        "schedule": "Schedule(order='10', train_steps=(4, 12), bsp_share=None, ckpt_frequency=(), hparams=())",
        "decay of the learning rate": "((0.5, 0.1),)",
        "online policy": "None",
    }
    assert algorithm.terms == {**algorithm.checkpoint_terms, "evaluated statistics": "mean"}


@pytest.mark.parametrize(("told", "expected"), [(None, 24), (12, 12)])
def test_sync_switch_goes_on_from_a_checkpoint_that_does_not_tell_what_was_synchronous(told, expected):
    """Checkpoints of earlier versions do not; then the schedule does: 24 samples of 96 in rounds."""
    resumed: list[ResumeState] = []
    books = RunProgress(round=9, version=20, samples=60, elapsed=1.0, step=9, synchronous=False, samples_together=told)

    class Past(NoCheckpoints):
        def settle(self, rank: int, job: int, resume_at: int, replacement: bool) -> ResumeState:
            return ResumeState(3, books)

    world = World(limits=Limits(samples=96), prepare=lambda exchange: setattr(exchange, "resume", resumed.append))
    algorithm = SyncSwitch(Schedule(bsp_share=0.25), batch_size=4)
    algorithm.start(
        AlgorithmContext(world.replica, world, world.hyper.pop, lambda: 0.0, world.limits, checkpoints=Past())  # type: ignore[arg-type]
    )
    assert resumed[0].books is not None
    assert resumed[0].books.samples_together == expected
