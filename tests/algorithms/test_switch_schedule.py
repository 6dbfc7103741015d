import pytest

from esync.algorithms.switch_schedule import Schedule, decayed, parse_decay, parse_hyper


def test_published_steps_become_samples():
    """400 steps of BSP and ASP up to step 61,200, 8 workers with batches of 128: 5 % of 64,000 × 128 samples."""
    plan = Schedule("10", train_steps=(400, 61_200)).plan(workers=8, batch_size=128, samples=1.0)
    assert plan.samples == 64_000 * 128
    assert plan.bsp_share == pytest.approx(0.05)
    assert plan.order == "10"


def test_a_share_of_the_samples():
    plan = Schedule(bsp_share=0.25).plan(workers=3, batch_size=10, samples=1000)
    assert [(each.synchronous, each.end) for each in plan.segments] == [(True, 250), (False, 1000)]
    assert plan.at(249.0).synchronous
    assert not plan.at(250).synchronous
    assert not plan.at(5000).synchronous


@pytest.mark.parametrize(("order", "share", "left"), [("10", 1.0, "1"), ("10", 0.0, "0"), ("01", 0.25, "01")])
def test_segments_without_samples_are_left_out(order, share, left):
    plan = Schedule(order, bsp_share=share).plan(workers=3, batch_size=10, samples=1000)
    assert plan.order == left
    assert plan.bsp_share == pytest.approx(share)


def test_three_segments_with_lists():
    schedule = Schedule(
        "101", (10, 50, 60), None, (5, 20, 5), ("learning_rate=0.5,momentum=0.9", "-", "weight_decay=0")
    )
    plan = schedule.plan(workers=4, batch_size=2, samples=1.0)
    assert [each.end for each in plan.segments] == [80, 160, 240]
    assert [each.evaluate_every for each in plan.segments] == [5, 20, 5]
    assert [dict(each.hyper) for each in plan.segments] == [
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
def test_what_does_not_fit_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        Schedule(**options)


def test_a_share_of_an_endless_run():
    with pytest.raises(ValueError, match="how long the run is"):
        Schedule(bsp_share=0.5).plan(2, 1, float("inf"))


def test_hyper_parameters():
    assert parse_hyper("learning_rate=0.1, momentum=0.9") == {"learning_rate": 0.1, "momentum": 0.9}
    for wrong in ("momentum", "momentum=x", "momentum=-1", "learning_rate=inf"):
        with pytest.raises(ValueError, match="should be NAME=NUMBER"):
            parse_hyper(wrong)


def test_the_learning_rate_falls_with_the_samples():
    decay = parse_decay("0.5:0.1,0.75:0.01")
    assert [decayed(decay, done) for done in (0, 0.49, 0.5, 0.74, 0.75, 1)] == [1, 1, 0.1, 0.1, 0.01, 0.01]
    for wrong in ("0.5", "0.5:x", "0.75:0.1,0.5:0.1", "0:1", "0.5:0"):
        with pytest.raises(ValueError, match="should"):
            parse_decay(wrong)


def test_a_detour_does_not_shorten_the_synchronous_segment():
    plan = Schedule(bsp_share=0.25).plan(workers=3, batch_size=10, samples=1000)
    assert plan.at(600, together=240).synchronous
    assert not plan.at(600, together=250).synchronous
    assert plan.asynchronous_left(600, together=240) == 390
    assert plan.planned_together(100) == 100
    assert plan.planned_together(1000) == 250


def test_a_detour_has_the_hyper_parameters_of_the_asynchronous_segment_that_it_is_taken_from():
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
