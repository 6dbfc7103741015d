"""esync.CommonLRScheduler against the schedules of Gluon that it asks."""

import copy
import math
import pickle
import random
from typing import Any

import pytest

from esync import CommonLRScheduler
from esync.exchange import Result
from esync.runtime.mxnet_import import mx

lr_scheduler = mx.lr_scheduler
WARM_UP = {"warmup_steps": 5, "warmup_begin_lr": 0.01}


def halving(every: int = 2) -> Any:
    return lr_scheduler.FactorScheduler(every, 0.5, base_lr=0.4)


SCHEDULES = {
    "factor": lambda: halving(3),
    "factor with a floor": lambda: lr_scheduler.FactorScheduler(3, 0.5, stop_factor_lr=0.09, base_lr=0.4),
    "factor with warm-up": lambda: lr_scheduler.FactorScheduler(3, 0.5, base_lr=0.4, **WARM_UP),
    "multi-factor": lambda: lr_scheduler.MultiFactorScheduler([4, 9, 17], 0.5, base_lr=0.4),
    "multi-factor with warm-up": lambda: lr_scheduler.MultiFactorScheduler([4, 9, 17], 0.5, base_lr=0.4, **WARM_UP),
    "poly": lambda: lr_scheduler.PolyScheduler(20, base_lr=0.4, final_lr=0.1),
    "poly with warm-up": lambda: lr_scheduler.PolyScheduler(20, base_lr=0.4, pwr=1, final_lr=0.1, **WARM_UP),
    "cosine": lambda: lr_scheduler.CosineScheduler(20, base_lr=0.4, final_lr=0.1),
    "cosine with constant warm-up": lambda: lr_scheduler.CosineScheduler(
        20, base_lr=0.4, final_lr=0.1, warmup_mode="constant", **WARM_UP
    ),
}


def after(rounds: int = 0, samples: int = 0, seconds: float = 0.0) -> Result:
    """An exchange that has ended then; `elapsed` has gone on since."""
    times = {"exchanged_at": seconds, "elapsed": seconds + 1}
    return Result(round=rounds, version=rounds, samples=samples, wait=0.0, transfer=0.0, finished=False, **times)


def rate(schedule: Any, dataset_size: int | None = None, **progress: Any) -> float:
    schedule.follow(after(**progress), dataset_size)
    return schedule(num_update=10**6)  # which is this worker's own count


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("by", ["rounds", "samples"])
def test_schedule_gives_what_gluons_gives_for_updates(name, by):
    schedule, plain = CommonLRScheduler(SCHEDULES[name](), by), SCHEDULES[name]()
    assert [rate(schedule, **{by: number}) for number in range(30)] == [plain(number + 1) for number in range(30)]


@pytest.mark.parametrize("name", SCHEDULES)
def test_rate_depends_on_the_progress_and_not_on_earlier_calls(name):
    """In another order, with others left out, and by a new process that has not asked before."""
    stepwise = CommonLRScheduler(SCHEDULES[name](), "rounds")
    rates = [rate(stepwise, rounds=number) for number in range(30)]
    draw = random.Random(name)
    jumping = CommonLRScheduler(SCHEDULES[name](), "rounds")
    for number in [draw.randrange(30) for _ in range(200)]:
        assert rate(jumping, rounds=number) == rates[number]
        assert rate(CommonLRScheduler(SCHEDULES[name](), "rounds"), rounds=number) == rates[number]
    assert len(set(rates)) > 2


def test_schedule_beyond_its_end_gives_the_final_rate():
    """Gluon's gives the last rate that it has computed, and a new one the first."""
    for kind in (lr_scheduler.PolyScheduler, lr_scheduler.CosineScheduler):
        schedule = CommonLRScheduler(kind(100, base_lr=0.4, final_lr=0.1), "samples")
        assert rate(schedule, samples=60) > 0.1
        assert rate(schedule, samples=1000) == pytest.approx(0.1)
        assert kind(100, base_lr=0.4, final_lr=0.1)(1001) == 0.4


def test_epochs_count_fractions_and_end_when_their_samples_are_done():
    factor = CommonLRScheduler(halving(), "epochs")
    assert [rate(factor, 50, samples=samples) for samples in (0, 99, 100, 199, 200)] == [0.4, 0.4, 0.2, 0.2, 0.1]
    epochs = CommonLRScheduler(lr_scheduler.CosineScheduler(2, base_lr=0.4), "epochs")
    samples = CommonLRScheduler(lr_scheduler.CosineScheduler(100, base_lr=0.4), "samples")
    for done in (0, 7, 25, 50, 99, 100):
        assert rate(epochs, 50, samples=done) == pytest.approx(rate(samples, samples=done))


def test_seconds_are_those_of_the_last_exchange():
    schedule = CommonLRScheduler(lambda seconds: 1 / (1 + seconds), "seconds")
    assert [rate(schedule, seconds=seconds) for seconds in (0.0, 1.0, 3.0)] == [1.0, 0.5, 0.25]


def test_function_is_asked_with_numbers_from_one_and_once_for_each():
    asked = []
    schedule = CommonLRScheduler(lambda number: asked.append(number) or 1 / number, "rounds")
    assert [rate(schedule, rounds=rounds) for rounds in (0, 0, 1, 1, 3)] == [1.0, 1.0, 0.5, 0.5, 0.25]
    assert asked == [1, 2, 4]


def test_schedule_of_the_program_stays_as_it_is():
    scheduler = halving(1)
    schedule = CommonLRScheduler(scheduler, "rounds")
    assert rate(schedule, rounds=5) == 0.4 / 32
    assert (scheduler.base_lr, scheduler.count) == (0.4, 0)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda schedule: pickle.loads(pickle.dumps(schedule))])
def test_copy_goes_on_at_the_same_place(copied):
    schedule = CommonLRScheduler(halving(), "rounds")
    assert rate(schedule, rounds=2) == 0.2
    other = copied(schedule)
    assert other(1) == 0.2
    assert rate(other, rounds=4) == 0.1
    assert schedule(1) == 0.2


def test_learning_rate_of_the_optimizer_replaces_base_lr_as_with_gluons():
    plain = halving()
    mx.optimizer.create("sgd", learning_rate=0.8, lr_scheduler=plain)
    schedule = CommonLRScheduler(halving(), "rounds")
    assert rate(schedule, rounds=0) == 0.4
    mx.optimizer.create("sgd", learning_rate=0.8, lr_scheduler=schedule)
    assert schedule.base_lr == plain.base_lr == 0.8
    assert [rate(schedule, rounds=number) for number in range(4)] == [plain(number + 1) for number in range(4)]


def test_function_has_no_base_lr_to_replace():
    schedule = CommonLRScheduler(lambda number: 0.5, "rounds")
    mx.optimizer.create("adam", lr_scheduler=schedule)  # which always sets its own
    assert (schedule.base_lr, rate(schedule)) == (None, 0.5)


@pytest.mark.parametrize("scheduler", [0.1, None, mx.lr_scheduler.FactorScheduler])
def test_schedule_of_another_type_is_refused(scheduler):
    with pytest.raises(ValueError, match=r"should be one of mx\.lr_scheduler, or a function"):
        CommonLRScheduler(scheduler, "rounds")


def test_unknown_measure_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="by='iterations': it should be one of samples, epochs, rounds, seconds"):
        CommonLRScheduler(halving(), "iterations")


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_rate_that_is_no_finite_number_is_refused_with_the_place(wrong):
    schedule = CommonLRScheduler(lambda number: wrong, "samples")
    with pytest.raises(ValueError, match=f"schedule has answered {wrong} at samples 5"):
        rate(schedule, samples=4)


def test_schedule_without_epoch_size_or_trainer_says_what_is_missing():
    epochs = CommonLRScheduler(halving(), "epochs")
    with pytest.raises(ValueError, match=r"esync\.Trainer\(…, dataset_size=len\(dataset\)\)"):
        rate(epochs)
    with pytest.raises(ValueError, match=r"needs an esync\.Trainer"):
        CommonLRScheduler(halving(), "rounds")(1)
