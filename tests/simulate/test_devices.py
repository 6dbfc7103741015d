from itertools import islice

import numpy as np
import pytest

from esync.launch.simulation_schema import LARGEST_JITTERS, Period
from esync.simulate.devices import DeviceModel, SimulatedDevice, SpeedProfile, StalledError
from esync.simulate.engine import SimulationEngine


@pytest.mark.parametrize(
    ("distribution", "jitter"),
    [*LARGEST_JITTERS.items(), *((name, 0.2) for name in LARGEST_JITTERS), ("lognormal", 0.2), ("lognormal", 1.5)],
)
def test_jitter_keeps_mean_and_deviation_and_stays_positive(distribution, jitter):
    model = DeviceModel(step_time=2.0, jitter=jitter, distribution=distribution)
    works = np.array(list(islice(model.iteration_times([1]), 200_000)))
    assert works.min() > 0
    assert works.mean() == pytest.approx(2.0, rel=4 * jitter / 447)  # four standard errors
    assert works.std() == pytest.approx(2.0 * jitter, rel=0.05)
    assert (
        works[:9].tolist() == list(islice(model.iteration_times([1]), 9)) != list(islice(model.iteration_times([2]), 9))
    )


@pytest.mark.parametrize(
    ("distribution", "first"),
    [
        ("normal", [1.034558, 1.082162, 1.033044]),
        ("lognormal", [1.029937, 1.080023, 1.028382]),
        ("uniform", [1.004095, 1.156045, 0.876733]),
        ("exponential", [1.007303, 0.930845, 1.437544]),
    ],
)
def test_jitter_of_small_size_draws_the_same_numbers_as_before(distribution, first):
    model = DeviceModel(step_time=1.0, jitter=0.1, distribution=distribution)
    assert list(islice(model.iteration_times([1]), 3)) == pytest.approx(first, abs=1e-6)


def test_trace_is_repeated_and_sets_the_mean():
    model = DeviceModel(step_time=9.0, jitter=0.5, trace=(1.0, 2.0, 6.0))
    assert list(islice(model.iteration_times([0]), 5)) == [1.0, 2.0, 6.0, 1.0, 2.0]
    assert model.mean == 3.0


@pytest.mark.parametrize(
    ("start", "work", "ends"),
    [
        (0.0, 5.0, 5.0),
        (9.0, 2.0, 11.0 + 2.0),  # one second of work before the pause of two seconds, one after it
        (10.0, 1.0, 13.0),
        (11.5, 1.0, 13.0),
        (19.0, 2.0, 22.0),  # half speed from 20 on: the second half takes twice as long
        (25.0, 1.0, 27.0),
    ],
)
def test_speed_profile_with_pauses_ends_work_at_the_time_by_hand(start, work, ends):
    pace = SpeedProfile(speed=[(20.0, 0.5)], pauses=[Period(at=10.0, lasting=2.0)])
    assert pace.ends(start, work) == pytest.approx(ends)


def test_speed_profile_repeats_periodic_pauses():
    pace = SpeedProfile(speed=[], pauses=[Period(at=1.0, lasting=0.5, every=2.0)])
    assert pace.ends(0.0, 0.9) == pytest.approx(0.9)
    assert pace.ends(0.0, 3.0) == pytest.approx(4.0)  # pauses from 1.0 and from 3.0 on
    assert pace.ends(100.0, 3.0) == pytest.approx(104.0)


def test_speed_profile_without_free_time_raises_stalled_error():
    pace = SpeedProfile(speed=[], pauses=[Period(at=at, lasting=1.0, every=2.0) for at in (0.0, 1.0)])
    with pytest.raises(StalledError, match="got nothing done"):
        pace.ends(0.0, 1.0)
    busy = SpeedProfile(speed=[], pauses=[Period(at=0.0, lasting=0.9, every=1.0)])
    assert busy.ends(0.0, 5000.0) == pytest.approx(50_000.0, abs=1)  # many pauses, but with time in between


def test_simulated_device_iteration_counts_from_its_beginning():
    engine = SimulationEngine()
    device = SimulatedDevice(engine, DeviceModel(step_time=2.0), (0,))

    def work():
        device.begin_iteration()
        device.sleep(0.5)  # loading the batch is part of the iteration
        assert device.end_iteration() == 2.0
        assert device.now() == 2.0
        device.sleep(1.0)  # a question is not
        device.begin_iteration()
        assert device.end_iteration() == 2.0
        assert device.now() == 5.0
        assert (device.iterations, device.computing, device.step_time) == (2, 4.0, 2.0)

    engine.spawn("worker", work)
    engine.run()
