"""esync.Trainer: what it refuses, its rounds and limits, and its exchanges."""

from functools import partial
from typing import Any

import numpy as np
import pytest

import esync
from esync.algorithms import DiLoCo, DyLU, ESync, LocalSGD, SyncSwitch
from esync.exchange.protocol.round_state import Limits
from esync.runtime.mxnet_import import mx

from ..support.scripted_world import steady_world
from ..support.small_net import BATCH, backward, flat, local_trainer, make_net, nn, sgd_trainer, take_steps, values

IGNORED = [{"multi_precision": True}, {"lazy_update": False}, {"begin_num_update": 5}, {"param_idx2name": {}}]
ON_SERVERS = r"does SGD on the servers: use the optimizer 'sgd'.*sync, async and ssp take this one"
FROM_STATE = "computes the weights from its own state"
NOT_FINITE = r"(learning rate|momentum|weight decay) is (nan|inf), but"
REFUSED: list[tuple[Any, dict[str, Any] | None, dict[str, Any], str]] = [
    *(
        ("sgd", {}, {name: value}, f"{name}=.*leave {name} out")
        for name, value in {
            "kvstore": "dist_sync",
            "compression_params": {"type": "2bit"},
            "update_on_kvstore": True,
        }.items()
    ),
    ("sgd", {}, {"algorithm": "magic"}, r"'magic'.*async, .*esync, .*sync\b"),
    ("adam", {}, {"algorithm": "dcasgd"}, f"'dcasgd' {ON_SERVERS}"),
    ("nag", {}, {"algorithm": "sync-switch"}, f"'sync-switch' {ON_SERVERS}"),
    (mx.optimizer.RMSProp(), None, {"algorithm": "dgs"}, f"'dgs' {ON_SERVERS}"),
    *(
        (optimizer, option, {"algorithm": "sync"}, f"'sync' .* there is no {next(iter(option))}")
        for optimizer in ("sgd", "adam")
        for option in IGNORED
    ),
    (mx.optimizer.SGD(clip_gradient=1.0), None, {"algorithm": "dcasgd"}, "there is no clip_gradient:"),
    (mx.optimizer.Adam(begin_num_update=5), None, {"algorithm": "sync"}, "there is no begin_num_update:"),
    *(
        (optimizer, None, {"algorithm": algorithm}, f"'{algorithm}' .* 'F.*' {FROM_STATE}")
        for optimizer, algorithm in (
            ("ftrl", "esync"),
            ("ftml", "local-sgd"),
            (mx.optimizer.FTML(), "diloco"),
            ("ftrl", "dylu"),
        )
    ),
    # NaN would differ from itself in the handshake ("nan, but worker 0 nan"), and spoil the weights.
    *(
        ("sgd", {name: value}, {"algorithm": algorithm}, NOT_FINITE)
        for algorithm in ("sync", "async", "dgs")
        for name in ("learning_rate", "momentum", "wd")
        for value in (float("nan"), float("inf"))
    ),
]


@pytest.mark.parametrize(("optimizer", "options", "arguments", "text"), REFUSED)
def test_trainer_with_arguments_that_do_not_fit_is_refused(optimizer, options, arguments, text):
    with pytest.raises(ValueError, match=text):
        esync.Trainer(make_net().collect_params(), optimizer, options, **arguments)


@pytest.mark.parametrize("options", [{"lr_mult": 2.0}, {"wd_mult": 0.0}])
@pytest.mark.parametrize(("optimizer", "algorithm"), [("sgd", "async"), ("adam", "async"), ("sgd", "dcasgd")])
def test_trainer_with_lr_mult_or_wd_mult_is_refused_where_servers_take_the_steps(options, optimizer, algorithm):
    net = make_net()
    for name, value in options.items():
        setattr(net[2].bias, name, value)
    with pytest.raises(ValueError, match=net[2].bias.name):
        esync.Trainer(net.collect_params(), optimizer, {"learning_rate": 0.1, "wd": 0.01}, algorithm=algorithm)


@pytest.mark.parametrize("parameters", [".*dense1_bias", ".*"])
def test_trainer_with_lr_mult_set_late_is_refused_where_servers_step(parameters):
    net = make_net()
    trainer = sgd_trainer(net, "sync", world=steady_world(flat(net), rank=1))
    trainer.start()
    net.collect_params(parameters).setattr("lr_mult", 2.0)
    backward(net, 1)
    with pytest.raises(ValueError, match="lr_mult or wd_mult of a parameter was changed during the run"):
        trainer.step(BATCH)


def test_trainer_allreduce_grads_and_update_are_refused():
    trainer = local_trainer(make_net())
    for call in (trainer.allreduce_grads, lambda: trainer.update(BATCH)):
        with pytest.raises(
            RuntimeError, match=r"call step.*clip_global_norm\(\[.*\], bound × .*first argument\) before it"
        ):
            call()


@pytest.mark.parametrize("name", ["algorithm", "checkpoints", "gradient_scale", "world"])
def test_what_a_trainer_was_made_with_cannot_be_replaced(name):
    trainer = local_trainer(make_net())
    before = getattr(trainer, name)
    with pytest.raises(AttributeError, match=name):
        setattr(trainer, name, before)
    assert getattr(trainer, name) is before


@pytest.mark.parametrize("size", [0, -4])
def test_dataset_size_below_one_is_refused(size):
    trainer = local_trainer(make_net(), dataset_size=16)
    for use in (partial(setattr, trainer, "dataset_size", size), partial(local_trainer, make_net(), dataset_size=size)):
        with pytest.raises(ValueError, match=f"dataset_size is {size}, but should be the number of samples"):
            use()
    assert trainer.dataset_size == 16


@pytest.mark.parametrize(
    ("limits", "rounds"),
    [
        (Limits(rounds=3), 3),
        (Limits(samples=3 * BATCH), 3),
        (Limits(samples=2 * BATCH + 1), 3),
        (Limits(seconds=1e-9), 1),
        (None, 3),  # is stopped before the third
    ],
)
def test_trainer_local_counts_every_iteration_as_a_round_until_its_limit_or_stop(limits, rounds):
    net = make_net()
    trainer = local_trainer(net, limits=limits or Limits())
    assert (trainer.rank, trainer.workers, trainer.local_iterations, trainer.exchanged) == (0, 1, 0, False)
    for number in range(rounds):
        if limits is None and number == rounds - 1:
            trainer.stop()
        assert (trainer.round, trainer.finished) == (number, False)
        take_steps(net, trainer, number)
        assert (trainer.local_iterations, trainer.exchanged) == (1, True)
    assert (trainer.finished, trainer.round) == (True, rounds)


def test_trainer_step_after_the_end_ends_the_loop_and_says_how_to_write_it(caplog):
    net = make_net()
    trainer = local_trainer(net, limits=Limits(rounds=1))
    take_steps(net, trainer, 0)
    assert trainer.finished
    with pytest.raises(SystemExit) as caught:
        trainer.step(BATCH)
    assert (caught.value.code, trainer.round) == (None, 1)
    assert "in trainer.batches(loader)" in caplog.text
    with trainer:  # which the loop leaves
        trainer.step(BATCH)
    assert trainer._closed


@pytest.mark.parametrize("starts", [False, True])
def test_first_step_of_a_resumed_run_that_is_finished_does_nothing(tmp_path, starts):
    net = make_net()
    with local_trainer(net, limits=Limits(rounds=1), checkpoints=esync.Checkpoints(tmp_path, every=1)) as trainer:
        take_steps(net, trainer, 0)
        trainer.checkpoints.save_if_due()
    weights, net = values(net), make_net()
    checkpoints = esync.Checkpoints(tmp_path, every=1, resume=True)
    with local_trainer(net, limits=Limits(rounds=1), checkpoints=checkpoints) as trainer:
        if starts:
            trainer.start()
        take_steps(net, trainer, 0)
        assert (trainer.finished, trainer.abandoned, trainer.round) == (True, True, 1)
        assert values(net) == weights


def test_trainer_stop_and_abort_before_start_do_nothing():
    trainer = local_trainer(make_net())
    trainer.stop()
    trainer.abort("changed my mind")
    trainer.close()
    assert trainer.round == 0


def test_trainer_discards_first_gradients_where_the_start_replaces_the_weights():
    net = make_net()
    common = [0.5] * len(flat(net))
    world = steady_world(common, rank=1)
    trainer = sgd_trainer(net, "sync", world=world)
    take_steps(net, trainer, 0)
    assert flat(net) == common
    assert (world.made.sent, trainer.round, trainer.exchanged) == ([], 0, False)
    assert (trainer.rank, trainer.workers) == (1, 3)
    take_steps(net, trainer, 1)
    assert (len(world.made.sent), trainer.round, trainer.exchanged) == (1, 1, True)
    assert world.recorder.take()["num_samples"] == BATCH


def test_trainer_sends_mean_gradient_with_current_hyper_parameters():
    """A schedule therefore reaches the servers."""
    net = make_net()
    world = steady_world(flat(net), rank=1)
    schedule = mx.lr_scheduler.FactorScheduler(step=2, factor=0.5, base_lr=0.4)
    options = {"lr_scheduler": schedule, "momentum": 0.9, "wd": 0.01, "rescale_grad": 2.0}
    trainer = sgd_trainer(net, "sync", options, world=world)
    take_steps(net, trainer, *range(4))
    gradients = sorted((name, p) for name, p in net.collect_params().items() if p.grad_req != "null")
    expected = np.concatenate([p.grad().asnumpy().reshape(-1) for _, p in gradients]) * np.float32(2.0 / BATCH)
    np.testing.assert_allclose(world.made.sent[-1].values, expected, rtol=1e-6)
    # Gluon asks its schedule with the number of the update, from 1: 0.4 for the first two, 0.2 for
    # the next two.
    assert [sent.learning_rate for sent in world.made.sent] == [0.4, 0.4, 0.2, 0.2]
    assert {(sent.samples, sent.momentum, sent.weight_decay) for sent in world.made.sent} == {(BATCH, 0.9, 0.01)}


@pytest.mark.parametrize("algorithm", ["sync", "async", "sync-switch"])
@pytest.mark.parametrize(
    "schedule",
    [
        lambda: mx.lr_scheduler.FactorScheduler(step=2, factor=0.5, base_lr=0.4),
        lambda: mx.lr_scheduler.PolyScheduler(max_update=4, base_lr=0.4, final_lr=0.1),
    ],
)
def test_trainer_of_a_replacement_continues_the_lr_schedule_of_its_slot(algorithm, schedule):
    if algorithm == "sync-switch":
        algorithm = SyncSwitch(train_steps=(100, 200))
    rates = []
    for exchanges, answers in ((0, 7), (5, 2)):
        net = make_net()
        world = steady_world(flat(net), answers, exchanges, rank=1)
        trainer = sgd_trainer(net, algorithm, {"lr_scheduler": schedule()}, world=world)
        take_steps(net, trainer, *range(answers))
        rates.append([sent.learning_rate for sent in world.made.sent])
    assert rates[1] == rates[0][5:]
    assert rates[1][-1] < rates[0][0]


def agreement(algorithm: Any, net: Any = None, extra: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    """What a trainer of these options wants the others to have, too; `extra` are arguments of it."""
    net = net or make_net()
    world = steady_world(flat(net), rank=1)
    sgd_trainer(net, algorithm, options, world=world, **(extra or {})).start()
    _, sizes, limits, settings = world.made.log[0]
    return {"sizes": sizes, "rounds": limits.rounds, **settings}


def test_handshake_compares_learning_rates_only_where_the_step_is_common():
    common = agreement("sync", learning_rate=0.1, momentum=0.9, wd=0.01)
    assert [common[name] for name in ("learning rate", "momentum", "weight decay")] == [0.1, 0.9, 0.01]
    scheduled = agreement("sync", lr_scheduler=mx.lr_scheduler.FactorScheduler(10))
    assert "learning rate" not in scheduled  # what it gives is compared with every round
    assert agreement("sync", learning_rate=0.1 + 0.2) == agreement("sync", learning_rate=0.3)
    assert type(agreement("sync", learning_rate=np.float32(0.1))["learning rate"]) is float  # it travels as JSON
    for algorithm in ("async", "ssp", "dcasgd", "gd-async"):
        assert agreement(algorithm, learning_rate=0.1) == agreement(algorithm, learning_rate=0.5)


@pytest.mark.parametrize("kind", [ESync, LocalSGD, DiLoCo, DyLU])
def test_handshake_compares_global_lr_and_outer_momentum(kind):
    for lr, momentum in ((1.0, 0.0), (0.5, 0.0), (1.0, 0.5)):
        settings = agreement(kind(local_iterations=2, global_lr=lr, outer_momentum=momentum))
        assert (settings["global learning rate"], settings["outer momentum"]) == (lr, momentum)


def test_handshake_compares_the_schedule_of_sync_switch():
    one, other = (agreement(SyncSwitch(train_steps=steps, batch_size=BATCH)) for steps in ((10, 20), (15, 20)))
    assert {name for name in one if one[name] != other[name]} == {"schedule"}


@pytest.mark.parametrize("algorithm", ["sync", "async"])
def test_trainer_with_rate_that_becomes_nan_raises_before_sending(algorithm):
    net = make_net()
    world = steady_world(flat(net))
    trainer = sgd_trainer(net, algorithm, world=world)
    trainer.start()
    backward(net, 0)
    trainer.set_learning_rate(float("nan"))
    with pytest.raises(ValueError, match="learning rate is nan"):
        trainer.step(BATCH)
    assert not world.made.sent


def test_trainer_esync_keeps_local_optimizer_state_across_exchanges():
    """Adam's moments are those of an Adam that was never interrupted."""
    net, plain = make_net(), make_net()
    optimizer = {"learning_rate": 0.01}
    world = steady_world(flat(net), rank=1)
    trainer = esync.Trainer(net.collect_params(), "adam", optimizer, algorithm=ESync(local_iterations=1), world=world)
    reference = mx.gluon.Trainer(plain.collect_params(), "adam", optimizer, kvstore=None)
    begin = [p.data().copy() for p in plain.collect_params().values()]
    for number in range(3):
        take_steps(net, trainer, number)
        backward(plain, number)
        before = np.float32(flat(plain))
        reference.step(BATCH)
        np.testing.assert_array_equal(np.float32(world.made.sent[-1].values), np.float32(flat(plain)) - before)
        for parameter, values_ in zip(plain.collect_params().values(), begin, strict=True):
            if parameter.grad_req != "null":
                parameter.set_data(values_)  # what the exchange answers


def test_checkpoints_and_workers_compare_the_compression(tmp_path):
    """Otherwise the residuals of workers and servers would be lost."""
    plain, packed = esync.Checkpoints(tmp_path / "a"), esync.Checkpoints(tmp_path / "b")
    for checkpoints, kind in ((plain, "none"), (packed, "fp16")):
        agreement(LocalSGD(local_iterations=1, compression=kind), extra={"checkpoints": checkpoints})
    assert plain._agreement["compression"] == "none"
    assert packed._agreement == {**plain._agreement, "compression": "fp16"}


def test_handshake_contains_the_settings_that_must_agree():
    dense = nn.Dense(3, in_units=5)
    dense.initialize()
    extra = {"agreement": {"seed": 3}, "limits": Limits(rounds=4), "dataset_size": 60_000}
    one, renamed, other = (agreement("sync", net, extra) for net in (make_net(), make_net("other_"), dense))
    assert one == renamed  # the names of the parameters may differ, not their shapes
    assert one != other
    assert (one["sizes"]["weights"], one["rounds"]) == (len(flat(make_net())), 4)
    assert (one["seed"], one["algorithm"], one["dataset size"]) == (3, "sync", 60_000)
