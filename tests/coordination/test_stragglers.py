"""Detection of stragglers and the policies against them, from the seconds that workers report."""

import json

import numpy as np
import pytest
from pydantic import TypeAdapter

from esync.coordination.straggler_policies import OnlinePolicy, OnlinePolicySettings, PolicyDirective, elastic, greedy
from esync.coordination.stragglers import Detection, Detector, Measurements

WORKERS, STEP = 8, 0.1


def detector_of(workers, detection=None):
    return Detector(detection or Detection(), [Measurements() for _ in range(workers)])


def steps(detector, random, count, slower=None, jitter=0.1, excluded=()):
    """Do that many synchronous steps with jitter.

    Returns the step after which each straggler was named, and all that ever were.
    """
    slower = slower or {}
    named = {}
    for step in range(1, count + 1):
        for rank in range(WORKERS):
            seconds = STEP * max(0.1, random.normal(1, jitter)) + slower.get(rank, 0.0)
            detector.add_steps(rank, 1, seconds)
        detector.update([rank for rank in range(WORKERS) if rank not in excluded])
        for rank in detector.stragglers:
            named.setdefault(rank, step)
    return named


@pytest.mark.parametrize("seed", range(3))
def test_detector_raises_no_false_alarm_in_1000_undisturbed_steps(seed):
    assert not steps(detector_of(WORKERS), np.random.default_rng(seed), 1000)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("delay", [0.04, 0.5])
def test_detector_names_stragglers_within_two_windows_and_clears_them(seed, delay):
    random, detection = np.random.default_rng(seed), Detection()
    detector = detector_of(WORKERS, detection)
    assert not steps(detector, random, 40 + seed)  # the disturbance begins anywhere between two looks
    named = steps(detector, random, 2 * detection.window, {1: delay, 6: delay})
    assert set(named) == {1, 6}
    assert set(steps(detector, random, 50, {1: delay, 6: delay})) == {1, 6}
    steps(detector, random, detection.window + detection.stride * detection.clear_after)
    assert not detector.stragglers


def test_detector_ignores_one_slow_step():
    detector = detector_of(WORKERS)
    for place in range(10):
        for step in range(30):
            for rank in range(WORKERS):
                detector.add_steps(rank, 1, 10.0 if rank == 3 and step == place else STEP)
            detector.update(range(WORKERS))
            assert not detector.stragglers


def test_detector_ignores_half_of_the_workers_and_small_differences():
    # m equal stragglers among n are below mean - deviation where n - m > √(m (n - m)), so where m <
    # n / 2.
    for slow, delay, expected in ((3, 0.1, 3), (4, 0.1, 0), (3, 0.005, 0)):
        detector = detector_of(WORKERS)
        for _ in range(50):
            for rank in range(WORKERS):
                detector.add_steps(rank, 1, STEP + delay * (rank < slow))
            detector.update(range(WORKERS))
        assert len(detector.stragglers) == expected


def test_detector_counts_steps_reported_together_one_by_one():
    one, several = (detector_of(2, Detection(window=4, stride=2)) for _ in range(2))
    for _ in range(6):
        for rank in (0, 1):
            one.add_steps(rank, 1, 0.5)
    for rank in (0, 1):
        several.add_steps(rank, 6, 3.0)
    assert one.update((0, 1)) == several.update((0, 1)) is False
    assert one.speeds == several.speeds == {0: 2.0, 1: 2.0}


def test_detector_keeps_an_excluded_silent_worker_a_straggler():
    detector, random = detector_of(WORKERS), np.random.default_rng(0)
    steps(detector, random, 60, {2: 1.0})
    for _ in range(60):
        for rank in range(WORKERS):
            if rank != 2:
                detector.add_steps(rank, 1, STEP)
        detector.update([rank for rank in range(WORKERS) if rank != 2])
    assert detector.stragglers == {2}


def test_policies_exclude_stragglers_or_switch_to_asynchronous():
    assert elastic({5, 2}, 8) == PolicyDirective(excluded=(2, 5))
    assert len(elastic(range(8), 8).excluded) == 3  # more than half stay
    assert elastic({0}, 2) == greedy(set(), 2) == PolicyDirective()
    assert greedy({3}, 8) == PolicyDirective(asynchronous=True)


def feed(watch, count, slow=(), since=None):
    step_counts = since if since is not None else [0] * WORKERS
    for _ in range(count):
        for rank in range(WORKERS):
            watch.record_steps(rank, step_counts[rank], 1, STEP * (1 + 2 * (rank in slow)))
            step_counts[rank] += 1
    return step_counts


@pytest.mark.parametrize(
    ("policy", "during"),
    [("elastic", PolicyDirective(excluded=(1, 4))), ("greedy", PolicyDirective(asynchronous=True))],
)
def test_online_policy_restored_continues_as_if_uninterrupted(policy, during):
    watch = OnlinePolicy.of(WORKERS, OnlinePolicySettings(policy=policy))
    step_counts = feed(watch, 33, slow=(1, 4))
    assert watch.directive == during
    step_counts = feed(watch, 7, since=step_counts)
    saved = TypeAdapter(OnlinePolicy)
    other = saved.validate_python(json.loads(json.dumps(saved.dump_python(watch, mode="json"))))
    assert other.directive == during
    for step in range(30):
        before = list(step_counts)
        assert feed(watch, 1, since=step_counts) == feed(other, 1, since=before)
        assert watch.directive == other.directive, step
    assert watch.directive == PolicyDirective()
    assert saved.dump_python(watch) == saved.dump_python(other)


def test_online_policy_counts_repeated_reports_once():
    once, twice = (OnlinePolicy.of(2, OnlinePolicySettings(window=4, stride=2)) for _ in range(2))
    for since in range(8):
        for rank in (0, 1):
            once.record_steps(rank, since, 1, 1.0)
            for _ in range(2):
                twice.record_steps(rank, since, 1, 1.0)
    assert once == twice
    once.record_steps(1, 0, 1, 5.0)
    assert once.detector.workers[1].seconds == [5.0]
    assert once.reported == [8, 1]
