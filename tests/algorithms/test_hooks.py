"""An algorithm's hooks on a real network: what they see, when they run, and what becomes of their
changes.
"""

import math
from itertools import pairwise

import numpy as np
import pytest

import esync
from esync.algorithms import ASGD, DGS, SSGD, DGCAsync, DyLU, ESync, GDAsync, Local, LocalSGD, SyncSwitch, model_view
from esync.exchange.protocol.round_state import Limits
from esync.gluon.flat_arrays import FlatArrays
from esync.gluon.replica import Replica
from esync.runtime.errors import AlgorithmResultError
from esync.runtime.mxnet_import import mx
from esync.simulate.timing import TimedReplica

from ..support.scripted_world import World
from ..support.small_net import (
    BATCH,
    amp_backward,
    backward,
    batch,
    differentiate,
    flat,
    make_net,
    scaled,
    single_weight,
    values,
)
from ..trainer.test_overlap import SlowExchange

RATE = 0.125


def hooked(kind, before=None, after=None):
    """A subclass with these hooks."""
    hooks = {"before_local_step": before, "after_exchange": after}
    return type("Hooked", (kind,), {name: _method(hook) for name, hook in hooks.items() if hook})


def _method(hook):
    return lambda algorithm, model: hook(model)


def make_trainer(net, algorithm, answers=(), settings=None, **options):
    """Make a trainer in a world that begins with the network's own weights.

    An answer is added to those.
    """
    begin = np.float32(flat(net))
    world = options.pop("world", None) or World(
        answers=[((begin + answer).tolist(), False, True) for answer in answers], beginning=begin.tolist()
    )
    settings = {"learning_rate": RATE, **(settings or {})}
    limits = Limits(samples=1000)
    trainer = esync.Trainer(
        net.collect_params(), "sgd", settings, algorithm=algorithm, world=world, limits=limits, **options
    )
    trainer.start()
    return trainer


def local_sgd(before=None, after=None, iterations=100, **options):
    return hooked(LocalSGD, before, after)(local_iterations=iterations, **options)


def mean_gradient(net, number) -> np.ndarray:
    """Return the gradient of batch `number` that Gluon computes from the mean loss.

    The network's own gradients are lost.
    """
    data, label = batch(number)
    differentiate(lambda: mx.gluon.loss.SoftmaxCrossEntropyLoss()(net(data), label).mean())
    chosen = sorted((name, p) for name, p in net.collect_params().items() if p.grad_req != "null")
    return np.concatenate([p.grad().asnumpy().reshape(-1) for _, p in chosen])


def train(net, trainer, *numbers, amp=False) -> None:
    """Take a step with each of these batches."""
    for number in numbers:
        if amp:
            scaled(trainer)
            amp_backward(net, trainer, number)
        else:
            backward(net, number)
        trainer.step(BATCH)


# --- what a hook sees -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "amp"),
    [
        *((algorithm, False) for algorithm in (Local, LocalSGD, DyLU, SSGD, GDAsync)),
        *((algorithm, True) for algorithm in (LocalSGD, SSGD, GDAsync)),
    ],
)
def test_hook_gradient_is_the_mean_of_the_batch(algorithm, amp):
    """It is a multiple of it where the program says so (rescale_grad), whatever the rate multiplies."""
    net, seen = make_net(), []
    kind = hooked(algorithm, before=lambda model: seen.append((model.gradient, model.batch_size)))
    expected = 0.5 * mean_gradient(make_net(), 0)
    trainer = make_trainer(net, kind(), answers=[0.0], gradient_scale=3.0, settings={"rescale_grad": 0.5})
    train(net, trainer, 0, amp=amp)
    ((gradient, batch_size),) = seen
    assert gradient.dtype == np.float32
    assert batch_size == BATCH
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-7)


def test_hook_sees_weights_anchor_and_statistics():
    net, seen = make_net(), []
    trainer = make_trainer(
        net, local_sgd(lambda model: seen.append((model.weights, model.anchor, model.statistics)), iterations=2), [1.0]
    )
    begin = np.float32(flat(net))
    running = sorted((name, p) for name, p in net.collect_params().items() if p.grad_req == "null")
    for number in range(3):
        before = np.float32(flat(net))
        backward(net, number)
        statistics = np.concatenate([p.data().asnumpy() for _, p in running])
        trainer.step(BATCH)
        weights, anchor, seen_statistics = seen[-1]
        assert np.array_equal(weights, before)
        assert np.array_equal(anchor, begin + (number == 2))
        assert np.array_equal(seen_statistics, statistics)
    assert np.array_equal(seen[0][1], begin)  # what was kept of a view is not another exchange's now


# --- what becomes of changes ----------------------------------------------------------------------


def in_place(name, change):
    def hook(model):
        values = getattr(model, name)
        values += change

    return hook


def augmented(name, change):
    def hook(model):
        setattr(model, name, getattr(model, name).__iadd__(change))  # what `model.gradient += change` does

    return hook


def assigned(name, change):
    def hook(model):
        setattr(model, name, getattr(model, name) + np.float64(change))

    return hook


@pytest.mark.parametrize(("way", "amp"), [(in_place, False), (augmented, False), (assigned, False), (assigned, True)])
def test_hook_changed_gradient_is_used_by_the_local_step(way, amp):
    """A change of 1 moves a weight by learning rate times gradient scale."""
    moved = []
    for change in (0.0, 1.0):
        net = make_net()
        train(net, make_trainer(net, local_sgd(way("gradient", change)), gradient_scale=3.0), 0, amp=amp)
        moved.append(np.float32(flat(net)))
    np.testing.assert_allclose(moved[0] - moved[1], RATE * 3.0, rtol=1e-4)


@pytest.mark.parametrize("algorithm", [SSGD, ASGD, SyncSwitch, GDAsync])
def test_hook_changed_gradient_is_sent(algorithm):
    """Sparse algorithms send the step, which is as long as the learning rate says."""

    def hook(model):
        model.gradient = np.arange(model.gradient.size)

    sparse = algorithm is GDAsync
    net = make_net()
    kind = hooked(algorithm, before=hook)
    trainer = make_trainer(net, kind(**({"ratio": 1.0} if sparse else {})), answers=[0.0], gradient_scale=3.0)
    train(net, trainer, 0)
    (sent,) = trainer.world.made.sent
    expected = (RATE if sparse else 1.0) * 3.0 * np.arange(len(sent.values))
    np.testing.assert_allclose(np.abs(sent.values), expected, rtol=1e-6)


@pytest.mark.parametrize("way", [in_place, augmented, assigned])
@pytest.mark.parametrize("name", ["weights", "statistics"])
def test_hook_changed_weights_and_statistics_are_kept(way, name):
    plain, net = make_net(), make_net()
    for network, algorithm in ((plain, local_sgd()), (net, local_sgd(way(name, 2.0)))):
        train(network, make_trainer(network, algorithm), 0)
    for one, other in zip(plain.collect_params().values(), net.collect_params().values(), strict=True):
        changed = (one.grad_req == "null") == (name == "statistics")
        np.testing.assert_allclose(other.data().asnumpy() - one.data().asnumpy(), 2.0 * changed, atol=1e-6)


def test_hook_that_changes_nothing_keeps_every_bit():
    """Scaling a gradient by 7/8/3 and back would change it; so does changing another value."""

    def touch(model):
        for array in (model.weights, model.statistics, model.gradient):
            array *= 1
        model.weights = model.weights.copy()

    def touch_one(model):
        model.gradient[0] += 1

    plain, touched, other = make_net(), make_net(), make_net()
    for net, hook in ((plain, None), (touched, touch), (other, touch_one)):
        trainer = make_trainer(net, local_sgd(hook), settings={"rescale_grad": 7.0}, gradient_scale=3.0)
        for number in range(3):
            train(net, trainer, number)
            if number == 0:
                first = np.float32(flat(net))
                if net is plain:
                    expected = first
                assert np.array_equal(first[1:], expected[1:])
    assert values(touched) == values(plain)
    assert values(other) != values(plain)


def test_hook_assigned_array_is_copied():
    gradients = []

    def hook(model):
        gradients.append(np.ones(model.weights.size, np.float32))
        model.gradient = gradients[-1]
        model.gradient *= 2

    net = make_net()
    train(net, make_trainer(net, local_sgd(hook)), 0)
    assert set(gradients[0].tolist()) == {1}


def test_hook_that_raises_changes_nothing():
    def hook(model):
        model.gradient += 1
        model.weights += 1
        raise ArithmeticError("no")

    net = make_net()
    trainer = make_trainer(net, local_sgd(hook))
    before = flat(net)
    backward(net, 0)
    with pytest.raises(ArithmeticError, match="no"):
        trainer.step(BATCH)
    assert flat(net) == before


# --- block by block -------------------------------------------------------------------------------


@pytest.fixture
def blocks_of_seven(monkeypatch):
    monkeypatch.setattr(model_view, "BLOCK", 7)


def test_hook_blocks_cover_the_whole_model(blocks_of_seven):
    seen = []

    def full_model(model):
        model.gradient += 0.5 * (model.weights - 2 * model.anchor)
        model.weights *= 0.5

    def in_blocks(model):
        sizes = []
        for block in model.blocks():
            sizes.append(block.weights.size)
            assert block.gradient.size == block.anchor.size == sizes[-1]
            block.gradient += 0.5 * (block.weights - 2 * block.anchor)
            block.weights = 0.5 * block.weights
        seen.append(sizes)

    nets = make_net(), make_net()
    for net, hook in zip(nets, (full_model, in_blocks), strict=True):
        train(net, make_trainer(net, local_sgd(hook), gradient_scale=3.0), *range(3))
    assert values(nets[1]) == values(nets[0])
    assert seen == [[7] * 9 + [6]] * 3


def test_hook_whole_arrays_before_and_after_blocks_keep_changes(blocks_of_seven):
    """The hook takes a norm of the whole array before it changes the blocks."""
    seen = []

    def hook(model):
        before = model.gradient
        before /= np.linalg.norm(before)
        for block in model.blocks():
            block.gradient *= 2
        seen.append((before, model.gradient))
        model.gradient += 0

    net = make_net()
    begin = np.float32(flat(net))
    train(net, make_trainer(net, local_sgd(hook), gradient_scale=3.0), 0)
    ((before, after),) = seen
    np.testing.assert_allclose(after, 2 * before, rtol=1e-6)
    np.testing.assert_allclose(np.linalg.norm((begin - flat(net)) / (3 * RATE)), 2.0, rtol=1e-5)


def test_hook_block_loop_left_early_keeps_the_changes_so_far(blocks_of_seven):
    def hook(model):
        for number, block in enumerate(model.blocks()):
            block.weights += 1
            if number == 1:
                break

    net = make_net()
    trainer = make_trainer(net, local_sgd(hook))
    trainer.set_learning_rate(0.0)
    begin = np.float32(flat(net))
    train(net, trainer, 0)
    np.testing.assert_allclose(flat(net) - begin, [1.0] * 14 + [0.0] * (begin.size - 14), atol=1e-6)


# --- other formats of numbers ---------------------------------------------------------------------


@pytest.mark.parametrize("multi_precision", [False, True])
def test_hook_with_float16_sees_float32_master_weights(multi_precision):
    """With multi_precision the weights are the optimizer's float32 copies."""
    seen, small = [], 2.0**-14

    def hook(model):
        seen.append((model.weights.copy(), model.gradient.copy()))
        model.gradient += 0.5
        model.weights += small

    weight = single_weight("float16")
    settings = {"learning_rate": RATE, "multi_precision": multi_precision}
    world = World(beginning=[1.0, 1.0])
    trainer = esync.Trainer([weight], "sgd", settings, algorithm=local_sgd(hook), world=world)
    trainer.start()
    for _ in range(2):
        differentiate(lambda: BATCH * (weight.data() * mx.nd.array([1, 2], dtype="float16")).sum())
        trainer.step(BATCH)
    assert all(array.dtype == np.float32 for arrays in seen for array in arrays)
    assert all(gradient.tolist() == [1, 2] for _, gradient in seen)
    step = RATE * np.array([1.5, 2.5])
    small = small if multi_precision else 0  # rounded away
    assert [weights.tolist() for weights, _ in seen] == [[1, 1], (1 - step + small).tolist()]
    assert weight.data().asnumpy().tolist() == (1 - 2 * step + 2 * small).astype(np.float16).tolist()


def test_hook_with_overflowed_gradients_keeps_them_and_skips_the_step():
    net = make_net()
    trainer = make_trainer(net, local_sgd(in_place("gradient", 1.0)))
    scaled(trainer)
    before = flat(net)
    for number in range(2):
        amp_backward(net, trainer, number, 1e38)
        trainer.step(BATCH)
    assert flat(net) == before
    assert trainer._amp_loss_scaler.loss_scale == 2.0**15


# --- when -----------------------------------------------------------------------------------------


def test_hooks_run_before_each_local_step_and_after_each_exchange():
    log = []
    algorithm = local_sgd(
        lambda model: log.append(("before", flat(net))), lambda model: log.append(("after", model.weights[0])), 2
    )
    net = make_net()
    trainer = make_trainer(net, algorithm, [10.0, 20.0])
    assert log == []  # the beginning is not the end of an exchange
    log = trainer.world.made.log
    del log[:]
    first = flat(net)[0]
    for number in range(4):
        log.append(("weights", flat(net)))
        train(net, trainer, number)
    assert [entry if isinstance(entry, str) else entry[0] for entry in log] == [
        *("weights", "before", "weights", "before", "exchange", "after"),
        *("weights", "before", "weights", "before", "exchange", "after"),
    ]
    for weights, before in pairwise(log):
        if weights[0] == "weights":
            assert before == ("before", weights[1])
    np.testing.assert_allclose([entry[1] for entry in log if entry[0] == "after"], [first + 10, first + 20])


@pytest.mark.parametrize("algorithm", [SSGD, SyncSwitch, DGCAsync])
def test_hooks_run_before_gradients_are_sent_and_after_the_answer(algorithm):
    log = []
    kind = hooked(algorithm, lambda model: log.append("before"), lambda model: log.append("after"))
    net = make_net()
    trainer = make_trainer(net, kind(), [0.0])
    log = trainer.world.made.log
    del log[:]
    train(net, trainer, 0)
    assert log == ["before", "exchange", "after"]
    phases = trainer.world.recorder.take()["time"]["0"]
    assert set(phases) == {"local update", "forward and backward", "global aggregate"}


def test_hook_change_after_exchange_is_part_of_the_next_update():
    net = make_net()
    trainer = make_trainer(net, local_sgd(after=in_place("weights", 0.5), iterations=1), [0.0, 0.0])
    trainer.set_learning_rate(0.0)
    train(net, trainer, *range(2))
    np.testing.assert_allclose([sent.values[0] for sent in trainer.world.made.sent], [0.0, 0.5], atol=1e-6)


def test_hook_with_overlap_runs_after_the_merge():
    """The update is pushed after the second step and merged after the third, with its progress on
    top.
    """
    net, seen = make_net(), []
    begin = np.float32(flat(net))
    world = World()

    def exchange(specification):
        answers = [((begin + offset).tolist(), False, True) for offset in (10.0, 20.0)]
        world.made = SlowExchange(specification, answers, [0, 0])
        world.made.beginning = begin.tolist()
        return world.made

    world.exchange = exchange

    def constant(model):
        seen.append(("before", model.anchor[0] - begin[0]))
        model.gradient = np.full(model.gradient.size, -1 / RATE)  # a step adds 1

    def after(model):
        seen.append(("after", model.anchor[0] - begin[0], model.weights[0] - begin[0]))

    algorithm = hooked(ESync, constant, after)(local_iterations=2, run_ahead=10)
    trainer = make_trainer(net, algorithm, world=world)
    train(net, trainer, *range(3))
    assert [record[0] for record in seen] == ["before", "before", "before", "after"]
    np.testing.assert_allclose([record[1] for record in seen], [0, 0, 0, 10], atol=1e-5)
    np.testing.assert_allclose(seen[-1][2], 11, atol=1e-5)


def test_hooks_are_not_called_in_a_trial_or_in_simulation_without_numerics():
    calls = []
    net = make_net()
    trainer = make_trainer(net, local_sgd(calls.append))
    with trainer.trial():
        train(net, trainer, 0)
    TimedReplica().call_hook(calls.append, BATCH)
    assert calls == []


# --- what cannot be used --------------------------------------------------------------------------


def whole_in_block_loop(model):
    for _ in model.blocks():
        model.weights += 1


def block_after_its_turn(model):
    blocks = model.blocks()
    first = next(blocks)
    next(blocks)
    first.weights += 1


def setting(name, value):
    return lambda model: setattr(model, name, value)


AFTER = r"no model\.gradient after an exchange.*take it in before_local_step"
READ_ONLY = r"read-only|servers rely on what this worker has"


@pytest.mark.parametrize(
    ("algorithm", "when", "hook", "error", "message"),
    [
        (
            Local,
            "before",
            lambda model: model.anchor,
            RuntimeError,
            r"there is no model\.anchor: this algorithm exchanges",
        ),
        (LocalSGD, "after", lambda model: model.gradient, RuntimeError, AFTER),
        (LocalSGD, "after", setting("gradient", np.zeros(3)), RuntimeError, AFTER),
        *(
            (LocalSGD, "before", setting(name, np.ones((2, 2))), ValueError, rf"model\.{name} is a flat array of \d+ v")
            for name in ("weights", "gradient", "statistics")
        ),
        (LocalSGD, "before", in_place("anchor", 1), ValueError, "read-only"),
        (GDAsync, "before", in_place("weights", 1), ValueError, READ_ONLY),
        (GDAsync, "before", setting("weights", np.zeros(3)), RuntimeError, READ_ONLY),
        *(
            (LocalSGD, "before", hook, RuntimeError, "only the arrays of its block can be used")
            for hook in (whole_in_block_loop, block_after_its_turn)
        ),
        (
            *(LocalSGD, "before", lambda model: model.gradient / 2, AlgorithmResultError),
            r"has returned ndarray, but should return nothing: .*model\.gradient = …",
        ),
        (
            LocalSGD,
            "before",
            lambda model: model.common("control"),
            RuntimeError,
            "there is no vector 'control'.*has none",
        ),
    ],
)
def test_hook_that_misuses_the_model_is_refused(blocks_of_seven, algorithm, when, hook, error, message):
    net = make_net()
    options = {"local_iterations": 1} if algorithm is LocalSGD else {}
    trainer = make_trainer(net, hooked(algorithm, **{when: hook})(**options), answers=[0.0])
    with pytest.raises(error, match=message):
        train(net, trainer, 0)


@pytest.mark.parametrize("planned", [0, 2.5, None, math.nan])
def test_planned_iterations_that_is_no_number_is_refused(planned):
    net = make_net()
    kind = type("Odd", (LocalSGD,), {"planned_iterations": planned})
    trainer = make_trainer(net, kind())
    backward(net, 0)
    with pytest.raises(
        AlgorithmResultError, match=r"planned_iterations of Odd is .* in round 1, but should be a whole"
    ):
        trainer.step(BATCH)
    with pytest.raises(AlgorithmResultError, match="planned_iterations of Odd"):
        _ = trainer.algorithm.iterations_left


# --- what it costs --------------------------------------------------------------------------------


@pytest.fixture
def reads(monkeypatch):
    """Record what is copied for hooks, and how many hooks are called.

    A record is (size of the vector, first value, last value).
    """
    seen, lent = [], []
    times, call_hook = FlatArrays.times, Replica.call_hook

    def counted(self, factor, start, stop):
        seen.append((self.size, start, stop))
        return times(self, factor, start, stop)

    def watched(self, *arguments, **kwargs):
        lent.append(1)
        return call_hook(self, *arguments, **kwargs)

    monkeypatch.setattr(FlatArrays, "times", counted)
    monkeypatch.setattr(Replica, "call_hook", watched)
    return seen, lent


@pytest.mark.parametrize("algorithm", [LocalSGD, SSGD, DGS])
def test_algorithm_without_hooks_copies_no_arrays(reads, algorithm):
    net = make_net()
    trainer = make_trainer(net, algorithm(**({"local_iterations": 1} if algorithm is LocalSGD else {})), [0.0])
    train(net, trainer, 0)
    assert trainer.exchanged
    assert reads == ([], [])


def test_hook_copies_only_touched_arrays_once(reads):
    net = make_net()
    size = len(flat(net))
    statistics = sum(p.data().size for p in net.collect_params().values()) - size

    def before(model):
        model.gradient += model.gradient

    def after(model):
        model.statistics *= 1

    train(net, make_trainer(net, hooked(DyLU, before, after)(), [0.0]), 0)
    assert reads == ([(size, 0, size), (statistics, 0, statistics)], [1, 1])
