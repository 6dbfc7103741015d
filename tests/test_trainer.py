import numpy as np
import pytest

import esync
from esync.algorithms import ESync, Local
from esync.engine import mx
from esync.exchange.ledger import Limits

from .scripted_world import World

nn = mx.gluon.nn
BATCH = 8


def make_net(prefix: str = "net_"):
    """The same weights at every call; with batch norm, so that there are statistics too."""
    net = nn.HybridSequential(prefix=prefix)
    with net.name_scope():
        net.add(nn.Dense(6, in_units=5), nn.BatchNorm(in_channels=6), nn.Dense(3, in_units=6))
    mx.random.seed(3)
    net.initialize(mx.init.Xavier())
    return net


def batch(number: int):
    rng = np.random.default_rng(number)
    return mx.nd.array(rng.standard_normal((BATCH, 5))), mx.nd.array(rng.integers(0, 3, BATCH))


def backward(net, number: int) -> None:
    data, label = batch(number)
    with mx.autograd.record():
        loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()(net(data), label)
    loss.backward()


def values(net) -> list[bytes]:
    """All weights and statistics, bit for bit."""
    return [parameter.data().asnumpy().tobytes() for parameter in net.collect_params().values()]


def local_trainer(net, optimizer="sgd", options=None, **more) -> esync.Trainer:
    options = {"learning_rate": 0.1} if options is None else options
    return esync.Trainer(net.collect_params(), optimizer, options, algorithm="local", **more)


# --- what cannot be -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argument", "value"),
    [("kvstore", "device"), ("compression_params", {"type": "2bit"}), ("update_on_kvstore", False)],
)
def test_the_exchange_is_not_gluons(argument, value):
    with pytest.raises(ValueError, match=f"{argument}=.*leave {argument} out"):
        esync.Trainer(make_net().collect_params(), "sgd", {"learning_rate": 0.1}, **{argument: value})


def test_an_unknown_algorithm_is_named_with_those_that_are_known():
    with pytest.raises(ValueError, match=r"'magic'.*async, dcasgd.*esync.*local, local-sgd, ssp, sync"):
        esync.Trainer(make_net().collect_params(), "sgd", algorithm="magic")


@pytest.mark.parametrize("algorithm", ["sync", "async", "dcasgd"])
@pytest.mark.parametrize("optimizer", ["adam", "nag", mx.optimizer.RMSProp()])
def test_the_servers_do_sgd_only(algorithm, optimizer):
    with pytest.raises(ValueError, match=f"'{algorithm}' does SGD on the servers: use the optimizer 'sgd'"):
        esync.Trainer(make_net().collect_params(), optimizer, algorithm=algorithm)


@pytest.mark.parametrize(
    "option", [{"clip_gradient": 1.0}, {"multi_precision": True}, {"lazy_update": False}, {"begin_num_update": 5}]
)
def test_an_option_that_the_servers_would_ignore_is_refused(option):
    name = next(iter(option))
    with pytest.raises(ValueError, match=f"'sync' .* know no {name}"):
        esync.Trainer(make_net().collect_params(), "sgd", {"learning_rate": 0.1, **option}, algorithm="sync")


def test_such_options_of_an_optimizer_object_are_refused_too():
    with pytest.raises(ValueError, match="know no clip_gradient"):
        esync.Trainer(make_net().collect_params(), mx.optimizer.SGD(clip_gradient=1.0), algorithm="sync")


@pytest.mark.parametrize("options", [{"lr_mult": 2.0}, {"wd_mult": 0.0}])
def test_one_learning_rate_for_all_where_the_servers_do_sgd(options):
    net = make_net()
    for name, value in options.items():
        setattr(net[2].bias, name, value)
    with pytest.raises(ValueError, match=net[2].bias.name):
        esync.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "wd": 0.01}, algorithm="sync")


def test_multipliers_are_fine_where_the_optimizer_runs_here():
    net = make_net()
    net[2].bias.lr_mult = 2.0
    esync.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, algorithm=ESync(local_iterations=1))


def test_what_the_servers_understand_is_accepted():
    options = {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01, "rescale_grad": 2.0}
    scheduler = mx.lr_scheduler.FactorScheduler(10)
    esync.Trainer(make_net().collect_params(), "sgd", {**options, "lr_scheduler": scheduler}, algorithm="sync")


def test_gradients_are_not_exchanged_by_hand():
    trainer = local_trainer(make_net())
    with pytest.raises(RuntimeError, match="call step"):
        trainer.allreduce_grads()
    with pytest.raises(RuntimeError, match="call step"):
        trainer.update(BATCH)


# --- algorithm "local" is plain Gluon -------------------------------------------------------------------------------

OPTIMIZERS = [
    ("sgd", {"learning_rate": 0.1, "momentum": 0.9}),
    ("sgd", {"learning_rate": 0.1, "wd": 0.01, "rescale_grad": 0.5, "clip_gradient": 0.2}),
    ("adam", {"learning_rate": 0.01}),
    ("nadam", {"learning_rate": 0.01}),
]


@pytest.mark.parametrize(("optimizer", "options"), OPTIMIZERS)
def test_local_training_is_gluons_bit_for_bit(optimizer, options):
    ours, theirs = make_net(), make_net()
    trainer = local_trainer(ours, optimizer, options)
    plain = mx.gluon.Trainer(theirs.collect_params(), optimizer, options, kvstore=None)
    for number in range(5):
        backward(ours, number)
        trainer.step(BATCH)
        backward(theirs, number)
        plain.step(BATCH)
        assert values(ours) == values(theirs)
    assert values(ours) != values(make_net())


def test_parameters_may_be_a_list():
    net = make_net()
    trainer = esync.Trainer(list(net.collect_params().values()), "sgd", {"learning_rate": 0.1}, algorithm="local")
    backward(net, 0)
    trainer.step(BATCH)
    assert values(net) != values(make_net())


def test_the_learning_rate():
    ours, theirs = make_net(), make_net()
    trainer = local_trainer(ours)
    plain = mx.gluon.Trainer(theirs.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore=None)
    assert trainer.learning_rate == 0.1
    for each, net in ((trainer, ours), (plain, theirs)):
        each.set_learning_rate(0.025)
        backward(net, 0)
        each.step(BATCH)
    assert trainer.learning_rate == 0.025
    assert values(ours) == values(theirs)


@pytest.mark.parametrize(("optimizer", "options"), OPTIMIZERS)
def test_saved_states_are_loaded(tmp_path, optimizer, options):
    net = make_net()
    trainer = local_trainer(net, optimizer, options)
    for number in range(3):
        backward(net, number)
        trainer.step(BATCH)
    trainer.save_states(str(tmp_path / "states"))
    net.save_parameters(str(tmp_path / "weights"))

    other = make_net()
    other.load_parameters(str(tmp_path / "weights"))
    resumed = local_trainer(other, optimizer, options)
    resumed.load_states(str(tmp_path / "states"))
    for number in range(3, 6):
        for each, of in ((trainer, net), (resumed, other)):
            backward(of, number)
            each.step(BATCH)
        assert values(other) == values(net)


def test_a_stale_gradient_is_reported_as_in_gluon():
    net = make_net()
    trainer = local_trainer(net)
    backward(net, 0)
    trainer.step(BATCH)
    with pytest.raises(UserWarning, match="has not been updated"):
        trainer.step(BATCH)
    before = values(net)
    trainer.step(BATCH, ignore_stale_grad=True)
    assert values(net) == before


def test_frozen_parameters_stay_as_they_are():
    net = make_net()
    net[0].collect_params().setattr("grad_req", "null")
    frozen = [p.data().asnumpy().tobytes() for p in net[0].collect_params().values()]
    trained = net[2].weight.data().asnumpy()
    trainer = local_trainer(net, "adam", {"learning_rate": 0.1})
    for number in range(2):
        backward(net, number)
        trainer.step(BATCH)
    assert [p.data().asnumpy().tobytes() for p in net[0].collect_params().values()] == frozen
    assert not np.array_equal(net[2].weight.data().asnumpy(), trained)


def test_shapes_that_the_first_batch_tells():
    net = nn.Dense(3)
    net.initialize()
    trainer = local_trainer(net)
    backward(net, 0)
    before = net.weight.data().asnumpy()
    trainer.step(BATCH)
    assert not np.array_equal(net.weight.data().asnumpy(), before)


def test_starting_before_shapes_are_known_says_what_to_do():
    net = nn.Dense(3, prefix="later_")
    net.initialize()
    trainer = local_trainer(net)
    with pytest.raises(ValueError, match=r"later_weight is not initialized yet: .* one batch"):
        trainer.start()


def test_a_layer_that_no_batch_has_passed_is_named_at_the_first_step():
    net = make_net()
    unused = nn.Dense(3, prefix="unused_")
    unused.initialize()
    parameters = {**net.collect_params(), **unused.collect_params()}
    trainer = esync.Trainer(parameters, "sgd", {"learning_rate": 0.1}, algorithm="local")
    backward(net, 0)
    with pytest.raises(ValueError, match="unused_weight is not initialized yet"):
        trainer.step(BATCH)


# --- rounds and limits ----------------------------------------------------------------------------------------------


def test_every_local_iteration_is_a_round():
    net = make_net()
    trainer = local_trainer(net)
    assert (trainer.round, trainer.local_iterations, trainer.exchanged, trainer.finished) == (0, 0, False, False)
    assert (trainer.rank, trainer.workers) == (0, 1)
    for number in range(1, 4):
        backward(net, number)
        trainer.step(BATCH)
        assert (trainer.round, trainer.local_iterations, trainer.exchanged) == (number, 1, True)
    assert not trainer.finished


@pytest.mark.parametrize("limits", [Limits(rounds=3), Limits(samples=3 * BATCH), Limits(samples=2 * BATCH + 1)])
def test_limits_end_a_local_run(limits):
    net = make_net()
    trainer = local_trainer(net, limits=limits)
    for number in range(1, 4):
        assert not trainer.finished
        backward(net, number)
        trainer.step(BATCH)
    assert trainer.finished
    assert trainer.round == 3


def test_a_limit_of_time_ends_a_local_run():
    net = make_net()
    trainer = local_trainer(net, limits=Limits(seconds=1e-9))
    backward(net, 0)
    trainer.step(BATCH)
    assert trainer.finished


def test_stop_ends_a_local_run_with_the_next_iteration():
    net = make_net()
    trainer = local_trainer(net)
    for number in range(2):
        backward(net, number)
        trainer.step(BATCH)
    trainer.stop()
    assert not trainer.finished
    backward(net, 2)
    trainer.step(BATCH)
    assert trainer.finished


def test_a_step_after_the_end_is_an_error():
    net = make_net()
    trainer = local_trainer(net, limits=Limits(rounds=1))
    backward(net, 0)
    trainer.step(BATCH)
    assert trainer.finished
    with pytest.raises(RuntimeError, match="the run is over"):
        trainer.step(BATCH)
    assert trainer.round == 1


def test_stopping_before_the_start_is_no_error():
    trainer = local_trainer(make_net())
    trainer.stop()
    trainer.abort("changed my mind")
    trainer.close()
    assert trainer.round == 0


def test_samples_and_phases_are_recorded():
    net = make_net()
    trainer = local_trainer(net)
    for number, size in enumerate((BATCH, BATCH // 2)):
        backward(net, number)
        trainer.step(size)
    taken = trainer.world.recorder.take()
    assert taken["num_samples"] == BATCH + BATCH // 2
    assert set(taken["time"]["0"]) == {"local update", "forward and backward"}


# --- trial -----------------------------------------------------------------------------------------------------------


def scheduled() -> dict:
    return {"learning_rate": 0.1, "momentum": 0.9, "lr_scheduler": mx.lr_scheduler.FactorScheduler(2, 0.5)}


@pytest.mark.parametrize(
    ("optimizer", "options"), [*((o, lambda p=p: dict(p)) for o, p in OPTIMIZERS), ("sgd", scheduled)]
)
@pytest.mark.parametrize("before", [0, 1, 2])
def test_a_trial_changes_nothing(optimizer, options, before):
    """Two runs, one with trials in between, stay the same bit for bit, whatever the optimizer keeps."""
    tried, untried = make_net(), make_net()
    one, other = local_trainer(tried, optimizer, options()), local_trainer(untried, optimizer, options())
    for number in range(before):
        for trainer, net in ((one, tried), (other, untried)):
            backward(net, number)
            trainer.step(BATCH)
    weights, rate = values(tried), one.learning_rate
    for number in range(100, 103):
        with one.trial():
            backward(tried, number)
            one.step(BATCH)
            assert values(tried) != weights
        assert values(tried) == weights
        assert one.learning_rate == rate
    assert one.round == before
    for number in range(10, 14):
        for trainer, net in ((one, tried), (other, untried)):
            backward(net, number)
            trainer.step(BATCH)
        assert values(tried) == values(untried)
        assert one.learning_rate == other.learning_rate


def test_a_trial_is_no_round_and_no_sample():
    net = make_net()
    trainer = local_trainer(net, limits=Limits(rounds=1))
    with trainer.trial():
        backward(net, 0)
        trainer.step(BATCH)
    assert (trainer.round, trainer.finished) == (0, False)
    assert trainer.world.recorder.take()["num_samples"] == 0


def test_a_trial_that_fails_changes_nothing_either():
    net = make_net()
    trainer = local_trainer(net, "adam", {"learning_rate": 0.1})
    weights = values(net)

    def fail() -> None:
        with trainer.trial():
            backward(net, 0)
            trainer.step(BATCH)
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fail()
    assert values(net) == weights
    backward(net, 1)
    trainer.step(BATCH)
    assert trainer.round == 1


def test_a_trial_needs_shapes():
    net = nn.Dense(3, prefix="later_")
    net.initialize()
    trainer = local_trainer(net)
    with pytest.raises(ValueError, match="later_weight"), trainer.trial():
        backward(net, 0)


class Spy(Local):
    """Remembers the capability that it finds at its start."""

    def start(self, surroundings):
        super().start(surroundings)
        self.capability = surroundings.capability()


@pytest.mark.parametrize("step_time", [None, 50.0])
def test_the_last_trial_tells_the_capability(step_time):
    from esync.world import RealWorld

    net, spy = make_net(), Spy()
    trainer = esync.Trainer(
        net.collect_params(), "sgd", {"learning_rate": 0.1}, algorithm=spy, world=RealWorld(step_time)
    )
    with trainer.trial():
        backward(net, 0)
        trainer.step(BATCH)
    trainer.start()
    assert (spy.capability == step_time) if step_time else (0 < spy.capability < 50)
    again = spy
    trainer.start()  # is there already
    assert trainer.algorithm is again


def test_without_a_trial_the_capability_is_not_known():
    net, spy = make_net(), Spy()
    esync.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, algorithm=spy).start()
    assert spy.capability == 0


# --- with other workers -----------------------------------------------------------------------------------------------


def flat(net) -> list[float]:
    chosen = sorted((name, p) for name, p in net.collect_params().items() if p.grad_req != "null")
    return np.concatenate([p.data().asnumpy().reshape(-1) for _, p in chosen]).tolist()


def scripted(net, answers: int, beginning: list[float]) -> World:
    """A world in which every exchange is answered with `beginning`."""
    return World(
        rank=1,
        answers=[(beginning, False, True)] * answers,
        prepare=lambda exchange: setattr(exchange, "beginning", beginning),
    )


def test_gradients_of_weights_that_are_replaced_at_the_start_are_not_used():
    net = make_net()
    common = [0.5] * len(flat(net))
    world = scripted(net, 1, common)
    trainer = esync.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, algorithm="sync", world=world)
    backward(net, 0)
    trainer.step(BATCH)
    assert flat(net) == common
    assert (world.made.sent, trainer.round, trainer.exchanged) == ([], 0, False)
    assert (trainer.rank, trainer.workers) == (1, 3)
    backward(net, 1)
    trainer.step(BATCH)
    assert (len(world.made.sent), trainer.round, trainer.exchanged) == (1, 1, True)
    assert world.recorder.take()["num_samples"] == BATCH


def test_gradients_of_the_common_weights_are_used():
    net = make_net()
    world = scripted(net, 1, flat(net))
    trainer = esync.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, algorithm="sync", world=world)
    backward(net, 0)
    trainer.step(BATCH)
    assert len(world.made.sent) == 1


def test_what_a_gradient_is_sent_with():
    """The mean over the batch, and the hyper-parameters of this moment: schedules reach the server."""
    net = make_net()
    world = scripted(net, 4, flat(net))
    schedule = mx.lr_scheduler.FactorScheduler(step=2, factor=0.5, base_lr=0.4)
    options = {"lr_scheduler": schedule, "momentum": 0.9, "wd": 0.01, "rescale_grad": 2.0}
    trainer = esync.Trainer(net.collect_params(), "sgd", options, algorithm="sync", world=world)
    for number in range(4):
        backward(net, number)
        trainer.step(BATCH)
    gradients = sorted((name, p) for name, p in net.collect_params().items() if p.grad_req != "null")
    expected = np.concatenate([p.grad().asnumpy().reshape(-1) for _, p in gradients]) * np.float32(2.0 / BATCH)
    np.testing.assert_allclose(world.made.sent[-1].values, expected, rtol=1e-6)
    # Gluon asks its schedule with the number of the update, from 1: 0.4 for the first two, 0.2 for the next two.
    assert [sent.learning_rate for sent in world.made.sent] == [0.4, 0.4, 0.2, 0.2]
    assert {(sent.samples, sent.momentum, sent.weight_decay) for sent in world.made.sent} == {(BATCH, 0.9, 0.01)}


def test_set_learning_rate_reaches_the_server():
    net = make_net()
    world = scripted(net, 2, flat(net))
    trainer = esync.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, algorithm="async", world=world)
    for number, rate in enumerate((0.1, 0.025)):
        trainer.set_learning_rate(rate)
        backward(net, number)
        trainer.step(BATCH)
    assert [sent.learning_rate for sent in world.made.sent] == [0.1, 0.025]


def test_esync_keeps_the_local_optimizers_state_across_exchanges():
    """Adam's moments after an exchange are those of an Adam that was never interrupted."""
    net, plain = make_net(), make_net()
    optimizer = {"learning_rate": 0.01}
    world = scripted(net, 3, flat(net))
    trainer = esync.Trainer(net.collect_params(), "adam", optimizer, algorithm=ESync(local_iterations=1), world=world)
    reference = mx.gluon.Trainer(plain.collect_params(), "adam", optimizer, kvstore=None)
    begin = [p.data().copy() for p in plain.collect_params().values()]
    for number in range(3):
        backward(net, number)
        trainer.step(BATCH)
        backward(plain, number)
        before = np.float32(flat(plain))
        reference.step(BATCH)
        np.testing.assert_array_equal(np.float32(world.made.sent[-1].values), np.float32(flat(plain)) - before)
        for parameter, values_ in zip(plain.collect_params().values(), begin, strict=True):
            if parameter.grad_req != "null":
                parameter.set_data(values_)  # what the exchange answers


def test_what_must_agree_is_told_to_the_others():
    nets = make_net(), make_net("other_"), nn.Dense(3, in_units=5)
    nets[2].initialize()
    told = []
    for net in nets:
        world = scripted(net, 0, flat(net))
        trainer = esync.Trainer(
            net.collect_params(), "sgd", algorithm="sync", world=world, agreement={"seed": 3}, limits=Limits(rounds=4)
        )
        trainer.start()
        _, weights, _, limits, agreement = world.made.log[0]
        assert (weights, limits) == (len(flat(net)), Limits(rounds=4))
        told.append(agreement)
    assert told[0] == told[1]  # the names of the parameters may differ, not their shapes
    assert told[0] != told[2]
    assert (told[0]["seed"], told[0]["algorithm"]) == (3, "sync")
