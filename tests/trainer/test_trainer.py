"""esync.Trainer: what it refuses, its rounds and limits, and its exchanges."""

from typing import Any

import numpy as np
import pytest

import esync
from esync.algorithms import DiLoCo, DyLU, ESync, LocalSGD, Schedule, SyncSwitch
from esync.exchange.protocol.round_state import Limits
from esync.runtime.mxnet_import import mx

from ..support.scripted_world import World
from ..support.small_net import BATCH, backward, flat, local_trainer, make_net, nn, sgd_trainer, take_steps, values


@pytest.mark.parametrize(
    ("argument", "value"),
    [("kvstore", "device"), ("compression_params", {"type": "2bit"}), ("update_on_kvstore", False)],
)
def test_trainer_with_gluon_kvstore_arguments_is_refused(argument, value):
    with pytest.raises(ValueError, match=f"{argument}=.*leave {argument} out"):
        esync.Trainer(make_net().collect_params(), "sgd", {"learning_rate": 0.1}, **{argument: value})


def test_trainer_with_unknown_algorithm_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"'magic'.*async, .*esync, .*sync\b"):
        esync.Trainer(make_net().collect_params(), "sgd", algorithm="magic")


@pytest.mark.parametrize("algorithm", ["dcasgd", "sync-switch", "dgs"])
@pytest.mark.parametrize("optimizer", ["adam", "nag", mx.optimizer.RMSProp()])
def test_trainer_with_server_side_sgd_algorithm_refuses_other_optimizers(algorithm, optimizer):
    text = f"'{algorithm}' does SGD on the servers: use the optimizer 'sgd'.*sync, async and ssp take this one"
    with pytest.raises(ValueError, match=text):
        esync.Trainer(make_net().collect_params(), optimizer, algorithm=algorithm)


@pytest.mark.parametrize(
    "option", [{"multi_precision": True}, {"lazy_update": False}, {"begin_num_update": 5}, {"param_idx2name": {}}]
)
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_trainer_with_optimizer_option_that_servers_ignore_is_refused(option, optimizer):
    name = next(iter(option))
    with pytest.raises(ValueError, match=f"'sync' .* there is no {name}"):
        esync.Trainer(make_net().collect_params(), optimizer, {"learning_rate": 0.1, **option}, algorithm="sync")


@pytest.mark.parametrize(
    ("optimizer", "algorithm", "name"),
    [
        (mx.optimizer.SGD(clip_gradient=1.0), "dcasgd", "clip_gradient"),
        (mx.optimizer.Adam(begin_num_update=5), "sync", "begin_num_update"),
    ],
)
def test_trainer_with_optimizer_object_whose_option_servers_ignore_is_refused(optimizer, algorithm, name):
    with pytest.raises(ValueError, match=f"there is no {name}:"):
        esync.Trainer(make_net().collect_params(), optimizer, algorithm=algorithm)


@pytest.mark.parametrize("options", [{"lr_mult": 2.0}, {"wd_mult": 0.0}])
@pytest.mark.parametrize(("optimizer", "algorithm"), [("sgd", "sync"), ("adam", "sync"), ("sgd", "dcasgd")])
def test_trainer_with_lr_mult_or_wd_mult_is_refused_where_servers_take_the_steps(options, optimizer, algorithm):
    net = make_net()
    for name, value in options.items():
        setattr(net[2].bias, name, value)
    with pytest.raises(ValueError, match=net[2].bias.name):
        esync.Trainer(net.collect_params(), optimizer, {"learning_rate": 0.1, "wd": 0.01}, algorithm=algorithm)


def test_trainer_with_lr_mult_set_late_is_refused_where_servers_step():
    net = make_net()
    weights = flat(net)
    world = scripted(net, 1, weights)
    trainer = sgd_trainer(net, "sync", world=world)
    trainer.start()
    net[2].bias.lr_mult = 2.0
    backward(net, 1)
    with pytest.raises(ValueError, match=f"{net[2].bias.name} has lr_mult 2.0"):
        trainer.step(BATCH)


@pytest.mark.parametrize("algorithm", ["esync", "local-sgd", "diloco", "dylu"])
@pytest.mark.parametrize("optimizer", ["ftrl", "ftml", mx.optimizer.FTML()])
def test_trainer_with_ftrl_or_ftml_is_refused_where_updates_are_exchanged(algorithm, optimizer):
    with pytest.raises(ValueError, match=f"'{algorithm}' .* 'F.*' computes the weights from its own state"):
        esync.Trainer(make_net().collect_params(), optimizer, algorithm=algorithm)
    esync.Trainer(make_net().collect_params(), optimizer, algorithm="local")


def test_optimizers_except_ftrl_and_ftml_continue_from_replaced_weights():
    """Runs each MXNet optimizer twice with the same gradients and weights replaced in between."""
    known = {kind for kind in mx.optimizer.Optimizer.opt_registry.values() if kind.__module__.startswith("mxnet")}
    lost = set()
    for kind in sorted(known, key=lambda kind: kind.__name__):
        ends = []
        for moved in (0.0, 5.0):
            mx.random.seed(1)
            weight, slope = mx.nd.array([[1.0], [2.0]]), mx.nd.array([[0.5], [-0.25]])
            updater = mx.optimizer.get_updater(kind(learning_rate=0.001))
            for _ in range(2):
                updater(0, slope, weight)
            weight += moved
            updater(0, slope, weight)
            ends.append(weight.asnumpy())
        if not np.allclose(ends[1] - ends[0], 5.0, atol=0.1):
            lost.add(kind)
    assert lost == {mx.optimizer.Ftrl, mx.optimizer.FTML}


def test_trainer_allreduce_grads_and_update_are_refused():
    trainer = local_trainer(make_net())
    with pytest.raises(RuntimeError, match="call step"):
        trainer.allreduce_grads()
    with pytest.raises(RuntimeError, match="call step"):
        trainer.update(BATCH)


def test_trainer_local_counts_every_iteration_as_a_round():
    net = make_net()
    trainer = local_trainer(net)
    assert (trainer.round, trainer.local_iterations, trainer.exchanged, trainer.finished) == (0, 0, False, False)
    assert (trainer.rank, trainer.workers) == (0, 1)
    for number in range(1, 4):
        take_steps(net, trainer, number)
        assert (trainer.round, trainer.local_iterations, trainer.exchanged) == (number, 1, True)
    assert not trainer.finished


@pytest.mark.parametrize("limits", [Limits(rounds=3), Limits(samples=3 * BATCH), Limits(samples=2 * BATCH + 1)])
def test_trainer_local_with_rounds_or_samples_limit_finishes(limits):
    net = make_net()
    trainer = local_trainer(net, limits=limits)
    for number in range(1, 4):
        assert not trainer.finished
        take_steps(net, trainer, number)
    assert trainer.finished
    assert trainer.round == 3


def test_trainer_local_with_seconds_limit_finishes():
    net = make_net()
    trainer = local_trainer(net, limits=Limits(seconds=1e-9))
    take_steps(net, trainer, 0)
    assert trainer.finished


def test_trainer_local_after_stop_finishes_with_the_next_iteration():
    net = make_net()
    trainer = local_trainer(net)
    take_steps(net, trainer, *range(2))
    trainer.stop()
    assert not trainer.finished
    take_steps(net, trainer, 2)
    assert trainer.finished


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
    assert trainer._end.closed


@pytest.mark.parametrize("starts", [False, True])
def test_first_step_of_a_resumed_run_that_is_finished_does_nothing(tmp_path, starts):
    net = make_net()
    with local_trainer(net, limits=Limits(rounds=1), checkpoints=esync.Checkpoints(tmp_path, every=1)) as trainer:
        take_steps(net, trainer, 0)
        trainer.checkpoints.save_if_due()
    kept, net = values(net), make_net()
    checkpoints = esync.Checkpoints(tmp_path, every=1, resume=True)
    with local_trainer(net, limits=Limits(rounds=1), checkpoints=checkpoints) as trainer:
        if starts:
            trainer.start()
        take_steps(net, trainer, 0)
        assert (trainer.finished, trainer.abandoned, trainer.round) == (True, True, 1)
        assert values(net) == kept


def test_trainer_stop_and_abort_before_start_do_nothing():
    trainer = local_trainer(make_net())
    trainer.stop()
    trainer.abort("changed my mind")
    trainer.close()
    assert trainer.round == 0


def scripted(net, answers: int, beginning: list[float]) -> World:
    """A world in which every exchange is answered with `beginning`."""
    return World(
        rank=1,
        answers=[(beginning, False, True)] * answers,
        prepare=lambda exchange: setattr(exchange, "beginning", beginning),
    )


def test_trainer_discards_first_gradients_where_the_start_replaces_the_weights():
    net = make_net()
    common = [0.5] * len(flat(net))
    world = scripted(net, 1, common)
    trainer = sgd_trainer(net, "sync", world=world)
    take_steps(net, trainer, 0)
    assert flat(net) == common
    assert (world.made.sent, trainer.round, trainer.exchanged) == ([], 0, False)
    assert (trainer.rank, trainer.workers) == (1, 3)
    take_steps(net, trainer, 1)
    assert (len(world.made.sent), trainer.round, trainer.exchanged) == (1, 1, True)
    assert world.recorder.take()["num_samples"] == BATCH


def test_trainer_uses_first_gradients_where_the_weights_are_already_common():
    net = make_net()
    world = scripted(net, 1, flat(net))
    trainer = sgd_trainer(net, "sync", world=world)
    take_steps(net, trainer, 0)
    assert len(world.made.sent) == 1


def test_trainer_sends_mean_gradient_with_current_hyper_parameters():
    """A schedule therefore reaches the servers."""
    net = make_net()
    world = scripted(net, 4, flat(net))
    schedule = mx.lr_scheduler.FactorScheduler(step=2, factor=0.5, base_lr=0.4)
    options = {"lr_scheduler": schedule, "momentum": 0.9, "wd": 0.01, "rescale_grad": 2.0}
    trainer = esync.Trainer(net.collect_params(), "sgd", options, algorithm="sync", world=world)
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
        algorithm = SyncSwitch(Schedule(train_steps=[100, 200]))
    rates = []
    for exchanges, answers in ((0, 7), (5, 2)):
        net = make_net()
        world = scripted(net, answers, flat(net))
        world.prepare = lambda exchange, exchanges=exchanges, net=net: vars(exchange).update(
            beginning=flat(net), exchanges=exchanges, replacement=exchanges > 0
        )
        options = {"lr_scheduler": schedule()}
        trainer = esync.Trainer(net.collect_params(), "sgd", options, algorithm=algorithm, world=world)
        take_steps(net, trainer, *range(answers))
        rates.append([sent.learning_rate for sent in world.made.sent])
    assert rates[1] == rates[0][5:]
    assert rates[1][-1] < rates[0][0]


def test_handshake_compares_learning_rates_only_where_the_step_is_common():
    def told(algorithm: Any, **options: Any) -> dict[str, Any]:
        net = make_net()
        world = scripted(net, 0, flat(net))
        trainer = esync.Trainer(net.collect_params(), "sgd", options, algorithm=algorithm, world=world)
        trainer.start()
        return world.made.log[0][-1]

    common = told("sync", learning_rate=0.1, momentum=0.9, wd=0.01)
    assert {name: common[name] for name in ("learning rate", "momentum", "weight decay")} == {
        "learning rate": 0.1,
        "momentum": 0.9,
        "weight decay": 0.01,
    }
    scheduled = told("sync", lr_scheduler=mx.lr_scheduler.FactorScheduler(10))
    assert "learning rate" not in scheduled  # what it gives is compared with every round
    assert told("sync", learning_rate=0.1 + 0.2) == told("sync", learning_rate=0.3)
    assert type(told("sync", learning_rate=np.float32(0.1))["learning rate"]) is float  # it travels as JSON
    for algorithm in ("async", "ssp", "dcasgd", "gd-async"):
        assert told(algorithm, learning_rate=0.1) == told(algorithm, learning_rate=0.5)


@pytest.mark.parametrize("kind", [ESync, LocalSGD, DiLoCo, DyLU])
def test_handshake_compares_global_lr_and_outer_momentum(kind):
    told = []
    for global_lr, outer_momentum in ((1.0, 0.0), (0.5, 0.0), (1.0, 0.5)):
        net = make_net()
        world = scripted(net, 0, flat(net))
        algorithm = kind(local_iterations=2, global_lr=global_lr, outer_momentum=outer_momentum)
        esync.Trainer(net.collect_params(), "sgd", algorithm=algorithm, world=world).start()
        told.append(world.made.log[0][-1])
    assert [(each["global learning rate"], each["outer momentum"]) for each in told] == [(1, 0), (0.5, 0), (1, 0.5)]


def test_handshake_compares_the_schedule_of_sync_switch():
    told = []
    for steps in ([10, 20], [15, 20]):
        net = make_net()
        world = scripted(net, 0, flat(net))
        algorithm = SyncSwitch(Schedule(train_steps=steps), BATCH)
        esync.Trainer(net.collect_params(), "sgd", algorithm=algorithm, world=world).start()
        told.append(world.made.log[0][-1])
    assert {name for name in told[0] if told[0][name] != told[1][name]} == {"schedule"}


@pytest.mark.parametrize("algorithm", ["sync", "async", "dgs"])
@pytest.mark.parametrize("name", ["learning_rate", "momentum", "wd"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_trainer_with_nan_or_inf_rate_is_refused(algorithm, name, value):
    """NaN would differ from itself in the handshake ("nan, but worker 0 nan").

    It would also spoil the weights.
    """
    options = {"learning_rate": 0.1, name: value}
    with pytest.raises(ValueError, match=r"(learning rate|momentum|weight decay) is (nan|inf), but"):
        esync.Trainer(make_net().collect_params(), "sgd", options, algorithm=algorithm)


@pytest.mark.parametrize("algorithm", ["sync", "async"])
def test_trainer_with_rate_that_becomes_nan_raises_before_sending(algorithm):
    net = make_net()
    common = flat(net)
    world = World(answers=[(common, False, True)], prepare=lambda exchange: setattr(exchange, "beginning", common))
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
    world = scripted(net, 3, flat(net))
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


def test_trainer_resume_from_checkpoint_of_another_compression_is_refused(tmp_path):
    """The residuals of workers and servers would be lost."""
    agreements = {}
    for kind in ("none", "fp16"):
        net = make_net()
        world = scripted(net, 0, flat(net))
        algorithm = esync.algorithms.LocalSGD(local_iterations=1, compression=kind)
        checkpoints = esync.Checkpoints(tmp_path / kind)
        esync.Trainer(
            net.collect_params(),
            "sgd",
            {"learning_rate": 0.1},
            algorithm=algorithm,
            world=world,
            checkpoints=checkpoints,
        ).start()
        agreements[kind] = checkpoints._agreement
    assert agreements["none"]["compression"] == "none"
    assert agreements["fp16"] == {**agreements["none"], "compression": "fp16"}


def test_handshake_contains_the_settings_that_must_agree():
    nets = make_net(), make_net("other_"), nn.Dense(3, in_units=5)
    nets[2].initialize()
    told = []
    for net in nets:
        world = scripted(net, 0, flat(net))
        trainer = esync.Trainer(
            net.collect_params(), "sgd", algorithm="sync", world=world, agreement={"seed": 3}, limits=Limits(rounds=4)
        )
        trainer.start()
        _, sizes, limits, agreement = world.made.log[0]
        assert (sizes["weights"], limits) == (len(flat(net)), Limits(rounds=4))
        told.append(agreement)
    assert told[0] == told[1]  # the names of the parameters may differ, not their shapes
    assert told[0] != told[2]
    assert (told[0]["seed"], told[0]["algorithm"]) == (3, "sync")
