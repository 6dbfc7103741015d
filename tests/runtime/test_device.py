import pytest

from esync.runtime.device import RealDevice


class FakeTime(RealDevice):
    """A device whose clock is a number.

    `work` is what the device still has to do when the iteration ends.
    """

    def __init__(self, step_time: float | None = None, oversleep: float = 0.0) -> None:
        self.time, self.work, self.oversleep = 0.0, 0.0, oversleep
        super().__init__(step_time)
        self._wait_for_device = self._catch_up

    def _catch_up(self) -> None:
        self.time, self.work = self.time + self.work, 0.0

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.time += seconds + (self.oversleep if seconds else 0)


def test_iteration_lasts_until_the_device_has_done_its_work():
    device = FakeTime()
    device.begin_iteration()
    device.time, device.work = 1.0, 0.5
    assert device.end_iteration() == 1.5
    assert device.time == 1.5


def test_iteration_is_padded_to_its_step_time():
    device = FakeTime(step_time=3.5)
    device.begin_iteration()
    device.time, device.work = 1.0, 0.25
    assert device.end_iteration() == 3.5
    assert device.time == 3.5
    assert (device.iterations, device.overruns) == (1, 0)


def test_iteration_time_is_the_measured_one():
    device = FakeTime(step_time=3.0, oversleep=0.125)
    device.begin_iteration()
    assert device.end_iteration() == 3.125
    assert device.overruns == 0


def test_iteration_longer_than_its_step_time_counts_as_overrun():
    device = FakeTime(step_time=0.5)
    for seconds in (0.25, 0.75, 0.5, 1.0):
        device.begin_iteration()
        device.time += seconds
        assert device.end_iteration() == max(seconds, 0.5)
    assert (device.iterations, device.overruns) == (4, 2)


def test_iteration_with_background_work_counts_as_overrun():
    device = FakeTime(step_time=0.5)
    device.begin_iteration()
    device.work = 0.75
    assert device.end_iteration() == 0.75
    assert device.overruns == 1


def test_iteration_excludes_the_time_between_iterations():
    device = FakeTime(step_time=1.0)
    device.begin_iteration()
    device.end_iteration()
    device.time += 100  # an exchange
    device.begin_iteration()
    assert device.end_iteration() == 1.0


@pytest.mark.parametrize("step_time", [None, 0.05])
def test_real_device_iteration_takes_at_least_its_step_time(step_time):
    device = RealDevice(step_time)
    before = device.now()
    device.begin_iteration()
    seconds = device.end_iteration()
    assert (step_time or 0) <= seconds <= device.now() - before


@pytest.mark.parametrize(("step_time", "ahead"), [(None, 0.0), (0.4, 0.0), (0.9, 0.2), (4.1, 1.8)])
def test_wait_for_turn_waits_part_of_the_spare_time_before_computing(step_time, ahead):
    device = FakeTime(step_time)
    device.time = 7.0
    device.begin_iteration()
    device.wait_for_turn()
    assert device.time == pytest.approx(7.0 + ahead)
    device.time += 0.25
    assert device.end_iteration() == pytest.approx(step_time or 0.25)
    assert device.overruns == 0


def test_wait_for_turn_counts_time_since_the_iteration_began():
    device = FakeTime(step_time=4.1)
    device.begin_iteration()
    device.time += 1.0  # a round is logged, for instance
    device.wait_for_turn()
    assert device.time == pytest.approx(1.8)


def test_pause_belongs_to_no_iteration_but_the_work_before_it_does():
    device = FakeTime()
    device.begin_iteration()
    device.time, device.work = 1.0, 0.5
    with device.paused():
        assert device.time == 1.5
        device.time, device.work = 100.0, 50.0
    assert device.time == 150.0
    device.time += 0.25
    assert device.end_iteration() == 1.75
