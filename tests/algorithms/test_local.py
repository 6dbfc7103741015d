"""One worker of ESync's relatives in a world whose other workers, and whose state server, are scripted."""

import pytest

from esync import config
from esync.algorithms import SSP, DiLoCo, DyLU

from ..support.scripted_world import Sent, World


def test_dylu_does_as_many_iterations_as_its_speed_allows_and_says_how_fast_it_is():
    world, algorithm = World(answers=[([3, 4], False, True), ([5, 6], False, True)]), DyLU(5)
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


def test_a_negative_staleness_is_refused():
    with pytest.raises(ValueError, match="staleness is -1"):
        SSP(-1)


def test_diloco_exchanges_after_its_local_iterations_with_the_outer_momentum():
    world, algorithm = World(answers=[([3, 4], False, True)]), DiLoCo(2, global_lr=0.7, outer_momentum=0.9)
    world.start(algorithm)
    world.step(algorithm, [1, 0])
    assert not algorithm.exchanged
    world.step(algorithm, [1, 1])
    assert algorithm.exchanged
    assert world.made.sent == [Sent([2.0, 1.0], [5.0], 8, 0.7, 0.9, 0.0)]
    assert not world.addresses  # nobody has asked for a state server


@pytest.mark.parametrize("options", [{"outer_momentum": 1.0}, {"outer_momentum": -0.1}, {"weighting": "fair"}])
def test_what_makes_no_sense_is_refused_by_name(options):
    (name,) = options
    with pytest.raises(ValueError, match=f"{name} is"):
        DiLoCo(**options)
