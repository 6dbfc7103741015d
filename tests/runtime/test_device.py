import pytest

from esync.runtime.device import RealDevice


class FakeTime(RealDevice):
    """A device whose clock is a number; `work` is what the device still has to do when the iteration ends."""

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


def test_an_iteration_lasts_until_the_device_has_done_its_work():
    device = FakeTime()
    device.begin_iteration()
    device.time, device.work = 1.0, 0.5
    assert device.end_iteration() == 1.5
    assert device.time == 1.5


def test_without_a_step_time_nothing_is_padded():
    device = FakeTime()
    for _ in range(3):
        device.begin_iteration()
        device.time += 0.25
        assert device.end_iteration() == 0.25
    assert (device.iterations, device.overruns) == (3, 0)


def test_an_iteration_is_padded_to_its_step_time():
    device = FakeTime(step_time=3.5)
    device.begin_iteration()
    device.time, device.work = 1.0, 0.25
    assert device.end_iteration() == 3.5
    assert device.time == 3.5
    assert (device.iterations, device.overruns) == (1, 0)


def test_the_time_is_what_it_really_took():
    device = FakeTime(step_time=3.0, oversleep=0.125)
    device.begin_iteration()
    assert device.end_iteration() == 3.125
    assert device.overruns == 0


def test_an_iteration_that_takes_longer_than_its_step_time_is_counted():
    device = FakeTime(step_time=0.5)
    for seconds in (0.25, 0.75, 0.5, 1.0):
        device.begin_iteration()
        device.time += seconds
        assert device.end_iteration() == max(seconds, 0.5)
    assert (device.iterations, device.overruns) == (4, 2)


def test_work_that_the_device_does_in_the_background_counts_for_overruns():
    device = FakeTime(step_time=0.5)
    device.begin_iteration()
    device.work = 0.75
    assert device.end_iteration() == 0.75
    assert device.overruns == 1


def test_what_happens_between_iterations_does_not_count():
    device = FakeTime(step_time=1.0)
    device.begin_iteration()
    device.end_iteration()
    device.time += 100  # an exchange
    device.begin_iteration()
    assert device.end_iteration() == 1.0


@pytest.mark.parametrize("step_time", [None, 0.05])
def test_a_real_clock(step_time):
    device = RealDevice(step_time)
    before = device.now()
    device.begin_iteration()
    seconds = device.end_iteration()
    assert (step_time or 0) <= seconds <= device.now() - before


@pytest.mark.parametrize(("step_time", "ahead"), [(None, 0.0), (0.4, 0.0), (0.9, 0.2), (4.1, 1.8)])
def test_who_has_time_to_spare_lets_part_of_it_pass_before_computing(step_time, ahead):
    device = FakeTime(step_time)
    device.time = 7.0
    device.begin_iteration()
    device.stagger()
    assert device.time == pytest.approx(7.0 + ahead)
    device.time += 0.25
    assert device.end_iteration() == pytest.approx(step_time or 0.25)
    assert device.overruns == 0


def test_what_has_passed_since_the_iteration_began_is_part_of_it():
    device = FakeTime(step_time=4.1)
    device.begin_iteration()
    device.time += 1.0  # a round is logged, for instance
    device.stagger()
    assert device.time == pytest.approx(1.8)
