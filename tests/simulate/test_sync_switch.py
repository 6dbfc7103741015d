"""Sync-Switch on a simulated cluster without gradients: when it switches, and how long workers
wait.
"""

import pytest

from esync.algorithms import SyncSwitch
from esync.algorithms.switch_schedule import RAMPS
from esync.exchange import Use
from esync.launch import flags
from esync.runtime.straggler_injection import StragglerEvent
from esync.simulate.network import Link
from esync.simulate.result import result
from esync.simulate.simulation import Simulation, TimingNumerics

from ..support.variants import variants
from .modelling import cluster, with_devices

DEVICES = (0.1, 0.1, 0.4)


def simulate(*words, modelled=None, samples=1000, **arguments):
    options = flags.parse(["--mode=sync-switch", "--batch-size=10", *words])
    modelled = modelled or cluster(*DEVICES, servers=2)
    simulation = Simulation(modelled, options, TimingNumerics(options, samples), **arguments)
    simulation.run()
    return simulation


def first_round_state(simulation):
    first, *other_states = [node.round_state for node in simulation.state.nodes]
    for (
        other
    ) in other_states:  # the first server decides when the run is over: the others may use a last commit of each worker
        assert first.step <= other.step <= first.step + first.slots, "the servers disagree"
        assert first.version <= other.version <= first.version + first.slots, "the servers disagree"
    return first


def test_sync_switch_with_published_steps_switches_there():
    simulation = simulate("--train-steps", "10", "40")
    round_state = first_round_state(simulation)
    assert (round_state.step, round_state.samples) == (40, 10 * 30 + 30 * 10)
    # 10 rounds take as long as the slowest; then 30 commits come at 10 + 10 + 2.5 a second.
    assert simulation.workers[0].ended == pytest.approx(10 * 0.4 + 30 / 22.5, rel=0.1)
    fast, _, slow = simulation.workers
    assert slow.rounds < fast.rounds
    assert sum(worker.rounds for worker in simulation.workers) == round_state.version == 60


@pytest.mark.parametrize(("share", "waits"), [("0", False), ("1", True)])
def test_sync_switch_with_share_0_or_1_is_asgd_or_ssgd(share, waits):
    simulation = simulate("--bsp-share", share, "--epochs", "0.3")
    assert (simulation.workers[0].longest_wait > 0.2) == waits
    assert first_round_state(simulation).samples == 300


def test_sync_switch_with_order_101_switches_back_to_synchronous():
    simulation = simulate("--switch-order", "101", "--train-steps", "5", "35", "45")
    round_state = first_round_state(simulation)
    # The switch back comes with rank 0's commit, and others may have used theirs at once before
    # they hear of it.
    assert 5 * 30 + 30 * 10 + 10 * 30 <= round_state.samples <= 5 * 30 + 30 * 10 + 10 * 30 + 50
    assert round_state.synchronous
    assert simulation.workers[0].longest_wait > 0.2


def test_sync_switch_replaces_a_crashed_worker_in_either_phase():
    for at in (0.5, 2.5):
        crashed = cluster(*DEVICES, servers=2, crashes=[(1, at, 0.3)])
        simulation = simulate("--train-steps", "5", "60", modelled=crashed)
        assert first_round_state(simulation).samples == 5 * 30 + 55 * 10


def straggling(policy, straggler_events, *words, slow=(2, 5), **arguments):
    """Return a finished run of eight equal workers with 10 % jitter.

    Two of them are stragglers now and then.
    """
    modelled = cluster(*[0.1] * 8, servers=2, jitter=0.1, link=Link(1e9, 1e-4))
    modelled = with_devices(modelled, slow, straggler_events=straggler_events)
    words = ("-n=lenet", f"--online-policy={policy}", *words)
    return simulate(*words, modelled=modelled, samples=24_000, **arguments)


#: Four times, as in the published scenario 2; a step takes three times as long then.
TRANSIENT = tuple(StragglerEvent("network", 0.07, at, 10.0) for at in (4.0, 20.0, 36.0, 52.0))


def test_sync_switch_elastic_policy_saves_time_with_the_same_samples():
    seen = []

    def watch(simulation, trainer):
        if trainer.rank == 1:
            seen.append(trainer.algorithm.result.excluded)

    words = ("--epochs=1.5", "--bsp-share=1")
    nothing, elastic, undisturbed = (
        straggling("none", TRANSIENT, *words),
        straggling("elastic", TRANSIENT, *words, watch=watch),
        straggling("elastic", (), *words),
    )
    times = [simulation.workers[0].ended for simulation in (undisturbed, elastic, nothing)]
    assert times == sorted(times)
    assert times[2] - times[1] > 0.1 * (times[2] - times[0])
    assert {rank for excluded in seen for rank in excluded} == {2, 5}
    assert (2, 5) in seen
    assert seen[-1] == ()
    for simulation in (nothing, elastic, undisturbed):
        assert 36_000 <= first_round_state(simulation).samples < 36_080
    assert not undisturbed.state_server.watch.stragglers
    # What was put aside is not counted anywhere.
    assert sum(worker.rounds for worker in elastic.workers) == first_round_state(elastic).version


class Ways:
    """Counts how a worker's steps were used: in rounds with the others', or at once."""

    def __init__(self) -> None:
        self.together, self.at_once, self.changes, self._now = 0, 0, 0, True

    def __call__(self, simulation, trainer) -> None:
        if trainer.rank == 1:
            self.together += self._now
            self.at_once += not self._now
            self.changes += trainer.algorithm.synchronous != self._now
            self._now = trainer.algorithm.synchronous


#: Two straggler_events of 20 s in the synchronous phase, one of them at its end.
LONG = (StragglerEvent("compute", 0.3, 4.0, 20.0), StragglerEvent("compute", 0.3, 30.0, 20.0))


@pytest.mark.parametrize("share", variants(["0.25", "0.5"], quick=["0.25"]))
def test_sync_switch_greedy_detour_is_taken_from_the_asynchronous_share(share):
    """The planned synchronous share is trained in any case; the greedy policy only changes when."""
    words = ("--epochs=3", f"--bsp-share={share}")
    disturbed, undisturbed = Ways(), Ways()
    books_of = [
        first_round_state(straggling("greedy", straggler_events, *words, watch=watch))
        for straggler_events, watch in ((LONG, disturbed), ((), undisturbed))
    ]
    assert undisturbed.changes == 1
    assert disturbed.changes >= 3  # away, back, and over to the asynchronous segment
    rounds = float(share) * 72_000 / 80
    assert undisturbed.together == rounds
    assert disturbed.together == rounds
    for round_state in books_of:
        assert 72_000 <= round_state.samples < 72_080


def test_sync_switch_result_contains_the_share_done_synchronously(caplog):
    words = ("--epochs=1", "--bsp-share=1")
    simulation = straggling("greedy", LONG[:1], *words)
    assert result(simulation, "eight.yaml")["bsp_share_done"] == 1.0
    assert "nothing that could be trained asynchronously" in caplog.text  # so it waits, and says so
    caplog.clear()
    straggling("greedy", (), "--epochs=0.1", "--bsp-share=0.5", "--switch-order=01")
    assert "nothing that could be trained asynchronously" in caplog.text
    caplog.clear()
    simulation = straggling("greedy", LONG[:1], "--epochs=1", "--bsp-share=0.5")
    assert not caplog.text
    assert result(simulation, "eight.yaml")["bsp_share_done"] == pytest.approx(0.5, abs=0.005)


#: Rank 0, which asks for the switches, is the straggler: one of its iterations is twenty of the
#: others'.
SLOW_LEADER = (StragglerEvent("compute", 2.0, 4.0, 40.0),)
SOON = ("--straggler-window=2", "--straggler-stride=1", "--straggler-raise-after=2")


def test_sync_switch_with_slow_leader_keeps_the_synchronous_share_in_a_detour():
    share = 0.8
    simulation = straggling("greedy", SLOW_LEADER, "--epochs=1", f"--bsp-share={share}", *SOON, slow=(0,))
    assert result(simulation, "eight.yaml")["bsp_share_done"] == pytest.approx(share, abs=0.005)


def test_sync_switch_with_slow_leader_keeps_the_asynchronous_segment_length():
    words = ("--epochs=1", "--switch-order=01", "--bsp-share=0.25")
    simulation = straggling("none", SLOW_LEADER, *words, slow=(0,))
    assert result(simulation, "eight.yaml")["bsp_share_done"] == pytest.approx(0.25, abs=0.01)


def test_sync_switch_detour_ends_when_the_asynchronous_share_is_used_up():
    straggler_events = (StragglerEvent("compute", 0.3, 4.0, 1000.0),)
    ways = Ways()
    round_state = first_round_state(straggling("greedy", straggler_events, "--epochs=1", "--bsp-share=0.8", watch=ways))
    assert ways.changes in (2, 3)  # away, back, and over to what may be left for the asynchronous segment
    assert ways.together == 0.8 * 24_000 / 80
    assert 24_000 <= round_state.samples < 24_080


def test_sync_switch_allows_detours_in_the_last_segment():
    """Order 101: a detour in the first segment shortens the second; the third ends as planned."""
    ways = Ways()
    words = ("--switch-order", "101", "--train-steps", "200", "1800", "2000")
    round_state = first_round_state(straggling("greedy", LONG[:1], *words, watch=ways))
    assert 200 * 80 + 1600 * 10 + 200 * 80 <= round_state.samples < 200 * 80 + 1600 * 10 + 200 * 80 + 80
    assert 398 <= ways.together <= 400  # commits under way at the way back to BSP may take a round's place


def test_sync_switch_leader_may_be_a_straggler_and_is_included_again():
    straggler_events = (StragglerEvent("compute", 0.3, 3.0, 1000.0),)
    simulation = straggling("elastic", straggler_events, "--epochs=0.6", "--bsp-share=0.5", slow=(0,))
    assert first_round_state(simulation).samples >= 14_400
    assert not first_round_state(simulation).excluded.any()
    slow, other = simulation.workers[0].rounds, simulation.workers[1].rounds
    assert other > 90  # went on at its own pace
    assert slow < 0.6 * other
    usual = straggling("none", straggler_events, "--epochs=0.6", "--bsp-share=0.5", slow=(0,))
    assert simulation.workers[1].ended < 0.7 * usual.workers[1].ended


def test_sync_switch_straggler_that_crashes_returns_excluded():
    modelled = cluster(*[0.1] * 5, servers=2, crashes=[(3, 11.0, 0.5)])
    modelled = with_devices(modelled, [3], straggler_events=(StragglerEvent("compute", 0.3, 2.0, 15.0),))
    ended = {}
    for policy in ("elastic", "none"):
        words = [f"--online-policy={policy}", "--bsp-share=1", "--epochs=1"]
        excluded = []

        def watch(simulation, trainer, excluded=excluded):
            excluded.append((simulation.engine.now, trainer.algorithm.result.excluded))

        simulation = simulate(*words, modelled=modelled, samples=10_000, watch=watch)
        assert first_round_state(simulation).samples >= 10_000
        assert len(simulation.workers[3].worlds) == 2
        ended[policy] = simulation.workers[0].ended
        if policy == "elastic":
            assert {ranks for at, ranks in excluded if 10.5 < at < 14.0} == {(3,)}  # its replacement, too
            assert excluded[-1][1] == ()
    assert ended["elastic"] < ended["none"]


#: Without gradients there is no optimizer's momentum, only that of the segments.
MOMENTUM = ("--hparams", "momentum=0.9", "momentum=0.9")


@pytest.fixture
def payloads(monkeypatch):
    """Return the list of what workers send: rank, payload, and the samples of all workers by then."""
    sent = []
    make = SyncSwitch._payload

    def record(self, batch_size):
        payload = make(self, batch_size)
        sent.append((self.exchange.rank, payload, self.result.samples))
        return payload

    monkeypatch.setattr(SyncSwitch, "_payload", record)
    return sent


@pytest.mark.parametrize(
    ("treatment", "expected"),
    [  # momentum of 0.9, three workers: 0.3 and 0.6 for 60 samples each
        ("keep", {0.9}),
        ("reset", {0.9}),
        ("zero", {0.0}),
        ("scale", {0.3}),
        ("linear", {0.3, 0.6, 0.9}),
        ("doubling", {0.3, 0.6, 0.9}),
    ],
)
def test_sync_switch_momentum_at_the_switch(payloads, treatment, expected):
    words = () if treatment == "keep" else ("--switch-momentum", treatment)
    words += ("--momentum-ramp", "0.2") if treatment in RAMPS else ()
    simulate(*MOMENTUM, "--bsp-share=0.5", "--epochs=0.6", *words)
    together = [payload.momentum for _, payload, _ in payloads if payload.control.use == Use.TOGETHER]
    assert together == [0.9] * 30
    asynchronous = [
        (round(payload.momentum, 6), samples - 300)
        for _, payload, samples in payloads
        if payload.control.use == Use.AT_ONCE
    ]
    assert {momentum for momentum, _ in asynchronous} == expected
    if treatment in RAMPS:
        assert all(momentum == (0.3, 0.6, 0.9)[min(2, since // 60)] for momentum, since in asynchronous)
    resets = [(rank, payload.control.switch, samples) for rank, payload, samples in payloads if payload.scalars]
    assert resets == ([(0, False, 270)] if treatment == "reset" else [])  # rank 0, in the last round of ten


def test_sync_switch_momentum_of_an_asynchronous_start_stays(payloads):
    simulate(*MOMENTUM, "--bsp-share=0", "--epochs=0.3", "--switch-momentum=zero")
    assert {payload.momentum for _, payload, _ in payloads} == {0.9}


def test_sync_switch_momentum_scales_that_of_the_segment(payloads):
    words = ("--train-steps", "10", "40", "--hparams", "momentum=0.9", "momentum=0.6", "--switch-momentum=scale")
    simulate(*words)
    assert {payload.control.use: round(payload.momentum, 6) for _, payload, _ in payloads} == {
        Use.TOGETHER: 0.9,
        Use.AT_ONCE: 0.2,
    }
