"""What holds a run up, from figures whose answer is known."""

import pytest

from esync.planning.bottleneck import REMEDIES, Bottleneck, Cause, bottleneck
from esync.simulate.network import Link

SECONDS = 100.0
PORT = 1e6  # bytes per second of every port


def device(host, step_time, computing, wait=0.0, transfer=0.0, questions=0.0):
    return {
        "host": host,
        "device": "cpu",
        "step_time": step_time,
        "computing": computing,
        "wait": wait,
        "transfer": transfer,
        "questions": questions,
    }


def bottleneck_of(*devices, efficiency=0.3, server_port=0.0, worker_port=0.0, server_seconds=0.0):
    """The bottleneck of a run in which these ports are busy for a share of the time."""
    traffic = {
        "server": {"sent": server_port * PORT * SECONDS, "received": 0.0},
        "fast": {"sent": 0.0, "received": worker_port * PORT * SECONDS},
    }
    result = {
        "seconds": SECONDS,
        "efficiency": efficiency,
        "servers": ["server"],
        "server_seconds": [server_seconds],
        "traffic": traffic,
        "devices": list(devices),
    }
    return bottleneck(result, lambda host: Link(PORT), "asked")


def test_devices_that_compute_nearly_always_are_the_bottleneck_themselves():
    assert bottleneck_of(device("fast", 0.1, 95, transfer=5), efficiency=0.95, server_port=0.9).cause is Cause.DEVICES


def test_fast_device_that_waits_for_a_computing_one_is_held_up_by_the_slowest():
    held = bottleneck_of(
        device("fast", 0.1, 20, wait=70, transfer=10), device("slow", 1.0, 90, transfer=10), server_port=0.2
    )
    assert (held.cause, held.where) == (Cause.SLOWEST, "slow/cpu")
    assert held.share == pytest.approx(0.7)


def test_fast_device_that_waits_for_an_exchanging_one_is_held_up_by_its_port():
    fast, far = device("fast", 0.1, 20, wait=70, transfer=10), device("far", 0.1, 20, transfer=80)
    assert bottleneck_of(fast, far, server_port=0.3, worker_port=0.6).cause is Cause.WORKER_PORT


@pytest.mark.parametrize(
    ("loads", "cause", "where"),
    [
        ({"server_port": 0.4, "worker_port": 0.1}, Cause.SERVER_PORT, "server"),
        ({"server_port": 0.1, "worker_port": 0.4}, Cause.WORKER_PORT, "fast"),
        ({"server_port": 0.1, "server_seconds": 40.0}, Cause.SERVER, "server"),
        ({"server_port": 0.05}, Cause.LATENCY, ""),
    ],
)
def test_long_exchange_is_blamed_on_what_is_busy_during_it(loads, cause, where):
    held = bottleneck_of(device("fast", 0.1, 20, transfer=80), **loads)
    assert (held.cause, held.where) == (cause, where)
    assert held.share == pytest.approx(0.8)


def test_questions_that_take_longest_are_blamed_on_the_state_server():
    held = bottleneck_of(device("fast", 0.1, 20, transfer=20, questions=60), server_port=0.2)
    assert (held.cause, held.where) == (Cause.STATE_SERVER, "asked")


def test_time_of_an_exchange_in_which_the_device_computes_is_not_lost():
    held = bottleneck_of(device("fast", 0.1, 80, wait=5, transfer=95), server_port=0.5, efficiency=0.8)
    assert held.share == pytest.approx(0.2 * 0.95)


@pytest.mark.parametrize("cause", Cause)
def test_every_bottleneck_has_a_remedy(cause):
    assert set(REMEDIES) == set(Cause)
    assert "{" not in Bottleneck(cause, "here", 0.5).remedy
