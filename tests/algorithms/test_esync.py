"""ESync on one worker, with blocking and delayed queries.

Exchange and state server are scripted.
"""

import math

import pytest

from esync import config
from esync.algorithms import ESync

from ..support.scripted_world import Sent, World, begun


def rounds(count: int) -> list:
    """Answers that end the run with the last one."""
    return [([0, 0], number == count, True) for number in range(1, count + 1)]


def test_esync_calls_the_state_server_in_the_order_of_algorithm_1():
    """Algorithm 1 of the ESync paper. No RESET follows the last round, because no round begins
    after it.
    """
    world, algorithm = begun(ESync(), ready=[False, True, True], answers=rounds(2))
    seen = []
    while not algorithm.finished:
        world.step(algorithm, [1, 1])
        seen.append((algorithm.round, algorithm.iterations, algorithm.exchanged))
    assert seen == [(0, 1, False), (1, 2, True), (2, 1, True)]
    assert world.replica.steps == [4] * 3
    assert world.made.log[1:] == [
        ("init", 3, None, config.SLOWEST_ITERATIONS),  # epsilon is chosen from what is measured
        ("begin", [0.0, 0.0], [5.0]),
        ("ask", 1, 0, 0.25),  # tells what the trial has measured
        ("ask", 1, 1, 2.0),
        ("ask", 1, 2, 2.0),
        "exchange",
        ("reset", 2),
        ("ask", 2, 1, 2.0),
        "exchange",
    ]
    assert world.made.sent[0].learning_rate == config.LEARNING_RATE_GLOBAL


def test_esync_passes_its_options_to_the_state_server():
    world, _ = begun(ESync(state_server="here:1", query_mode="delayed-ack", job="mine"), rank=2)
    assert world.addresses == [("here:1", 2, "mine", True)]
    assert logged_calls(world, "init") == []  # that is rank 0's
    world, _ = begun(ESync(epsilon=0.5, slowest_iterations=4))
    assert ("init", 3, 0.5, 4) in world.made.log


def test_esync_with_lease_does_not_query_until_it_is_over():
    """An iteration takes about 2 s, so a lease of 5.5 s granted at 2 s expires after the fourth
    iteration.
    """
    world, algorithm = begun(ESync(), ready=[5.5, True], answers=rounds(1))
    for seconds in (2.0, 2.0, 3.0, 1.0):
        world.device.seconds = seconds
        world.step(algorithm, [1, 1])
    assert logged_calls(world, "ask") == [
        ("ask", 1, 0, 0.25),
        ("ask", 1, 1, 2.0),
        ("ask", 1, 4, 2.0),  # the mean of 2, 3 and 1
    ]
    assert (algorithm.round, algorithm.iterations) == (1, 4)


def test_esync_with_a_decay_of_iterations_exchanges_without_ready_and_ends_as_synchronous():
    """3, 3, 2 and so on: 9/(8 + n) of three in round n, rounded."""
    world, algorithm = begun(ESync(decay_iterations=3), ready=[False] * 100, answers=rounds(40))
    counts = []
    while not algorithm.finished:
        world.step(algorithm, [1, 1])
        if algorithm.exchanged:
            counts.append(algorithm.iterations)
    assert counts == [max(1, int(3 * 9 / (8 + n) + 0.5)) for n in range(1, 41)]
    assert (counts[0], counts[-1]) == (3, 1)


@pytest.mark.parametrize("local_iterations", [None, 1])
def test_a_decay_of_iterations_asks_for_none_beyond_what_was_planned(local_iterations):
    algorithm = ESync(decay_iterations=3, local_iterations=local_iterations)
    world, _ = begun(algorithm, ready=[True], answers=rounds(1))
    world.step(algorithm, [1, 1])
    assert (algorithm.exchanged, algorithm.iterations) == (True, 1)


@pytest.mark.parametrize(("first", "expected"), [("none", math.inf), (1, 1), (8, 8), (10**400, 10**400)])
def test_decay_of_iterations_begins_with_what_was_given(first, expected):
    _, algorithm = begun(ESync(decay_iterations=first))
    assert algorithm.max_iterations == expected


def test_a_lease_does_not_outlast_a_round_that_the_decay_has_ended():
    world, algorithm = begun(ESync(decay_iterations=1), ready=[100.0, False], answers=rounds(2))
    while not algorithm.finished:
        world.step(algorithm, [1, 1])
    assert [entry[1:3] for entry in logged_calls(world, "ask")] == [(1, 0), (1, 1), (2, 1)]


def test_a_question_that_is_under_way_when_the_decay_ends_a_round_is_waited_for():
    world, algorithm = delayed(5.0, [True, False], 2, decay_iterations=1)
    for number in (1, 2):
        world.step(algorithm, [1, 2])
        assert (algorithm.exchanged, algorithm.round) == (True, number)
    assert [entry[1:3] for entry in logged_calls(world, "ask")] == [(1, 0), (1, 1), (2, 1)]


def logged_calls(world: World, *calls: str) -> list:
    """What the state server was told by these calls."""
    return [entry for entry in world.made.log if entry[0] in calls]


def delayed(round_trip: float, ready: list, count: int = 1, **options) -> tuple[World, ESync]:
    """A world whose answers take some time, and the algorithm in it."""
    world, algorithm = begun(ESync(query_mode="delayed-ack", **options), ready=ready, answers=rounds(count))
    world.state_server.round_trip = round_trip
    return world, algorithm


def test_esync_delayed_trains_on_until_ready_and_abandons_the_current_iteration():
    """The paper's iterations 1 … k + δ − 1.

    READY for k = 1 takes 5 s, an iteration 2 s, so that δ is 3.
    """
    world, algorithm = delayed(5.0, [True])
    for _ in range(3):
        world.step(algorithm, [1, 2])
        assert not algorithm.exchanged
        assert not algorithm.abandoned
    world.device.time += 1.0  # READY arrives while the fourth computes
    world.step(algorithm, [1000, 1000], batch_size=77)
    assert (algorithm.exchanged, algorithm.abandoned, algorithm.iterations) == (True, True, 3)
    assert world.made.sent == [Sent([3.0, 6.0], [5.0], 12, 1.0, 0.0, 0.0)]
    assert [entry[:3] for entry in logged_calls(world, "ask")] == [("ask", 1, 0), ("ask", 1, 1)]


def test_esync_delayed_has_one_query_in_flight_with_mean_iteration_time():
    world, algorithm = delayed(5.0, [False, False, True])
    for seconds in (2.0, 1.0, 3.0, 2.0, 2.0, 2.0):
        world.device.seconds = seconds
        world.step(algorithm, [1, 1])
    assert logged_calls(world, "ask")[1:] == [
        ("ask", 1, 1, 2.0),
        ("ask", 1, 4, 2.0),  # the mean of 1, 3 and 2
    ]


def test_esync_delayed_on_slow_device_waits_for_an_expected_ready():
    """Starting an iteration of 2 s when READY is due in 0.5 s would make everybody wait."""
    world, algorithm = delayed(0.5, [True, True, False, True], 3)
    seen = []
    while not algorithm.finished:
        world.step(algorithm, [1, 1])
        seen.append((algorithm.round, algorithm.iterations, algorithm.exchanged, algorithm.abandoned))
    assert seen == [
        (0, 1, False, False),  # nothing is known in the first round
        (1, 2, True, False),
        (2, 1, True, False),  # asked after 1, and waited
        (2, 1, False, False),  # the same, but it was NOT-READY
        (3, 2, True, False),
    ]
    assert world.device.time == 2 * 5 + 3 * 0.5


def test_esync_delayed_on_fast_device_never_waits_for_answers():
    world, algorithm = delayed(5.0, [True, True], 2)
    while not algorithm.finished:
        world.step(algorithm, [1, 1])
    assert world.device.time == 2 * world.replica.steps.count(4)


@pytest.mark.parametrize(("rank", "replaces"), [(0, 0), (0, 4), (2, 0)])
def test_esync_replacement_registers_with_the_state_server_without_init(rank, replaces):
    world, _ = begun(ESync(), rank=rank, replaces=replaces)
    assert logged_calls(world, "init", "ask", "reset") == [
        ("reset", replaces + 1, True, None),
        ("ask", replaces + 1, 0, 0.25),
    ]


def test_esync_tells_the_state_server_the_members_while_some_are_missing():
    world, algorithm = begun(ESync(), ready=[True] * 4, answers=[([0, 0], False, True)] * 4)
    for members in ((0, 1, 2), (0, 2), (0, 1, 2), (0, 1, 2)):
        world.made.members = members
        world.step(algorithm, [1, 1])
    assert logged_calls(world, "reset") == [
        ("reset", 2),
        ("reset", 3, False, (0, 2)),
        ("reset", 4, False, (0, 1, 2)),
        ("reset", 5),
    ]


def test_esync_sends_the_update_since_the_last_exchange():
    answers = [([10, 20], False, True), ([0, 0], False, True)]
    world, algorithm = begun(ESync(global_lr=0.75), ready=[False, True, False, True], answers=answers)
    world.step(algorithm, [1, -1], batch_size=4)
    world.step(algorithm, [2, 0], batch_size=6)
    assert world.replica.weights.values.tolist() == [10, 20]
    world.step(algorithm, [1, 1], batch_size=4)
    world.step(algorithm, [1, 1], batch_size=4)
    assert world.made.sent == [Sent([3.0, -1.0], [5.0], 10, 0.75, 0.0, 0.0), Sent([2.0, 2.0], [5.0], 8, 0.75, 0.0, 0.0)]


@pytest.mark.parametrize("count", [1, 3])
def test_esync_with_fixed_local_iterations_queries_no_state_server(count):
    world, algorithm = begun(ESync(local_iterations=count), answers=[([0, 0], False, True)] * 2)
    seen = []
    for _ in range(2 * count):
        world.step(algorithm, [1, 1])
        seen.append((algorithm.iterations, algorithm.exchanged))
    assert seen == [(k, k == count) for k in range(1, count + 1)] * 2
    assert algorithm.round == 2
    assert world.addresses == []
    assert [entry for entry in world.made.log if entry != "exchange"][2:] == []


def test_esync_records_the_phases_of_each_local_iteration():
    world, algorithm = begun(ESync(), ready=[False, True], answers=[([0, 0], False, True)])
    for _ in range(2):
        world.step(algorithm, [1, 1])
    assert world.recorder.take()["time"] == {
        "0": {"local update": 0.0, "forward and backward": 2.0},
        "1": {"check ready": 0.0, "local update": 0.0, "forward and backward": 2.0},
        "2": {"check ready": 0.0, "global update": 0.0},
    }
