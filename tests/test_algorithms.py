"""One worker's algorithm in a world whose other workers, and whose state server, are scripted."""

import subprocess
import sys
from typing import Any

import pytest

from esync import config
from esync.algorithms import ALGORITHMS, ASGD, DCASGD, SSGD, SSP, DiLoCo, DyLU, ESync, Hyper, Local, LocalSGD, make
from esync.exchange import Result, Service
from esync.exchange.ledger import Limits

from .scripted_world import ScriptedExchange, Sent, World


def fixed() -> ESync:
    """ESync that exchanges after every iteration."""
    return ESync(local_iterations=1)


# --- names ----------------------------------------------------------------------------------------------------------


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
    modules = ("algorithms", "exchange.parameter_server", "exchange.greeting", "rules", "measure", "device")
    program = "import sys; sys.modules['mxnet'] = None\n" + "".join(f"import esync.{name}\n" for name in modules)
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


# --- what is asked of the servers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "service"),
    [
        (SSGD(), Service("sgd", synchronous=True)),
        (ASGD(), Service("sgd", synchronous=False)),
        (
            DCASGD(0.7, adaptive=True),
            Service("delay_compensated_sgd", False, {"strength": 0.7, "adaptive": True}, private=True),
        ),
        (
            DCASGD(),
            Service(
                "delay_compensated_sgd",
                False,
                {"strength": config.DCASGD_LAMBDA, "adaptive": config.DCASGD_ADAPTIVE},
                private=True,
            ),
        ),
        (ESync(local_iterations=1), Service("add_mean_update", synchronous=True)),
        (LocalSGD(), Service("add_mean_update", synchronous=True)),
        (SSP(2), Service("sgd", synchronous=False, staleness=2)),
        (DyLU(), Service("delayed_nesterov", synchronous=False)),
        (DiLoCo(weighting="samples"), Service("outer_nesterov", synchronous=True, weighting="samples")),
    ],
)
def test_what_the_servers_are_asked_for(algorithm, service):
    world = World(limits=Limits(rounds=9))
    world.start(algorithm)
    assert world.made.service == service
    assert world.made.log[:2] == [
        ("join", 2, 1, Limits(rounds=9), {"network": "lenet"}),
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
    world.exchange = lambda service: Over(service, 0, [])  # type: ignore[method-assign]
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


# --- DyLU and SSP ---------------------------------------------------------------------------------------------------


def test_dylu_does_as_many_iterations_as_its_speed_allows_and_says_how_fast_it_is():
    world, algorithm = World(answers=[([3, 4], False, True), ([5, 6], False, True)]), DyLU(5)
    world.start(algorithm)
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
    assert world.made.sent[0].statistics is None


def test_a_negative_staleness_is_refused():
    with pytest.raises(ValueError, match="staleness is -1"):
        SSP(-1)


# --- local SGD and DiLoCo -------------------------------------------------------------------------------------------


def test_diloco_exchanges_after_its_local_iterations_with_the_outer_momentum():
    world, algorithm = World(answers=[([3, 4], False, True)]), DiLoCo(2, global_lr=0.7, outer_momentum=0.9)
    world.start(algorithm)
    world.step(algorithm, [1, 0])
    assert not algorithm.exchanged
    world.step(algorithm, [1, 1])
    assert algorithm.exchanged
    assert world.made.sent == [Sent([2.0, 1.0], [5.0], 8, 0.7, 0.9, 0.0)]
    assert not world.addresses  # nobody has asked for a state server


@pytest.mark.parametrize("options", [{"outer_momentum": 1.0}, {"outer_momentum": -0.1}, {"weighting": "fair"}])
def test_what_makes_no_sense_is_refused_by_name(options):
    (name,) = options
    with pytest.raises(ValueError, match=f"{name} is"):
        DiLoCo(**options)


# --- SSGD, ASGD, DC-ASGD --------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("kind", [ASGD, DCASGD])
def test_asynchronous_workers_keep_their_statistics(kind):
    algorithm = kind()
    world = World(answers=[([3, 4], False, True)])
    world.start(algorithm)
    world.step(algorithm, [8, -4])
    assert world.made.sent == [Sent([2.0, -1.0], None, 4, 0.1, 0.9, 0.01)]


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


# --- ESync ----------------------------------------------------------------------------------------------------------


def test_local_iterations_until_ready():
    """Three iterations in the first round, one in the second, two in the third, as the state server wants it."""
    ready = [False, False, True, True, False, True]
    world = World(ready=ready, answers=[([0, 0], False, True), ([0, 0], False, True), ([0, 0], True, True)])
    algorithm = ESync()
    world.start(algorithm)
    seen = []
    while not algorithm.finished:
        world.step(algorithm, [1, 1])
        seen.append((algorithm.round, algorithm.local_iterations, algorithm.exchanged))
    assert seen == [(0, 1, False), (0, 2, False), (1, 3, True), (2, 1, True), (2, 1, False), (3, 2, True)]
    assert world.replica.steps == [4] * 6


def test_the_calls_of_a_training_in_their_order():
    """ESync paper, Algorithm 1; the last round is not followed by a RESET, for nobody begins another one."""
    world = World(ready=[False, True, True], answers=[([0, 0], False, True), ([0, 0], True, True)])
    algorithm = ESync(epsilon=0.125)
    world.start(algorithm)
    while not algorithm.finished:
        world.step(algorithm, [1, 1])
    assert world.made.log[1:] == [
        ("init", 3, 0.125, 1),
        ("begin", [0.0, 0.0], [5.0]),
        ("ask", 1, 0, 0.25),  # tells what the trial has measured
        ("ask", 1, 1, 2.0),
        ("ask", 1, 2, 2.0),
        "exchange",
        ("reset", 2),
        ("ask", 2, 1, 2.0),
        "exchange",
    ]


def test_init_comes_before_anybody_can_begin_and_from_rank_0_only():
    for rank, replacement, expected in ((0, False, 1), (1, False, 0), (0, True, 0), (2, True, 0)):
        world = World(rank=rank, prepare=lambda exchange, value=replacement: setattr(exchange, "replacement", value))
        world.start(ESync())
        names = [entry[0] for entry in world.made.log]
        assert names.count("init") == expected
        if expected:
            assert names.index("init") < names.index("begin")


def test_a_replacement_asks_in_the_round_of_its_slot():
    world = World(
        prepare=lambda exchange: setattr(exchange, "exchanges", 4), ready=[True], answers=[([0, 0], False, True)]
    )
    algorithm = ESync()
    world.start(algorithm)
    world.step(algorithm, [1, 1])
    assert [entry for entry in world.made.log if entry[0] in ("ask", "reset")] == [
        ("ask", 5, 0, 0.25),
        ("ask", 5, 1, 2.0),
        ("reset", 6),
    ]


@pytest.mark.parametrize(
    ("options", "named"), [({"epsilon": "some"}, "epsilon is 'some'"), ({"query_mode": "push"}, "query_mode is 'push'")]
)
def test_options_that_make_no_sense(options, named):
    with pytest.raises(ValueError, match=named):
        ESync(**options)


def test_options_for_the_state_server_are_passed_on():
    world = World(rank=2)
    world.start(ESync(state_server="here:1", query_mode="delayed-ack", job="mine"))
    assert world.addresses == [("here:1", 2, "mine", True)]
    world = World()
    world.start(ESync(epsilon=0.5, slowest_iterations=4))
    assert ("init", 3, 0.5, 4) in world.made.log


def test_a_lease_is_not_interrupted_by_questions():
    """An iteration takes about 2 s: a lease of 5.5 s, counted from the question at 2 s, is over after the fourth."""
    world = World(ready=[5.5, True], answers=[([0, 0], True, True)])
    algorithm = ESync()
    world.start(algorithm)
    for seconds in (2.0, 2.0, 3.0, 1.0):
        world.device.seconds = seconds
        world.step(algorithm, [1, 1])
    assert [entry for entry in world.made.log if entry[0] == "ask"] == [
        ("ask", 1, 0, 0.25),
        ("ask", 1, 1, 2.0),
        ("ask", 1, 4, 2.0),  # the mean of 2, 3 and 1
    ]
    assert (algorithm.round, algorithm.local_iterations) == (1, 4)


# --- ESync with delayed ACK -----------------------------------------------------------------------------------------


def delayed(round_trip: float, ready: list, rounds: int = 1, **options) -> tuple[World, ESync]:
    """A world whose answers take some time, and the algorithm in it."""
    answers = [([0, 0], number == rounds, True) for number in range(1, rounds + 1)]
    world, algorithm = World(ready=ready, answers=answers), ESync(query_mode="delayed-ack", **options)
    world.start(algorithm)
    world.state_server.round_trip = round_trip
    return world, algorithm


def test_training_goes_on_until_ready_arrives_and_the_iteration_in_flight_is_given_up():
    """The paper's 1 … k + δ − 1: READY for k = 1 is 5 s on its way, an iteration takes 2 s, so δ is 3."""
    world, algorithm = delayed(5.0, [True])
    for _ in range(3):
        world.step(algorithm, [1, 2])
        assert not algorithm.exchanged
        assert not algorithm.abandoned
    world.device.time += 1.0  # READY arrives while the fourth computes
    world.step(algorithm, [1000, 1000], batch_size=77)
    assert (algorithm.exchanged, algorithm.abandoned, algorithm.local_iterations) == (True, True, 3)
    assert world.made.sent == [Sent([3.0, 6.0], [5.0], 12, 1.0, 0.0, 0.0)]
    assert [entry[:3] for entry in world.made.log if entry[0] == "ask"] == [("ask", 1, 0), ("ask", 1, 1)]


def test_ready_that_arrives_between_iterations_costs_none():
    world, algorithm = delayed(1.5, [True])
    world.step(algorithm, [1, 2])
    assert not algorithm.exchanged
    world.step(algorithm, [1, 2])  # was on its way when the second began, there when it ended
    assert (algorithm.exchanged, algorithm.abandoned, algorithm.local_iterations) == (True, False, 2)


def test_one_question_at_a_time_and_capability_covers_all_iterations():
    world, algorithm = delayed(5.0, [False, False, True])
    for seconds in (2.0, 1.0, 3.0, 2.0, 2.0, 2.0):
        world.device.seconds = seconds
        world.step(algorithm, [1, 1])
    assert [entry for entry in world.made.log if entry[0] == "ask"][1:] == [
        ("ask", 1, 1, 2.0),
        ("ask", 1, 4, 2.0),  # the mean of 1, 3 and 2
    ]


def test_a_slow_device_waits_for_the_ready_that_it_expects():
    """To begin an iteration of 2 s, when READY is to come in 0.5 s, would make everybody wait."""
    world, algorithm = delayed(0.5, [True, True, False, True], rounds=3)
    seen = []
    while not algorithm.finished:
        world.step(algorithm, [1, 1])
        seen.append((algorithm.round, algorithm.local_iterations, algorithm.exchanged, algorithm.abandoned))
    assert seen == [
        (0, 1, False, False),  # nothing is known in the first round
        (1, 2, True, False),
        (2, 1, True, False),  # asked after 1, and waited
        (2, 1, False, False),  # the same, but it was NOT-READY
        (3, 2, True, False),
    ]
    assert world.device.time == 2 * 5 + 3 * 0.5


def test_a_fast_device_never_waits_for_answers():
    world, algorithm = delayed(5.0, [True, True], rounds=2)
    while not algorithm.finished:
        world.step(algorithm, [1, 1])
    assert world.device.time == 2 * world.replica.steps.count(4)


def test_blocking_mode_gives_nothing_up():
    world = World(ready=[False, True], answers=[([0, 0], True, True)])
    algorithm = ESync()
    world.start(algorithm)
    while not algorithm.finished:
        world.step(algorithm, [1, 1])
        assert not algorithm.abandoned


def test_a_replacement_tells_the_state_server_and_never_starts_it():
    def replaced(exchange: ScriptedExchange) -> None:
        exchange.replacement, exchange.exchanges = True, 4

    world = World(prepare=replaced, ready=[True], answers=[([0, 0], False, True)])
    algorithm = ESync()
    world.start(algorithm)
    assert [entry for entry in world.made.log if entry[0] in ("init", "ask", "reset")] == [
        ("reset", 5, True, None),
        ("ask", 5, 0, 0.25),
    ]


def test_the_state_server_hears_of_members_while_some_are_missing():
    world = World(ready=[True] * 4, answers=[([0, 0], False, True)] * 4)
    algorithm = ESync()
    world.start(algorithm)
    for members in ((0, 1, 2), (0, 2), (0, 1, 2), (0, 1, 2)):
        world.made.members = members
        world.step(algorithm, [1, 1])
    assert [entry for entry in world.made.log if entry[0] == "reset"] == [
        ("reset", 2),
        ("reset", 3, False, (0, 2)),
        ("reset", 4, False, (0, 1, 2)),
        ("reset", 5),
    ]


def test_what_is_sent_is_the_update_since_the_last_exchange():
    world = World(ready=[False, True, False, True], answers=[([10, 20], False, True), ([0, 0], False, True)])
    algorithm = ESync(global_lr=0.75)
    world.start(algorithm)
    world.step(algorithm, [1, -1], batch_size=4)
    world.step(algorithm, [2, 0], batch_size=6)
    assert world.replica.weights.values.tolist() == [10, 20]
    world.step(algorithm, [1, 1], batch_size=4)
    world.step(algorithm, [1, 1], batch_size=4)
    assert world.made.sent == [
        Sent([3.0, -1.0], [5.0], 10, 0.75, 0.0, 0.0),
        Sent([2.0, 2.0], [5.0], 8, 0.75, 0.0, 0.0),
    ]


@pytest.mark.parametrize("count", [1, 3])
def test_a_fixed_number_of_local_iterations_asks_nobody(count):
    world = World(answers=[([0, 0], False, True)] * 2)
    algorithm = ESync(local_iterations=count)
    world.start(algorithm)
    seen = []
    for _ in range(2 * count):
        world.step(algorithm, [1, 1])
        seen.append((algorithm.local_iterations, algorithm.exchanged))
    assert seen == [(k, k == count) for k in range(1, count + 1)] * 2
    assert algorithm.round == 2
    assert world.addresses == []
    assert [entry for entry in world.made.log if entry != "exchange"][2:] == []


@pytest.mark.parametrize("count", [0, -1])
def test_a_fixed_number_is_1_or_more(count):
    with pytest.raises(ValueError, match=f"local_iterations is {count}"):
        ESync(local_iterations=count)


@pytest.mark.parametrize("address", ["10.1.1.34:10010", None])
def test_the_state_servers_address_is_passed_on(address):
    world = World()
    world.start(ESync(state_server=address))
    assert world.addresses == [(address, 0, config.JOB, False)]


def test_defaults_of_esync_come_from_the_configuration():
    world = World(ready=[True], answers=[([0, 0], False, True)])
    algorithm = ESync()
    world.start(algorithm)
    world.step(algorithm, [1, 1])
    assert ("init", 3, None, config.SLOWEST_ITERATIONS) in world.made.log  # epsilon is chosen from what is measured
    assert world.made.sent[0].learning_rate == config.LEARNING_RATE_GLOBAL


def test_the_phases_of_a_round_of_local_iterations():
    world, algorithm = World(ready=[False, True], answers=[([0, 0], False, True)]), ESync()
    world.start(algorithm)
    for _ in range(2):
        world.step(algorithm, [1, 1])
    assert world.recorder.take()["time"] == {
        "0": {"local update": 0.0, "forward and backward": 2.0},
        "1": {"check ready": 0.0, "local update": 0.0, "forward and backward": 2.0},
        "2": {"check ready": 0.0, "global update": 0.0},
    }
