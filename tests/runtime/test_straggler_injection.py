"""Injected stragglers, alike on a real and on a simulated device."""

import pytest

from esync import arguments
from esync.launch.description import Description, StragglerEntry, straggler_events
from esync.launch.flags import to_arguments
from esync.runtime.straggler_injection import COMPUTE, NETWORK, Straggler, StragglerEvent, parse_straggler_event
from esync.simulate.acknowledgement import noticed_at
from esync.simulate.cluster import model
from esync.simulate.devices import DeviceModel, SimulatedDevice
from esync.simulate.engine import SimulationEngine

from ..simulate.modelling import cluster, with_devices
from ..simulate.modelling import simulate as run
from .test_device import FakeTime

EVENTS = (
    StragglerEvent(COMPUTE, 0.5, 10.0, 5.0),
    StragglerEvent(NETWORK, 0.03, 12.0, 2.0),
    StragglerEvent(COMPUTE, 0.25, 14.0, 2.0),
)


@pytest.mark.parametrize("event", [*EVENTS, StragglerEvent(COMPUTE, 1.0, 1e15, 1e12)])
def test_straggler_event_parses_its_own_text(event):
    assert parse_straggler_event(str(event)) == event


@pytest.mark.parametrize("text", ["compute:1@2", "disk:1@2+3", "compute:-1@2+3", "compute:nan@2+3", ""])
def test_straggler_event_with_malformed_text_is_refused(text):
    with pytest.raises(ValueError, match="KIND:DELAY@AT"):
        parse_straggler_event(text)


def test_straggler_delays_of_overlapping_events_add_up_from_the_run_start():
    clock = [100.0]
    straggler = Straggler(EVENTS, lambda: clock[0])
    assert straggler.delay(COMPUTE, 112.0) == 0
    straggler.begin(2.0)  # a replacement: the run began at 98
    at = {moment: straggler.delay(COMPUTE, 98.0 + moment) for moment in (9.9, 10.0, 14.5, 15.0, 16.0)}
    assert at == {9.9: 0, 10.0: 0.5, 14.5: 0.75, 15.0: 0.25, 16.0: 0}
    clock[0] = 111.0
    assert (straggler.delay(NETWORK), straggler.delay(COMPUTE)) == (0.03, 0.5)


def test_straggler_delays_real_and_modelled_devices_alike():
    engine = SimulationEngine()
    modelled = SimulatedDevice(engine, DeviceModel(1.0, straggler_events=EVENTS), (0,))
    real = FakeTime(1.0)
    real.straggler = Straggler(EVENTS, real.now)
    taken = {}

    def live(name, device):
        device.begin_run(0.0)
        seconds = []
        for _ in range(18):
            device.begin_iteration()
            seconds.append(device.end_iteration())
        taken[name] = seconds

    live("real", real)
    engine.spawn("w", lambda: live("modelled", modelled))
    engine.run()
    assert taken["real"] == taken["modelled"]
    assert taken["real"].count(1.5) == 3
    assert 1.75 in taken["real"]
    assert real.overruns == 0


@pytest.mark.parametrize("used", [0.0001, 0.02, 0.4, 1.234])
@pytest.mark.parametrize("held", [0.0, 0.03, 0.2])
def test_straggler_network_delay_in_the_simulator_equals_that_of_polling(used, held):
    from esync.exchange.protocol.store import FIRST_PAUSE, LONGEST_PAUSE, PAUSE_GROWTH

    way, now, pause, polls = 0.001, 10.0, FIRST_PAUSE, 0
    while True:
        asked = now + held + way  # a poll has come to the server …
        now, polls = asked + way, polls + 1  # … and its answer to the worker
        if asked >= 10.0 + used:
            break
        now, pause = now + pause, min(pause * PAUSE_GROWTH, LONGEST_PAUSE)
    noticed, counted = noticed_at(10.0, 10.0 + used, 2 * way, held)
    assert counted == polls
    assert noticed == pytest.approx(now)


CONTENT = {
    "scheduler": {"host": "s"},
    "servers": [{"host": "s"}],
    "workers": [
        {"host": "a", "device": "cpu", "step_time": 1.0},
        {
            "host": "b",
            "device": "cpu",
            "step_time": 1.0,
            "straggle": [{"kind": "network", "delay": "30ms", "at": 5, "lasting": 2, "every": 10, "times": 3}],
        },
    ],
    "train": {"network": "lenet"},
}


def test_straggler_description_is_the_same_for_launch_and_simulate(tmp_path):
    description = Description.model_validate(CONTENT)
    expected = [StragglerEvent(NETWORK, 0.03, at, 2.0) for at in (5.0, 15.0, 25.0)]
    modelled = model(description, tmp_path)
    assert [list(worker.device.straggler_events) for worker in modelled.workers] == [[], expected]
    words = to_arguments({"straggle": description.workers[1].straggler_events})
    options = arguments.read("worker", "", words)
    assert list(options.straggle) == expected


@pytest.mark.parametrize(
    ("changes", "text"), [({"times": 2}, "every"), ({"every": 1.0, "times": 2}, "over before it begins again")]
)
def test_straggler_entry_that_contradicts_itself_is_refused(changes, text):
    with pytest.raises(ValueError, match=text):
        StragglerEntry(kind="compute", delay="1s", at=0.0, lasting=2.0, **changes)


def test_straggler_events_of_several_entries_are_merged():
    section = [StragglerEntry(kind="compute", delay="1s", at=float(at), lasting=2.0) for at in (3, 1)]
    assert [straggler_event.at for straggler_event in straggler_events(section)] == [3.0, 1.0]


@pytest.mark.parametrize(("kind", "longer"), [(COMPUTE, 1), (NETWORK, 3)])  # network: payload, poll, request
def test_straggler_delays_a_synchronous_round(kind, longer):
    modelled = cluster(1.0, 1.0)
    straggling = with_devices(modelled, [1], straggler_events=(StragglerEvent(kind, 0.25, 0.0, 100.0),))
    usual, late = (run(setup, "--mode=sync", "--batch-size=10", rounds=4) for setup in (modelled, straggling))
    assert late.workers[1].ended - usual.workers[1].ended == pytest.approx(4 * longer * 0.25, abs=0.05)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("--mode=sync --straggle network:1@2+3 --collective=ring", "parameter servers"),
        (
            "--mode=sync-switch --epochs=1 --online-policy=none --straggler-window=5",
            "no sense with --online-policy none",
        ),
        ("--mode=esync --online-policy=greedy", "makes no sense with --mode esync"),
    ],
)
def test_straggle_with_contradictory_flags_is_refused(words, text, capsys):
    with pytest.raises(SystemExit):
        arguments.read("worker", "", words.split())
    assert text in capsys.readouterr().err
