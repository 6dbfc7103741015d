import numpy as np
import pytest

from esync.exchange.protocol import wire
from esync.exchange.protocol.replacement_recovery import completed_exchanges, round_has_commit, starting_status
from esync.exchange.protocol.status import Status


@pytest.mark.parametrize(
    ("rounds", "committed", "expected"),
    [
        ([3], [True], True),
        ([3], [False], False),
        ([3, 3], [True, True], True),
        ([3, 3], [True, False], False),  # died between two servers: its exchange is done once more
        ([4, 3], [False, True], True),  # the first server has ended the round, the second one will
        ([4, 3], [False, False], False),  # the first server has ended it without the worker, or alone with its commit
        ([4, 4], [False, False], False),
    ],
)
def test_round_has_commit_of_dead_worker_where_a_server_needs_it(rounds, committed, expected):
    assert round_has_commit(rounds, committed) == expected


@pytest.mark.parametrize(
    ("acknowledged", "rounds", "expected"),
    [
        ([3], [5], 3),
        ([4, 3], [6, 5], 3),  # used by one server; the other one needs it once more
        ([3, 3], [6, 5], 3),  # the first server has ended the round without it
        ([4, 3], [6, 6], 4),  # dropped before the second server had its commit: that is over
        ([4, 3], [5, 6], 4),  # the same, one round later
        ([3, 5], [5, 6], 4),
    ],
)
def test_dealt_with_counts_the_exchanges_of_a_dead_worker(acknowledged, rounds, expected):
    """The next exchange is new to every server in the earliest round, the one after it to all."""
    assert completed_exchanges(acknowledged, rounds, synchronous=True) == expected
    earliest = min(rounds)
    for number, ended in zip(acknowledged, rounds, strict=True):
        assert expected + 1 > number or ended > earliest
        assert expected + 2 > number


def test_dealt_with_in_asynchronous_mode_is_the_fewest():
    assert completed_exchanges([4, 3], [0, 0], synchronous=False) == 3


@pytest.mark.parametrize(
    ("acknowledged", "uses", "synchronous", "expected"),
    [
        ([4, 3], [wire.AT_ONCE, wire.AT_ONCE], True, False),  # it came to the first server only, before a switch
        ([3, 4], [wire.AT_ONCE, wire.AT_ONCE], True, False),
        ([4, 4], [wire.AT_ONCE, wire.AT_ONCE], True, True),
        ([4, 3], [wire.TOGETHER, wire.AT_ONCE], True, True),  # part of a round: see `completed_exchanges`
        ([4, 3], [0, wire.AT_ONCE], True, True),
        ([4, 3], [wire.AT_ONCE, wire.AT_ONCE], False, False),
    ],
)
def test_starting_status_repeats_partly_used_asynchronous_commit_first(acknowledged, uses, synchronous, expected):
    statuses = []
    for number, use in zip(acknowledged, uses, strict=True):
        record = np.zeros((), wire.status_type(2))
        record["acknowledged"][1], record["used"][1], record["synchronous"] = number, use, synchronous
        statuses.append(Status.of_record(record, rank=1))
    assert starting_status(statuses).synchronous == expected
