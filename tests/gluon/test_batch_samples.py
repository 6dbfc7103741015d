"""What `Trainer.step` divides by, and what it counts."""

import math
from typing import Any

import numpy as np
import pytest

import esync
from esync.algorithms import LocalSGD
from esync.gluon.batch_samples import BatchSizeError, divisor_and_samples, whole_batch_size
from esync.runtime.mxnet_import import mx

from ..support.scripted_world import World, steady_world
from ..support.small_net import BATCH, backward, flat, local_trainer, make_net, sgd_trainer

nd = mx.nd


SIXTY_FOUR = [64, 64.0, np.int32(64), np.float32(64), np.array([64]), nd.array([64]), nd.array([64], dtype="int32")]


@pytest.mark.parametrize("size", SIXTY_FOUR)
def test_whole_numbers_of_any_library_divide_and_count(size):
    assert divisor_and_samples(size) == (64, 64)
    assert divisor_and_samples(0.37, size) == (0.37, 64)
    assert type(whole_batch_size(size, "x")) is int
    assert whole_batch_size(size, "x") == 64


@pytest.mark.parametrize("size", [0.37, np.float64(0.37), 64.5, nd.array([64.5])])
def test_fractions_divide_where_samples_are_given(size):
    divisor = float(size if isinstance(size, float) else size.asscalar())
    assert divisor_and_samples(size, 9) == (divisor, 9)
    with pytest.raises(BatchSizeError, match=r"a whole number of 1 or more; .* step\([\d.]+, samples=len\(batch\)\)"):
        divisor_and_samples(size)


NO_NUMBERS = [0, -64, math.nan, math.inf, True, "64", None, [64, 64], np.array([1, 2]), nd.array([1, 2]), np.True_, 1j]


@pytest.mark.parametrize("size", NO_NUMBERS, ids=str)
def test_what_is_no_number_above_zero_is_refused(size):
    with pytest.raises(BatchSizeError, match=r"it should be above 0, usually .*step\(len\(batch\)\)"):
        divisor_and_samples(size, 64)
    if size is not None:
        with pytest.raises(BatchSizeError, match=r"samples=.*a whole number of 1 or more"):
            divisor_and_samples(64, size)


def trained(algorithm: Any, *size: float, mean: bool = False, **step_options: Any) -> tuple[Any, World]:
    """A network after three steps on batches of BATCH samples, and what it has sent."""
    net, world = make_net(), steady_world(flat(make_net()))
    trainer = sgd_trainer(net, algorithm, {"learning_rate": 0.1, "wd": 0.01}, world=world, gradient_scale=2.0)
    trainer.start()
    with trainer.trial():
        backward(net, 0)
        trainer.step(*size, **step_options)
    for number in range(3):
        backward(net, number)
        if mean:
            for parameter in net.collect_params().values():
                if parameter.grad_req != "null":
                    parameter.grad()[:] /= BATCH
        trainer.step(*size, **step_options)
    assert world.recorder.samples == 3 * BATCH
    return trainer, world


@pytest.mark.parametrize("algorithm", ["sync", "async", "dcasgd", "dgs", "local-sgd", "scaffold", "local"])
def test_mean_loss_with_samples_steps_and_counts_as_the_sum_does(algorithm):
    def make() -> Any:
        return LocalSGD(local_iterations=1) if algorithm == "local-sgd" else algorithm

    (sums, sent), (means, other) = trained(make(), BATCH), trained(make(), 1, mean=True, samples=BATCH)
    assert flat_of(sums) == pytest.approx(flat_of(means), rel=1e-5, abs=1e-7)
    if algorithm != "local":
        assert [payload.samples for payload in sent.made.sent] == [payload.samples for payload in other.made.sent]
        for first, second in zip(sent.made.sent, other.made.sent, strict=True):
            np.testing.assert_allclose(first.values, second.values, rtol=1e-4, atol=1e-7)
            assert np.any(first.values)
    assert sums.samples == means.samples
    assert means._scale == 2.0


def flat_of(trainer: esync.Trainer) -> list[float]:
    return np.concatenate([parameter.data().asnumpy().reshape(-1) for parameter in trainer._params]).tolist()


def test_hook_sees_the_mean_gradient_of_a_mean_loss():
    class Seeing(LocalSGD):
        seen: Any = None

        def before_local_step(self, model: Any) -> None:
            self.seen = model.batch_size, np.linalg.norm(model.gradient)

    (sums, _), (means, _) = (
        trained(Seeing(local_iterations=9), BATCH),
        trained(Seeing(local_iterations=9), 1, mean=True, samples=BATCH),
    )
    assert sums.algorithm.seen[0] == means.algorithm.seen[0] == BATCH
    assert sums.algorithm.seen[1] == pytest.approx(means.algorithm.seen[1], rel=1e-4)


@pytest.mark.parametrize(("step_options", "warned"), [({}, True), ({"samples": 1}, False), ({"samples": 64}, False)])
def test_step_of_one_where_samples_end_the_run_warns_once(caplog, step_options, warned):
    net = make_net()
    trainer = local_trainer(net, limits=esync.Limits(samples=640))
    for number in range(2):
        backward(net, number)
        trainer.step(1, **step_options)
    assert caplog.text.count("step(1) counts one sample") == warned
    assert trainer.samples == 2 * step_options.get("samples", 1)


@pytest.mark.parametrize("size", [0, -1, 6.4, math.nan, math.inf, True, "64", None, [3, 4]])
def test_size_that_no_batch_can_have_is_refused_by_name(size: Any) -> None:
    trainer = local_trainer(make_net())
    for asked, name in [
        (lambda: trainer.batch_size(size), "trainer.batch_size"),
        (lambda: esync.BatchSampler(range(9), size, trainer), "esync.BatchSampler"),
    ]:
        with pytest.raises(BatchSizeError, match=rf"{name} was given .*, but a batch has a whole number of samples"):
            asked()
