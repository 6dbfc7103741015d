"""GradientSGD, the published name of DGS, over esync.Trainer."""

import argparse

import esync
from esync.gradient_sgd import GradientSGD

from .support.small_net import make_net, take_steps


def test_gradient_sgd_passes_its_arguments_to_the_trainer(tmp_path):
    net = make_net()
    checkpoints = esync.Checkpoints(tmp_path)
    trainer = GradientSGD(
        net.collect_params(),
        lr=0.25,
        args=argparse.Namespace(mode="sgd"),
        limits=esync.Limits(rounds=2),
        checkpoints=checkpoints,
        gradient_scale=2.0,
    )
    assert (trainer.learning_rate, trainer.gradient_scale) == (0.25, 2.0)
    assert trainer.checkpoints is checkpoints
    for number in range(2):
        assert not trainer.finished
        take_steps(net, trainer, number)
    assert trainer.finished
