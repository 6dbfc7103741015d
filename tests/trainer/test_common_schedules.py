"""esync.Trainer with learning rate schedules that count the progress of all workers."""

import logging
import re
from typing import Any

import pytest

import esync
from esync.algorithms import DyLU, ESync, Local, LocalSGD, SyncSwitch
from esync.runtime.mxnet_import import mx

from ..support.scripted_world import World, steady_world
from ..support.small_net import (
    BATCH,
    OPTIMIZERS,
    amp_backward,
    backward,
    flat,
    local_trainer,
    make_net,
    scaled,
    sgd_trainer,
    take_steps,
    values,
)

RATES = [0.4, 0.4, 0.2, 0.2, 0.1, 0.1, 0.05]


def halved(every: int = 2, by: Any = "rounds") -> Any:
    """Halves the rate again and again."""
    return esync.CommonLRScheduler(mx.lr_scheduler.FactorScheduler(every, 0.5, base_lr=0.4), by)


def scripted(net: Any, answers: int, exchanges: int = 0) -> World:
    """A world in which every exchange is answered with the weights that the network has now."""
    return steady_world(flat(net), answers, exchanges, rank=1, ready=[True] * 100)


def train(net: Any, trainer: Any, steps: int, first: int = 0) -> list[float]:
    """The learning rate that each step has used."""
    rates = []
    for number in range(first, first + steps):
        rates.append(trainer.learning_rate)
        take_steps(net, trainer, number)
    return rates


@pytest.mark.parametrize(("optimizer", "options"), OPTIMIZERS)
def test_schedule_by_rounds_of_local_equals_gluons_bit_for_bit(optimizer, options):
    """So the counts of updates, for which Adam and Nadam correct their means, are as with Gluon."""
    ours, theirs = make_net(), make_net()
    plain = mx.lr_scheduler.FactorScheduler(2, 0.5, base_lr=0.4)
    trainer = local_trainer(ours, optimizer, {**options, "lr_scheduler": halved()})
    gluon = mx.gluon.Trainer(theirs.collect_params(), optimizer, {**options, "lr_scheduler": plain}, kvstore=None)
    for number in range(7):
        for subject, net in ((trainer, ours), (gluon, theirs)):
            take_steps(net, subject, number)
        assert values(ours) == values(theirs)
    assert trainer.optimizer._index_update_count == gluon.optimizer._index_update_count


class Tripled(Local):
    """Takes steps that are three times as long."""

    @property
    def rate_factor(self) -> float:
        return 3.0


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "nag"])
@pytest.mark.parametrize("scheduled", [False, True])
def test_rate_factor_multiplies_the_rate_or_the_schedule(optimizer, scheduled):
    def rate(base):
        schedule = mx.lr_scheduler.FactorScheduler(2, 0.5, base_lr=base)
        return {"learning_rate": base, **({"lr_scheduler": schedule} if scheduled else {})}

    ours, theirs = make_net(), make_net()
    trainer = esync.Trainer(ours.collect_params(), optimizer, rate(0.125), algorithm=Tripled())
    gluon = mx.gluon.Trainer(theirs.collect_params(), optimizer, rate(0.375), kvstore=None)
    for number in range(5):
        for subject, net in ((trainer, ours), (gluon, theirs)):
            take_steps(net, subject, number)
        assert values(ours) == values(theirs)
    assert trainer.learning_rate * 3 == pytest.approx(gluon.learning_rate)  # programs see the given rate


@pytest.mark.parametrize(
    ("schedule", "options"),
    [(lambda: halved(2 * BATCH, "samples"), {}), (lambda: halved(1, "epochs"), {"dataset_size": 2 * BATCH})],
)
def test_trainer_local_follows_samples_and_epochs(schedule, options):
    net = make_net()
    trainer = local_trainer(net, "sgd", {"lr_scheduler": schedule()}, **options)
    assert train(net, trainer, 7) == RATES
    assert trainer.samples == 7 * BATCH


def test_trainer_without_dataset_size_has_no_epoch():
    net = make_net()
    with pytest.raises(ValueError, match=r"trainer\.epoch needs .* dataset_size=len\(dataset\)"):
        _ = local_trainer(net).epoch
    trainer = local_trainer(net, "sgd", {"lr_scheduler": halved(1, "epochs")})
    backward(net, 0)
    with pytest.raises(ValueError, match=r'by="epochs" needs .* dataset_size=len\(dataset\)'):
        trainer.step(BATCH)
    trainer.dataset_size = BATCH
    take_steps(net, trainer, 0)
    assert trainer.epoch == 1.0


def test_dataset_size_that_is_set_late_holds_for_the_gradients_that_are_sent():
    net = make_net()
    trainer = sgd_trainer(net, "sync", {"lr_scheduler": halved(1, "epochs")}, world=scripted(net, 1))
    trainer.start()
    trainer.dataset_size = BATCH
    take_steps(net, trainer, 0)
    assert [sent.learning_rate for sent in trainer.world.made.sent] == [0.4]


def test_rate_stays_the_same_during_all_local_iterations_of_a_round():
    net = make_net()
    options = {"learning_rate": 0.4, "lr_scheduler": halved(1)}
    algorithm = LocalSGD(local_iterations=3)
    trainer = esync.Trainer(net.collect_params(), "adam", options, algorithm=algorithm, world=scripted(net, 3))
    assert train(net, trainer, 9) == [0.4] * 3 + [0.2] * 3 + [0.1] * 3
    assert trainer.learning_rate == 0.05
    assert set(trainer.optimizer._index_update_count.values()) == {9}  # Adam counts its own steps


@pytest.mark.parametrize("algorithm", ["sync", "async", LocalSGD(local_iterations=1)])
def test_replacement_begins_at_the_place_of_the_others(algorithm):
    net = make_net()
    trainer = sgd_trainer(net, algorithm, {"lr_scheduler": halved()}, world=scripted(net, 2, exchanges=5))
    trainer.start()
    assert trainer.learning_rate == RATES[5]
    assert train(net, trainer, 2) == RATES[5:]
    if algorithm in ("sync", "async"):
        assert [sent.learning_rate for sent in trainer.world.made.sent] == RATES[5:]


def test_step_that_is_left_out_after_an_overflow_changes_no_rate():
    net, rates = make_net(), []
    algorithm = LocalSGD(local_iterations=2)
    trainer = sgd_trainer(net, algorithm, {"lr_scheduler": halved(1)}, world=scripted(net, 3))
    scaled(trainer)
    for factor in (1.0, 1e38, 1.0, 1e38, 1.0, 1.0):
        rates.append(trainer.learning_rate)
        amp_backward(net, trainer, 0, factor)
        trainer.step(BATCH)
    assert rates == [0.4, 0.4, 0.2, 0.2, 0.1, 0.1]
    assert trainer.optimizer.num_update == 4


def test_saved_states_have_the_schedule_and_its_place(tmp_path):
    net = make_net()
    trainer = local_trainer(net, "adam", {"learning_rate": 0.4, "lr_scheduler": halved()})
    train(net, trainer, 3)
    trainer.save_states(str(tmp_path / "states"))
    other = make_net()
    resumed = local_trainer(other, "adam", {"learning_rate": 0.1})
    resumed.load_states(str(tmp_path / "states"))
    assert resumed.learning_rate == RATES[3]
    backward(other, 0)
    resumed.step(BATCH)  # a trainer of its own, which has taken one step
    assert resumed.learning_rate == RATES[1]


@pytest.mark.parametrize("by", ["rounds", "samples", "seconds"])
def test_resumed_run_has_the_rates_of_one_that_was_not_interrupted(tmp_path, by):
    def make(folder: str, resume: bool = False) -> tuple[Any, Any, Any]:
        net, checkpoints = make_net(), esync.Checkpoints(tmp_path / folder, every=4, resume=resume)
        cosine = mx.lr_scheduler.CosineScheduler(10 if by == "rounds" else 10 * BATCH, base_lr=0.4)
        options = {"learning_rate": 0.4, "lr_scheduler": esync.CommonLRScheduler(cosine, by)}
        return net, local_trainer(net, "adam", options, checkpoints=checkpoints), checkpoints

    net, trainer, checkpoints = make("killed")
    for number in range(4):
        take_steps(net, trainer, number)
        checkpoints.save_if_due()
    rate, result = trainer.learning_rate, trainer.algorithm.result
    assert rate < 0.4
    checkpoints.release()  # as the end of its process does
    resumed, again, _ = make("killed", resume=True)
    again.start()
    assert again.learning_rate == rate
    assert (again.round, again.samples, again.elapsed) == (4, 4 * BATCH, result.elapsed)
    if by != "seconds":
        full_net, uninterrupted, _ = make("whole")
        train(full_net, uninterrupted, 4)
        assert train(resumed, again, 4, 4) == train(full_net, uninterrupted, 4, 4)
        assert values(resumed) == values(full_net)


def test_resumed_run_has_the_schedule_that_its_program_gives_now(tmp_path):
    for resume, base in ((False, 0.4), (True, 0.8)):
        net, checkpoints = make_net(), esync.Checkpoints(tmp_path, every=1, resume=resume)
        schedule = esync.CommonLRScheduler(mx.lr_scheduler.FactorScheduler(2, 0.5, base_lr=base), "rounds")
        trainer = local_trainer(net, "sgd", {"lr_scheduler": schedule}, checkpoints=checkpoints)
        trainer.start()
        if resume:
            assert (trainer.round, trainer.learning_rate) == (2, base / 2)
        else:
            train(net, trainer, 2)
            assert trainer.learning_rate == base / 2
            checkpoints.save()
        trainer.close()


def test_set_learning_rate_works_without_schedule_and_is_refused_with_one():
    net = make_net()
    trainer = local_trainer(net, dataset_size=2 * BATCH)
    for number in range(4):  # a schedule by hand, from what all workers have done
        trainer.set_learning_rate(0.4 * 0.5 ** int(trainer.epoch))
        assert train(net, trainer, 1, number) == [RATES[number]]
    with pytest.raises(UserWarning, match="LRScheduler of the optimizer has already been"):
        local_trainer(make_net(), "sgd", {"lr_scheduler": halved()}).set_learning_rate(0.1)


PLAIN = {"lr_scheduler": mx.lr_scheduler.FactorScheduler(2, 0.5)}


@pytest.mark.parametrize(
    ("algorithm", "options", "warned"),
    [
        (ESync, PLAIN, True),
        (DyLU, PLAIN, True),
        ("async", PLAIN, True),
        ("dgs", PLAIN, True),
        (lambda: SyncSwitch(train_steps=(100, 200)), PLAIN, True),
        (lambda: ESync(local_iterations=2), PLAIN, False),
        ("local-sgd", PLAIN, False),
        ("sync", PLAIN, False),
        (ESync, {"lr_scheduler": halved()}, False),
        (ESync, {"learning_rate": 0.1}, False),
    ],
)
def test_schedule_of_own_counts_warns_once_where_steps_are_unequal(caplog, algorithm, options, warned):
    net = make_net()
    chosen = algorithm if isinstance(algorithm, str) else algorithm()
    caplog.set_level(logging.WARNING)
    train(net, sgd_trainer(net, chosen, dict(options), world=scripted(net, 3)), 3)
    messages = [record.getMessage() for record in caplog.records if "schedule" in record.getMessage()]
    assert len(messages) == warned
    if warned:
        assert re.search(rf"algorithm '{chosen if isinstance(chosen, str) else chosen.name}'", messages[0])
        assert "FactorScheduler" in messages[0]
        assert 'esync.CommonLRScheduler(schedule, by="samples")' in messages[0]
