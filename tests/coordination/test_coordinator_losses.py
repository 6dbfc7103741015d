"""The coordinator when workers die: replaced in the middle of a round, or dropped."""

import pytest
from coordinator_scripts import play, started_coordinator

from esync import config
from esync.coordination.coordinator import ConflictError


def test_replacement_begins_the_round_anew_with_the_known_speed():
    speeds = [0.3, 1.0]
    job = started_coordinator(speeds)
    play(
        job,
        speeds,
        """
        1.0 s: 1 did 1: READY      # dies before it has committed
        1.1 s: 0 did 1: READY
        6.0 s: 1 RESET 1 rejoins
        """,
    )
    assert job.snapshot()["records"][1][1:3] == [0, 1.0]
    play(job, speeds, "6.0 s: 1 did 0 in 0.9: NOT READY\n7.0 s: 1 did 1: READY")


def test_replacement_may_open_the_next_round():
    job = started_coordinator([0.3, 1.0])
    job.reset(1, 2, now=2.0, rejoin=True)
    assert job.snapshot()["t"] == 2
    with pytest.raises(ConflictError):
        job.reset(1, 4, now=2.0, rejoin=True)


@pytest.mark.parametrize("dies", ["in its iteration", "after READY", "before its RESET"])
def test_dead_slowest_device_lets_the_others_exchange_after_a_while(dies):
    """Then the servers notice the death and drop it, and the next RESET names the members."""
    job = started_coordinator([0.3, 0.4, 1.0])
    start, round_ = 0.0, 1
    if dies == "after READY":
        assert job.query(2, None, 1, 1.0, now=1.0).ready
        start = 1.0
    if dies == "before its RESET":
        for rank, speed in enumerate([0.3, 0.4, 1.0]):
            job.query(rank, None, 1, speed, now=1.0)
        for rank in (0, 1):
            job.reset(rank, 2, now=1.1)
        start, round_ = 1.1, 2
    ready: dict[int, float] = {}
    for k in range(1, 200):
        for rank, speed in ((0, 0.3), (1, 0.4)):
            if rank not in ready and job.query(rank, None, k, speed, now=start + k * speed).ready:
                ready[rank] = start + k * speed
    assert sorted(ready) == [0, 1]
    assert max(ready.values()) - start < 3 * 1.0 + config.RESET_PATIENCE
    job.reset(0, round_ + 1, now=20.0, members=[0, 1])
    job.reset(1, round_ + 1, now=20.0, members=[0, 1])
    assert job.query(0, None, 1, 0.3, now=20.3).ready  # worker 1 ends at 20.4, and worker 2 is not reckoned with
    assert job.query(1, None, 1, 0.4, now=20.4).ready


@pytest.mark.parametrize("again", ["rejoins", "members 0 1"])
def test_excluded_worker_counts_again_after_it_rejoins(again):
    script = f"""
        2.0 s: 0 RESET 2 members 0
        2.3 s: 0 did 1: READY
        2.4 s: 0 RESET 3
        2.7 s: 0 did 1: READY      # nothing has changed
        2.8 s: 0 RESET 4
        2.8 s: 1 RESET 4 {again}
        3.1 s: 0 did 1: NOT READY
    """
    play(started_coordinator([0.3, 1.0]), [0.3, 1.0], script)
