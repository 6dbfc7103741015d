import pytest

from esync.exchange.protocol.takeover import in_round


@pytest.mark.parametrize(
    ("acknowledged", "committed", "expected"),
    [
        ([3], [True], True),
        ([3], [False], False),
        ([3, 3], [True, True], True),
        ([3, 3], [True, False], False),  # died between two servers: its exchange is done once more
        ([4, 3], [False, True], True),  # the first server has ended the round, the second one will
        ([4, 4], [False, False], False),
    ],
)
def test_the_round_of_a_dead_worker(acknowledged, committed, expected):
    assert in_round(acknowledged, committed) == expected
