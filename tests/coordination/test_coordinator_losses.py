"""The coordinator when workers die: replaced in the middle of a round, or dropped."""

import pytest

from esync import config
from esync.coordination.coordinator import ConflictError, Coordinator

NOT_READY, READY = False, True


def begun(speeds: list[float]) -> Coordinator:
    """A coordinator whose devices all began round 1 at time 0 and told their capability."""
    coordinator = Coordinator(len(speeds), 0.0)
    for rank, speed in enumerate(speeds):
        coordinator.apply(rank, 0, speed, now=0.0)
    return coordinator


def test_replacement_begins_the_round_anew_with_the_known_speed():
    job = begun([0.3, 1.0])
    assert job.apply(1, 1, 1.0, now=1.0) is READY  # dies before it has committed
    assert job.apply(0, 1, 0.3, now=1.1) is READY
    job.reset(1, 1, now=6.0, rejoin=True)
    assert job.snapshot()["records"][1][1:3] == [0, 1.0]
    assert job.apply(1, 0, 0.9, now=6.0) is NOT_READY
    assert job.apply(1, 1, 1.0, now=7.0) is READY


def test_replacement_may_open_the_next_round():
    job = begun([0.3, 1.0])
    job.reset(1, 2, now=2.0, rejoin=True)
    assert job.snapshot()["t"] == 2
    with pytest.raises(ConflictError):
        job.reset(1, 4, now=2.0, rejoin=True)


@pytest.mark.parametrize("dies", ["in its iteration", "after READY", "before its RESET"])
def test_dead_slowest_device_lets_the_others_exchange_after_a_while(dies):
    """Then the servers notice the death and drop it, and the next RESET names the members."""
    job = begun([0.3, 0.4, 1.0])
    start, round_ = 0.0, 1
    if dies == "after READY":
        assert job.apply(2, 1, 1.0, now=1.0) is READY
        start = 1.0
    if dies == "before its RESET":
        for rank, speed in enumerate([0.3, 0.4, 1.0]):
            job.apply(rank, 1, speed, now=1.0)
        for rank in (0, 1):
            job.reset(rank, 2, now=1.1)
        start, round_ = 1.1, 2
    ready: dict[int, float] = {}
    for k in range(1, 200):
        for rank, speed in ((0, 0.3), (1, 0.4)):
            if rank not in ready and job.apply(rank, k, speed, now=start + k * speed):
                ready[rank] = start + k * speed
    assert sorted(ready) == [0, 1]
    assert max(ready.values()) - start < 3 * 1.0 + config.RESET_PATIENCE
    job.reset(0, round_ + 1, now=20.0, members=[0, 1])
    job.reset(1, round_ + 1, now=20.0, members=[0, 1])
    assert job.apply(0, 1, 0.3, now=20.3) is READY  # worker 1 ends at 20.4, and worker 2 is not reckoned with
    assert job.apply(1, 1, 0.4, now=20.4) is READY


@pytest.mark.parametrize("again", ["rejoins", "is a member"])
def test_excluded_worker_counts_again_after_it_rejoins(again):
    job = begun([0.3, 1.0])
    job.reset(0, 2, now=2.0, members=[0])
    assert job.apply(0, 1, 0.3, now=2.3) is READY
    job.reset(0, 3, now=2.4)
    assert job.apply(0, 1, 0.3, now=2.7) is READY  # nothing has changed
    job.reset(0, 4, now=2.8)
    if again == "rejoins":
        job.reset(1, 4, now=2.8, rejoin=True)
    else:
        job.reset(1, 4, now=2.8, members=[0, 1])
    assert job.apply(0, 1, 0.3, now=3.1) is NOT_READY
