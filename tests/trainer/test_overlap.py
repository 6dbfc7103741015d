"""ESync with overlap: iterations during the exchange, with scripted answers."""

from dataclasses import replace

import pytest

from esync.algorithms import ESync
from esync.exchange import Payload, Specification
from esync.runtime.futures import Completed

from ..support.scripted_world import Array, ScriptedExchange, World


class Traveller(Completed):
    """An exchange that is over after so many looks, or when it is waited for."""

    def __init__(self, looks, arrive):
        super().__init__(None)
        self.__dict__.update(looks=looks, arrive=arrive, waited=False)

    def done(self):
        self.__dict__["looks"] -= 1
        return self.looks < 0

    def wait(self):
        self.__dict__["waited"] = True
        return self.arrive()


class SlowExchange(ScriptedExchange):
    """Answers after so many looks of the worker."""

    def __init__(self, specification, answers, looks):
        super().__init__(specification, 0, answers)
        self.looks, self.travelling = looks, []

    def start(self, payload: Payload, model):
        traveller = Traveller(self.looks.pop(0), lambda: ScriptedExchange.start(self, payload_as_read, model).wait())
        copies = {name: Array([0] * self.sizes[name]) for name in payload.vectors}
        for name, source in payload.vectors.items():
            source.read(0, copies[name].size, copies[name].values)  # a payload is read at once
        payload_as_read = Payload(copies, payload.samples, payload.learning_rate)
        self.travelling.append(traveller)
        return traveller


class Merge:
    """Keeps progress, as `overlap_merge.OverlapMerge`."""

    def __init__(self, replica):
        self.replica, self.pushed = replica, replica.weights.values.copy()
        self.iterations, self.discarded = 0, False

    def write(self, vector, start, values):
        assert self.replica.is_open
        self.replica.anchor[:] = values
        self.replica.weights.values = values + self.replica.weights.values - self.pushed

    def discard(self):
        assert self.replica.is_open
        self.discarded = True


def overlapped(answers, looks, **options):
    """A world whose worker has been started, and its algorithm."""
    world = World(answers=answers, ready=options.pop("ready", []))
    algorithm = ESync(**{"local_iterations": 2, "run_ahead": 10, **options})
    merges = []
    world.replica.enable_overlap = lambda: None
    world.replica.settle = lambda: None

    def begin_overlap():
        merges.append(Merge(world.replica))
        return merges[-1]

    def exchange(specification: Specification):
        world.made = SlowExchange(specification, answers, looks)
        return world.made

    world.replica.begin_overlap, world.exchange = begin_overlap, exchange
    world.start(algorithm)
    return world, algorithm, merges


def test_overlap_during_exchange_trains_on_and_sends_progress_with_next_update():
    world, algorithm, merges = overlapped([([10, 20], False, True), ([0, 0], False, True)], [0, 0])
    exchanged = []
    for gradient in ([1, 0], [1, 0], [0, 1], [0, 2], [0, 4]):
        world.step(algorithm, gradient)
        exchanged.append((algorithm.exchanged, algorithm.round))
    # Pushed after the second step, there after the third: w = (10, 20) + (0, 1); pushed again after
    # the fourth.
    assert exchanged == [(False, 0), (False, 0), (True, 1), (False, 1), (True, 2)]
    assert [sent.values for sent in world.made.sent] == [[2.0, 0.0], [0.0, 3.0]]
    assert [sent.samples for sent in world.made.sent] == [8, 8]
    assert [merge.iterations for merge in merges] == [1, 1]
    assert world.made.specification.overlap


def test_overlap_at_the_run_ahead_limit_waits_for_the_exchange():
    world, algorithm, merges = overlapped([([10, 20], False, True)], [99], local_iterations=5, run_ahead=3)
    for _ in range(7):
        world.step(algorithm, [1, 0])
    assert not world.made.travelling[0].waited
    world.step(algorithm, [1, 0])
    assert world.made.travelling[0].waited
    assert (algorithm.exchanged, merges[0].iterations) == (True, 3)


def test_overlap_with_exchange_under_way_completes_it_before_the_next():
    world, algorithm, _ = overlapped([([0, 0], False, True)] * 2, [99, 99], local_iterations=2, run_ahead=100)
    for _ in range(4):
        world.step(algorithm, [1, 0])
    assert [traveller.waited for traveller in world.made.travelling] == [True, False]
    assert algorithm.exchanged


def test_overlap_asks_state_server_after_merge_about_iterations_since_the_push():
    answers = [([0, 0], False, True)] * 2
    world, algorithm, _ = overlapped(answers, [1, 0], local_iterations=None, ready=[True, False, True, False])
    assert world.addresses[0][3]  # answers are not waited for
    del world.made.log[:]
    for _ in range(5):
        world.step(algorithm, [1, 0])
    assert world.made.log == [
        ("ask", 1, 1, 2.0),
        "exchange",  # comes two iterations after the push
        ("reset", 2),
        ("ask", 2, 2, 2.0),
        ("ask", 2, 3, 2.0),
        "exchange",
        ("reset", 3),
        ("ask", 3, 1, 2.0),
    ]
    assert not algorithm.abandoned


def test_overlap_at_the_end_of_the_run_discards_unsent_updates():
    world, algorithm, merges = overlapped([([10, 20], True, True)], [0])
    for _ in range(3):
        world.step(algorithm, [1, 0])
    assert (algorithm.finished, algorithm.exchanged, merges[0].discarded) == (True, True, True)
    assert algorithm.unsent() == {}  # nor in a checkpoint
    assert len(world.made.travelling) == 1


class CheckpointsAfter:
    """Checkpoints that are due after these rounds, until they have been written."""

    def __init__(self, *rounds):
        self.rounds = set(rounds)

    def due(self, round_):
        return round_ in self.rounds


@pytest.mark.parametrize("due", [(), (1,), (1, 2)])
def test_overlap_with_checkpoint_due_delays_the_exchange_until_it_is_written(due):
    """The exchange begins with the next step and sends the same update."""
    answers = [([0, 0], False, True)] * 3
    world, algorithm, _ = overlapped(answers, [99] * 3, local_iterations=2, run_ahead=2)
    algorithm.context = replace(algorithm.context, checkpoints=CheckpointsAfter(*due))
    for gradient in ([1, 0], [1, 0], [0, 1], [0, 2], [0, 4], [0, 8], [0, 16]):
        world.step(algorithm, gradient)
        assert algorithm.in_flight == (len(world.made.travelling) > algorithm.round)
        if algorithm.exchanged:  # after 4 and 6 steps
            assert algorithm.in_flight == (algorithm.round not in due)
            assert algorithm.unsent().get("ahead", {}).get("iterations") == (None if algorithm.in_flight else 2)
    assert [sent.values for sent in world.made.sent] == [[2.0, 0.0], [0.0, 3.0]]
    assert len(world.made.travelling) == 3


def test_overlap_after_resume_sends_the_unsent_update_at_once():
    answers = [([0, 0], False, True)] * 3
    full_world, first, _ = overlapped(answers, [99] * 3, local_iterations=2, run_ahead=2)
    first.context = replace(first.context, checkpoints=CheckpointsAfter(1))
    for gradient in ([1, 0], [1, 0], [0, 1], [0, 2]):
        full_world.step(first, gradient)
    world, algorithm, _ = overlapped(answers[1:], [99] * 2, local_iterations=2, run_ahead=2)
    world.replica.anchor[:] = 0  # the common model of the checkpoint
    world.replica.keep_common = lambda: None
    algorithm.restore_unsent(first.unsent())
    for gradient in ([0, 4], [0, 8]):
        full_world.step(first, gradient)
        world.step(algorithm, gradient)
    assert (
        [payload.values for payload in world.made.sent]
        == [payload.values for payload in full_world.made.sent[1:]]
        == [[0.0, 3.0]]
    )
    assert [payload.samples for payload in world.made.sent] == [8]
