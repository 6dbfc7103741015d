"""FedProx on a real network and a scripted exchange."""

import numpy as np
import pytest

import esync
from esync.algorithms import FedProx, LocalSGD
from esync.runtime.mxnet_import import mx

from ..support.scripted_world import World, steady_world
from ..support.small_net import OPTIMIZERS, differentiate, flat, make_net, single_weight, take_steps, values

RATE, MU = 0.25, 0.5
ANSWERS = ([3.0, -1.0], [0.0, 2.0])


class Line:
    """A linear regression, y ≈ w·x with two weights, on a batch of four samples."""

    data = np.float32([[1, 2], [0, 1], [-1, 1], [2, 0]])
    targets = np.float32([1, -1, 0, 2])

    def __init__(self) -> None:
        self.weight = single_weight()

    def backward(self) -> None:
        data, targets = mx.nd.array(self.data), mx.nd.array(self.targets)
        differentiate(lambda: (mx.nd.dot(data, self.weight.data()) - targets).square() / 2)

    def gradient(self, weights: np.ndarray) -> np.ndarray:
        """Of the mean loss."""
        return (self.data @ weights - self.targets) @ self.data / len(self.targets)


@pytest.mark.parametrize(("scale", "momentum"), [(1.0, 0.0), (4.0, 0.9)])
def test_fedprox_update_equals_algorithm_2_in_numpy(scale, momentum):
    """The local problem by SGD: g + μ·(w − w₀), where w₀ is the model of the last exchange."""
    line = Line()
    world = World(answers=[(answer, False, True) for answer in ANSWERS], beginning=[1.0, 1.0])
    algorithm = FedProx(local_iterations=3, prox_mu=MU)
    settings = {"learning_rate": RATE / scale, "momentum": momentum}
    trainer = esync.Trainer([line.weight], "sgd", settings, algorithm=algorithm, world=world, gradient_scale=scale)
    trainer.start()
    common, velocity, expected = np.ones(2), np.zeros(2), []
    for answer in ANSWERS:
        weights = common.copy()
        for _ in range(3):
            velocity = momentum * velocity - RATE * (line.gradient(weights) + MU * (weights - common))
            weights = weights + velocity
            line.backward()
            trainer.step(4)
        expected.append(weights - common)
        common = np.array(answer)
    np.testing.assert_allclose([sent.values for sent in world.made.sent], expected, rtol=1e-5)


@pytest.mark.parametrize(("optimizer", "settings"), OPTIMIZERS[:3])
def test_fedprox_with_prox_mu_0_equals_local_sgd_bit_for_bit(optimizer, settings):
    trained = []
    for algorithm in (LocalSGD(local_iterations=4), *(FedProx(local_iterations=4, prox_mu=mu) for mu in (0, 0.5))):
        net = make_net()
        world = steady_world(flat(net), 2)
        trainer = esync.Trainer(net.collect_params(), optimizer, dict(settings), algorithm=algorithm, world=world)
        take_steps(net, trainer, *range(7))
        assert trainer.round == 1
        trained.append(values(net))
    assert trained[1] == trained[0] != trained[2]


# --- the command line -----------------------------------------------------------------------------


def test_fedprox_prox_mu_is_agreed_on_and_in_checkpoints():
    assert FedProx(prox_mu=0.1).terms["--prox-mu"] == 0.1
    assert FedProx(prox_mu=0.1).options.fixed["--prox-mu"] == 0.1
