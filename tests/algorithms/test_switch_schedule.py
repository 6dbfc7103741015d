import pytest

from esync.algorithms.rate_scaling import decayed, parse_decay
from esync.algorithms.switch_schedule import MOMENTUM_AT_SWITCH, Schedule, parse_hyper


def test_schedule_with_published_steps_becomes_samples():
    """400 BSP steps, ASP up to step 61,200, 8 workers, batches of 128.

    That is 5 % of 64,000 × 128 samples.
    """
    plan = Schedule("10", train_steps=(400, 61_200)).plan(workers=8, batch_size=128, samples=1.0)
    assert plan.samples == 64_000 * 128
    assert plan.bsp_share == pytest.approx(0.05)
    assert plan.order == "10"


def test_schedule_with_bsp_share_switches_after_that_share_of_the_samples():
    plan = Schedule(bsp_share=0.25).plan(workers=3, batch_size=10, samples=1000)
    assert [(segment.synchronous, segment.end) for segment in plan.segments] == [(True, 250), (False, 1000)]
    assert plan.at(249.0).synchronous
    assert not plan.at(250).synchronous
    assert not plan.at(5000).synchronous


@pytest.mark.parametrize(("order", "share", "expected_order"), [("10", 1.0, "1"), ("10", 0.0, "0"), ("01", 0.25, "01")])
def test_schedule_leaves_out_segments_without_samples(order, share, expected_order):
    plan = Schedule(order, bsp_share=share).plan(workers=3, batch_size=10, samples=1000)
    assert plan.order == expected_order
    assert plan.bsp_share == pytest.approx(share)


def test_schedule_with_three_segments_takes_lists():
    schedule = Schedule(
        "101", (10, 50, 60), None, (5, 20, 5), ("learning_rate=0.5,momentum=0.9", "-", "weight_decay=0")
    )
    plan = schedule.plan(workers=4, batch_size=2, samples=1.0)
    assert [segment.end for segment in plan.segments] == [80, 160, 240]
    assert [segment.evaluate_every for segment in plan.segments] == [5, 20, 5]
    assert [dict(segment.hyper) for segment in plan.segments] == [
        {"learning_rate": 0.5, "momentum": 0.9},
        {},
        {"weight_decay": 0},
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": "101", "train_steps": (1, 2)}, "train-steps has 2 entries, but switch order 101 has 3 segments"),
        ({"order": "10", "train_steps": (5, 9), "ckpt_frequency": (1,)}, "ckpt-frequency has 1 entries"),
        ({"order": "10", "bsp_share": 0.5, "hparams": ("-",)}, "hparams has 1 entries"),
        ({"order": "10", "train_steps": (5, 5)}, "each should be above the one before"),
        ({"order": "101", "bsp_share": 0.5}, "needs train-steps"),
        ({"order": "10", "train_steps": (5, 9), "bsp_share": 0.5}, "leave one of them out"),
        ({"order": ""}, "the switch order is empty"),
        ({"order": "10", "hparams": ("lr=1", "-")}, "'lr=1' should be NAME=NUMBER"),
    ],
)
def test_schedule_with_inconsistent_options_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Schedule(**options)


def test_schedule_with_share_of_an_endless_run_is_refused():
    with pytest.raises(ValueError, match="how long the run is"):
        Schedule(bsp_share=0.5).plan(2, 1, float("inf"))


def test_parse_hyper_reads_name_number_pairs_and_refuses_others():
    assert parse_hyper("learning_rate=0.1, momentum=0.9") == {"learning_rate": 0.1, "momentum": 0.9}
    for wrong in ("momentum", "momentum=x", "momentum=-1", "learning_rate=inf"):
        with pytest.raises(ValueError, match="should be NAME=NUMBER"):
            parse_hyper(wrong)


def test_decayed_learning_rate_falls_with_the_samples():
    decay = parse_decay("0.5:0.1,0.75:0.01")
    assert [decayed(decay, done) for done in (0, 0.49, 0.5, 0.74, 0.75, 1)] == [1, 1, 0.1, 0.1, 0.01, 0.01]
    for wrong in ("0.5", "0.5:x", "0.75:0.1,0.5:0.1", "0:1", "0.5:0", "0.5:0.1,0.5:0.01", "0.5:1e308"):
        with pytest.raises(ValueError, match="should"):
            parse_decay(wrong)


def test_schedule_after_a_detour_keeps_the_length_of_the_synchronous_segment():
    plan = Schedule(bsp_share=0.25).plan(workers=3, batch_size=10, samples=1000)
    assert plan.at(600, together=240).synchronous
    assert not plan.at(600, together=250).synchronous
    assert plan.asynchronous_left(600, together=240) == 390
    assert plan.planned_together(100) == 100
    assert plan.planned_together(1000) == 250


def test_schedule_in_a_detour_uses_hyper_parameters_of_the_asynchronous_segment():
    schedule = Schedule(
        "1010", (10, 30, 40, 60), ckpt_frequency=(1, 2, 3, 4), hparams=[f"momentum=0.{n}" for n in "1234"]
    )
    plan = schedule.plan(workers=4, batch_size=1, samples=1.0)  # 40, 20, 40, 20 samples
    assert plan.settings(True, 30, together=20).hyper == {"momentum": 0.1}
    assert plan.settings(False, 30, together=20).hyper == {"momentum": 0.2}
    assert plan.settings(False, 30, together=20).evaluate_every == 2
    assert plan.settings(False, 90, together=60).hyper == {"momentum": 0.4}  # the first asynchronous one is used up
    assert plan.settings(False, 100, together=60).hyper == {"momentum": 0.3}  # and the second: as the schedule has it
    assert plan.at(60, together=40).hyper == {"momentum": 0.3}


def test_since_switch_counts_asynchronous_samples_after_a_synchronous_segment():
    plan = Schedule(bsp_share=0.25).plan(workers=3, batch_size=10, samples=1000)
    assert plan.since_switch(250, together=250) == 0
    assert plan.since_switch(400, together=250) == 150
    assert plan.since_switch(400, together=200) == 200  # 200 samples of a detour, which come from that segment
    assert plan.since_switch(1010, together=250) == 760  # the last commits may come after the end


def test_since_switch_begins_anew_with_every_switch_and_not_without_one():
    back_and_forth = Schedule("01010", (20, 30, 50, 60, 80)).plan(workers=4, batch_size=1, samples=1.0)
    assert back_and_forth.since_switch(10, together=0) is None  # nothing synchronous came before
    assert back_and_forth.since_switch(60, together=40) == 0
    assert back_and_forth.since_switch(65, together=40) == 5
    assert back_and_forth.since_switch(123, together=80) == 3
    two_asynchronous = Schedule("100", (10, 30, 50)).plan(workers=4, batch_size=1, samples=1.0)
    assert two_asynchronous.since_switch(75, together=40) == 35  # one after the other: no switch between them
    assert Schedule(bsp_share=0.0).plan(3, 10, 1000).since_switch(500, together=0) is None


@pytest.mark.parametrize(
    ("treatment", "factors"),
    [
        ("keep", [1, 1, 1, 1, 1]),
        ("reset", [1, 1, 1, 1, 1]),
        ("zero", [0, 0, 0, 0, 0]),
        ("scale", [1 / 8, 1 / 8, 1 / 8, 1 / 8, 1 / 8]),
        ("linear", [1 / 8, 2 / 8, 4 / 8, 7 / 8, 1]),  # seven steps of a seventh of the ramp each
        ("doubling", [1 / 8, 1 / 8, 2 / 8, 4 / 8, 1]),  # three steps
    ],
)
def test_momentum_factor_of_eight_workers(treatment, factors):
    ramped = [0.0, 0.15, 0.45, 0.99, 1.0]
    assert [MOMENTUM_AT_SWITCH[treatment](8, share) for share in ramped] == factors
    assert MOMENTUM_AT_SWITCH[treatment](1, 0.0) == (treatment != "zero")  # one worker's commits are synchronous anyway
    assert MOMENTUM_AT_SWITCH[treatment](8, 40.0) == factors[-1]
