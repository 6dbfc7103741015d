"""The settings that the state server chooses from measured times."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from esync import config
from esync.coordination.automatic_settings import (
    AutomaticSettings,
    SettingsChooser,
    choose,
    exchange_seconds,
)
from esync.coordination.coordinator import Coordinator, InvalidError
from esync.coordination.records import Record
from esync.coordination.tier_settings import TierSettings
from esync.coordination.tiers import Division
from esync.samples import worth

BITS = {"fp16": 16.0, "4bit": 4.0, "2bit": 2.0}
START = AutomaticSettings(0.0, 1, "2bit")
HALF = 0.5


def chosen(exchanges, fastest=1.0, slowest=1.0, before=START, **options):
    return choose(TierSettings((), (), HALF, compressions=BITS, **options), [fastest, slowest], exchanges, 2, before)


@pytest.mark.parametrize(
    ("exchange", "compression", "seconds"),
    [
        (0.1, "fp16", 8),  # eight times as many bits take 0.8 s
        (1.1, "4bit", 8),
        (3.9, "2bit", 8),
        (20.0, "2bit", 20),  # only where the coarsest one does not fit, a round is longer
    ],
)
def test_choose_takes_the_finest_compression_that_does_not_make_rounds_longer(exchange, compression, seconds):
    settings = chosen({"2bit": exchange})
    assert (settings.compression, settings.seconds) == (compression, seconds)


def test_choose_goes_by_what_has_been_measured_rather_than_by_bits():
    assert chosen({"2bit": 0.1, "fp16": 9.0}).compression == "4bit"
    assert chosen({"2bit": 1.0, "4bit": 1.1}).compression == "fp16"
    assert exchange_seconds("fp16", {"2bit": 1.0}, BITS) == pytest.approx(8.0)
    assert exchange_seconds("fp16", {"2bit": 1.0, "4bit": 1.1}, BITS) == pytest.approx(1.7)
    assert exchange_seconds("fp16", {"2bit": 1.0, "4bit": 0.9}, BITS) == pytest.approx(0.9)


@given(st.floats(0.01, 100), st.floats(1, 50), st.floats(0.001, 1000), st.integers(1, 128))
def test_choose_keeps_its_choice_while_nothing_changes(fastest, ratio, exchange, before):
    first = chosen({"2bit": exchange}, fastest, ratio * fastest, AutomaticSettings(0.0, before, "2bit"))
    measured = {"2bit": exchange, first.compression: exchange * BITS[first.compression] / 2}
    second = chosen(measured, fastest, ratio * fastest, first)
    assert chosen(measured, fastest, ratio * fastest, second) == second
    assert 1 <= second.iterations <= config.SLOWEST_ITERATIONS_MAX


def test_choose_counts_iterations_of_the_slowest_worker():
    assert chosen({}, fastest=1.0, slowest=3.0).iterations == 3
    assert chosen({}, fastest=1.0, slowest=8.0).iterations == 1
    assert chosen({"2bit": 60.0}, fastest=1.0, slowest=3.0).iterations == 20


def test_choose_keeps_given_iterations():
    before = AutomaticSettings(0.0, 2, "2bit")
    settings = chosen({"2bit": 0.5}, slowest=3.0, before=before, chooses_iterations=False)
    assert (settings.iterations, settings.seconds, settings.compression) == (2, 6.0, "fp16")


UNCHOSEN = AutomaticSettings(0.0, 1)


def groups(paces, exchange, before=UNCHOSEN, counted=None):
    """Return the settings where the workers are chosen, too, without compression."""
    return choose(TierSettings(None, (), HALF), paces, {"": exchange}, counted or len(paces), before)


def test_choose_takes_the_workers_that_make_the_most_progress():
    assert groups([1.0, 1.0, 1.0, 1.0, 100.0], 0.1).slowest == 1.0  # rounds of a hundred iterations
    assert groups([1.0, 2.0, 3.0, 4.0], 0.1).slowest == 4.0
    eight = [float(pace) for pace in range(1, 9)]
    assert groups(eight, 1.0).slowest == 8.0
    assert groups(eight, 20.0).slowest < 5.0  # with a slow network, fewer of them exchange sooner
    assert groups([1.0, 1.0], 1000.0).slowest == 1.0  # workers of one speed stay together


@pytest.mark.parametrize(("slower", "answers"), [(3.0, (False, False)), (4.0, (False, True)), (10.0, (True, True))])
def test_choose_has_the_fastest_worker_train_alone_where_the_other_brings_little(slower, answers):
    """Between the two limits, the present choice stays."""
    together, alone = AutomaticSettings(8.0, 1, slowest=slower), AutomaticSettings(8.0, 8, slowest=1.0, alone=True)
    assert tuple(groups([1.0, slower], 0.1, before).alone for before in (together, alone)) == answers


def test_choose_leaves_workers_alike_together():
    assert not groups([1.0, 1.0], 1000.0).alone
    assert not groups([1.0], 0.1).alone


def test_division_leaves_out_all_but_rank_0_and_the_fastest_worker_where_it_trains_alone():
    records = [Record(rank) for rank in range(3)]
    for record, pace in zip(records, (5.0, 0.5, 20.0), strict=True):
        record.capability = pace
    division = Division.of(TierSettings(None, None, HALF), 3)
    division.update(records, (), AutomaticSettings(4.0, 8, slowest=0.5, alone=True))
    assert (division.left_out, division.tiers) == ({2}, [1, 0, 1])


def test_choose_keeps_its_workers_where_others_would_bring_little():
    eight = [float(pace) for pace in range(1, 9)]
    first = groups(eight, 8.0)
    assert groups([pace * 1.02 for pace in eight], 8.1, first).slowest == pytest.approx(1.02 * first.slowest)


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=9), st.floats(0.001, 100), st.integers(1, 128))
def test_choose_is_never_far_from_the_best_group(paces, exchange, before):
    paces = sorted(paces)
    settings = groups(paces, exchange, AutomaticSettings(0.0, before))
    assert settings.slowest in paces
    members = [pace for pace in paces if pace <= settings.slowest]
    speeds, alone = 1 / np.array(members), 1 / paces[0]
    apart = max(settings.seconds, members[-1]) + exchange * len(members) / len(paces)
    reached = sum(speeds) * worth(config.NOISE_SCALE, speeds * apart)
    if paces[1:] and paces[1] > 1.2 * paces[0]:  # else one of them alone is no group
        assert reached >= alone / (1 + config.AUTOMATIC_GAIN) * (1 - 1e-9)


def started_coordinator(**settings):
    coordinator = Coordinator(2, 0.0, tiering=TierSettings((), (), HALF, **settings))
    for rank in (0, 1):
        coordinator.query(rank, 1, 0, 1.0, 0.0)
        coordinator.query(rank, 1, 1, 1.0, 1.0)
    return coordinator


def play(coordinator, first, seconds):
    """Let both workers exchange once in each round, with `seconds` for each compression."""
    decisions, answer = [], coordinator.query(0, first, 2, 1.0, 1.0)
    for round in range(first + 1, first + 7):
        for rank in (0, 1):
            coordinator.reset(rank, round, float(round), exchange=seconds[answer.compression or "2bit"])
        answer = coordinator.query(0, round, 1, 1.0, float(round))
        decisions.append((answer.iterations, answer.compression))
    return decisions


def test_coordinator_chooses_iterations_by_the_exchanges_that_it_is_told_of():
    assert play(started_coordinator(), 1, {"2bit": 10.0})[-1] == (10, "")


def test_chosen_settings_survive_a_restart_of_the_state_server():
    coordinator = started_coordinator(compressions=BITS)
    play(coordinator, 1, {"fp16": 9.0, "4bit": 1.5, "2bit": 1.0})
    saved = TypeAdapter(Coordinator)
    again = saved.validate_python(json.loads(json.dumps(saved.dump_python(coordinator, mode="json"))))
    assert again == coordinator
    assert again.query(0, 7, 1, 1.0, 8.0) == coordinator.query(0, 7, 1, 1.0, 8.0)
    assert again.division is None


def test_settings_do_not_depend_on_workers_that_are_given_to_be_left_out():
    coordinator = Coordinator(2, 0.0, tiering=TierSettings(None, (1,), HALF))
    for rank, pace in enumerate((0.1, 0.4)):
        coordinator.query(rank, 1, 1, pace, 1.0)
    coordinator.reset(0, 2, 2.0)
    assert coordinator.slowest_iterations == config.ROUND_ITERATIONS  # of worker 0


def test_coordinator_tries_finer_compressions_and_returns_from_one_that_is_too_long():
    seconds = {"fp16": 9.0, "4bit": 1.5, "2bit": 1.0}
    decisions = play(started_coordinator(compressions=BITS), 1, seconds)
    assert [compression for _, compression in decisions] == ["2bit", "4bit", "4bit", "fp16", "fp16", "4bit"]


def test_coordinator_does_not_go_by_the_fast_link_of_the_worker_that_reports_first():
    coordinator, seconds = started_coordinator(compressions=BITS), {"fp16": 40.0, "4bit": 10.0, "2bit": 5.0}
    compression, chosen_compressions = "2bit", []
    for round in range(2, 12):
        coordinator.reset(0, round, float(round), exchange=0.01)  # it is on the servers' host
        coordinator.reset(1, round, float(round), exchange=seconds[compression])
        compression = coordinator.query(0, round, 1, 1.0, float(round)).compression
        chosen_compressions.append(compression)
    assert set(chosen_compressions) == {"2bit"}


@pytest.mark.parametrize("bits", [{"a": 2.0, "b": 2.0}, {"a": 2.0, "b": 16.0}, {"a": float("inf")}])
def test_coordinator_refuses_compressions_that_are_not_in_order(bits):
    with pytest.raises(InvalidError, match="compressions must have finite numbers of bits, the largest first"):
        started_coordinator(compressions=bits)


def test_chooser_accepts_times_of_exchanges_of_any_size():
    chooser = SettingsChooser.of(TierSettings((), (), HALF, compressions={"fine": 16.0, "coarse": 2.0}), 1)
    record = Record(0, capability=1.0)
    compressions, window = [], config.AUTO_WINDOW
    for seconds in (1e-20, 1e-10, 5e-324, *[1e-100] * window, *[1e9] * window, 1.0):
        record.add_exchange(seconds, chooser.settings.compression)
        chooser.choose([record], [record])
        compressions.append(chooser.settings.compression)
    assert compressions[-1] == "coarse"  # whose measured time had become 0
