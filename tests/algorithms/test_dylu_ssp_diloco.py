"""DyLU, SSP and DiLoCo on one worker, with a scripted exchange."""

from esync import config
from esync.algorithms import DiLoCo, DyLU

from ..support.scripted_world import Sent, World


def test_dylu_takes_iterations_by_its_speed_and_reports_it():
    world, algorithm = World(answers=[([3, 4], False, True), ([5, 6], False, True)]), DyLU(local_iterations=5)
    world.start(algorithm)
    world.made.fastest = 1.0  # this device takes 2 s
    exchanged = []
    for _ in range(3):
        world.step(algorithm, [1, 0])
        exchanged.append(algorithm.exchanged)
    assert exchanged == [True, False, True]
    assert [sent.values for sent in world.made.sent] == [[1.0, 0.0], [2.0, 0.0]]
    assert [sent.samples for sent in world.made.sent] == [4, 8]
    assert {(sent.learning_rate, sent.momentum, sent.pace) for sent in world.made.sent} == {
        (config.DILOCO_GLOBAL_LR, config.DILOCO_OUTER_MOMENTUM, 2.0)
    }
    assert world.made.sent[0].statistics == [5.0]
    assert world.replica.own_statistics == [True, True]  # … and the mean is kept beside them


def test_diloco_exchanges_after_its_local_iterations_with_the_outer_momentum():
    world, algorithm = (
        World(answers=[([3, 4], False, True)]),
        DiLoCo(local_iterations=2, global_lr=0.7, outer_momentum=0.9),
    )
    world.start(algorithm)
    world.step(algorithm, [1, 0])
    assert not algorithm.exchanged
    world.step(algorithm, [1, 1])
    assert algorithm.exchanged
    assert world.made.sent == [Sent([2.0, 1.0], [5.0], 8, 0.7, 0.9, 0.0)]
    assert not world.addresses  # nobody has asked for a state server
