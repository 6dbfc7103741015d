"""The steady part of a simulation, from results whose answer is known."""

import pytest

from esync.planning.steady import between


def result(seconds, samples, rounds, iterations, computing, wait):
    device = {
        "host": "w",
        "device": "cpu",
        "step_time": 0.1,
        "rounds": rounds,
        "iterations": iterations,
        "computing": computing,
        "questions": 0.0,
        "wait": {"mean": wait},
        "transfer": 0.5,
    }
    return {
        "seconds": seconds,
        "samples": samples,
        "rounds": rounds,
        "limit": 100.0,
        "servers": ["s"],
        "server_seconds": [float(rounds)],
        "traffic": {"s": {"sent": 10 * rounds, "received": 0}},
        "devices": [device],
    }


def test_what_both_runs_have_in_common_does_not_count():
    first, second = result(30.0, 1000, 10, 100, 10.0, 2.0), result(50.0, 2000, 20, 200, 20.0, 1.5)
    part = between(first, second)
    assert (part["seconds"], part["samples"], part["rounds"]) == (20.0, 1000, 10)
    assert (part["throughput"], part["efficiency"]) == (50.0, 0.5)
    assert part["traffic"]["s"]["sent"] == 100
    assert part["server_seconds"] == [10.0]
    assert part["devices"][0]["wait"] == pytest.approx(20 * 1.5 - 10 * 2.0)
    assert part["devices"][0]["transfer"] == pytest.approx(5.0)


def test_no_more_samples_count_than_the_devices_compute():
    first, second = result(10.0, 900, 10, 90, 10.0, 0.0), result(20.0, 2000, 20, 200, 20.0, 0.0)
    assert between(first, second)["throughput"] == pytest.approx(100.0)  # 1,100 samples were exchanged in 10 s


def test_device_that_speeds_up_may_compute_more_than_its_step_time_allows():
    first, second = result(10.0, 1000, 10, 100, 10.0, 0.0), result(20.0, 3000, 20, 300, 20.0, 0.0)
    assert between(first, second)["throughput"] == pytest.approx(150.0, rel=0.01)
