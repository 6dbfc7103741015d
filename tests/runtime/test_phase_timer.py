import json

from esync.runtime.phase_timer import (
    COMPUTE,
    GET_BATCH,
    GLOBAL_UPDATE,
    PhaseTimer,
    iteration_times,
)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_phase_timer_records_the_phases_of_several_iterations():
    clock = Clock()
    recorder = PhaseTimer(clock)
    for iteration in range(2):
        with recorder.phase(GET_BATCH):
            clock.now += 0.25
        with recorder.phase(COMPUTE):
            clock.now += 1.5 + iteration
        recorder.samples += 64
        recorder.next_iteration()
    with recorder.phase(GLOBAL_UPDATE):
        clock.now += 3.0
    taken = recorder.take()
    assert taken == {
        "time": {
            "0": {"get_batch": 0.25, "forward and backward": 1.5},
            "1": {"get_batch": 0.25, "forward and backward": 2.5},
            "2": {"global update": 3.0},
        },
        "num_samples": 128,
    }
    assert json.loads(json.dumps(taken)) == taken


def test_phase_timer_adds_up_a_phase_that_repeats():
    clock = Clock()
    recorder = PhaseTimer(clock)
    for seconds in (1.0, 2.0):
        with recorder.phase(COMPUTE):
            clock.now += seconds
    recorder.add(COMPUTE, 0.5)
    assert recorder.take()["time"] == {"0": {"forward and backward": 3.5}}


def test_phase_timer_take_begins_a_new_round():
    recorder = PhaseTimer(Clock())
    recorder.samples = 5
    recorder.add(COMPUTE, 1.0)
    recorder.next_iteration()
    recorder.take()
    assert recorder.take() == {"time": {"0": {}}, "num_samples": 0}


def test_phase_timer_records_a_phase_that_raises():
    clock = Clock()
    recorder = PhaseTimer(clock)
    try:
        with recorder.phase(COMPUTE):
            clock.now += 1.0
            raise KeyError("x")
    except KeyError:
        pass
    else:
        raise AssertionError("the error was swallowed")
    assert recorder.take()["time"] == {"0": {"forward and backward": 1.0}}


def test_phase_timer_rounds_to_microseconds():
    recorder = PhaseTimer(Clock())
    recorder.add(COMPUTE, 0.1234567891)
    assert recorder.take()["time"]["0"] == {"forward and backward": 0.123457}


def test_phase_timer_records_the_seconds_of_every_iteration():
    recorder = PhaseTimer(Clock())
    for seconds in (1.5, 0.12345678):
        recorder.add(COMPUTE, 1.0)
        recorder.add_iteration(seconds)
        recorder.next_iteration()
    taken = recorder.take()
    assert taken["iteration_times"] == iteration_times(taken) == [1.5, 0.123457]
    assert "iteration_times" not in recorder.take()


def test_iteration_times_of_older_logs_come_from_the_phases():
    phases = {"get_batch": 0.25, "forward and backward": 1.5, "local update": 0.5}
    entry = {
        "time": {
            "0": phases,
            "1": {"check ready": 7.0, **phases},
            "2": {"get_batch": 0.25, "forward and backward": 0.75, "global update": 7.0},  # given up for an exchange
            "3": {"check ready": 7.0, "global update": 7.0},
        }
    }
    assert iteration_times(entry) == [2.25, 2.25]
    published = {"time": {"0": {**phases, "check ready": 7.0, "global update": 7.0}}}
    assert iteration_times(published) == [2.25]
    every = {"time": {"0": {"get_batch": 0.25, "forward and backward": 1.5, "global aggregate": 7.0}}}
    assert iteration_times(every) == [1.75]
