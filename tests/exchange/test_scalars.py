"""Scalars added by an algorithm: how servers combine those of a round; see `test_named_vectors`."""

from typing import Any

import numpy as np
import pytest

from esync.exchange import Specification
from esync.exchange.protocol import wire

from ..support.memory_servers import MemoryServers

WAYS = {"temperature": "common", "loss": "mean", "norm": "sum", "least": "minimum", "most": "maximum"}
ONE = np.float32([1])


def common_scalars(cluster: MemoryServers) -> dict[str, float]:
    """What the statuses of all servers say."""
    answers = [wire.scalars_of(cluster.status(shard)) for shard in range(cluster.layout.servers)]
    assert all(answer == answers[0] for answer in answers)
    return answers[0]


def says(value: float) -> dict[str, float]:
    return {"temperature": 3.0, **{name: value for name in WAYS if name != "temperature"}}


@pytest.mark.parametrize("servers", [1, 2])
def test_scalars_of_a_round_are_combined_and_kept_until_the_next_ends(servers: int) -> None:
    cluster = MemoryServers(3, np.zeros(8), servers=servers, scalars=WAYS)
    assert common_scalars(cluster) == {}
    for rank, value in ((2, 1.0), (0, -2.0), (1, 4.0)):
        cluster.send(rank, 1, np.ones(8), **says(value))
    expected = {"temperature": 3.0, "loss": 1.0, "norm": 3.0, "least": -2.0, "most": 4.0}
    assert common_scalars(cluster) == expected
    cluster.send(0, 2, np.ones(8), **says(100.0))  # a slow worker asks only now how the first round went
    assert common_scalars(cluster) == expected
    cluster.say(wire.LEAVE, 2)
    cluster.send(1, 2, np.ones(8), **says(0.0))
    assert common_scalars(cluster) == {"temperature": 3.0, "loss": 50.0, "norm": 100.0, "least": 0.0, "most": 100.0}


def test_scalars_that_a_worker_does_not_send_are_left_out() -> None:
    cluster = MemoryServers(2, [0.0], scalars={"loss": "mean", "norm": "sum"})
    cluster.send(0, 1, ONE, loss=4.0)
    cluster.send(1, 1, ONE)
    assert common_scalars(cluster) == {"loss": 4.0}
    for rank in (0, 1):
        cluster.send(rank, 2, ONE)
    assert common_scalars(cluster) == {}  # not what was said a round ago


def test_common_scalars_that_differ_abort_the_run() -> None:
    cluster = MemoryServers(2, [0.0], scalars={"cooling_rate": "common"})
    for rank in (0, 1):
        cluster.send(rank, 1, ONE)
    assert not cluster.status()["aborted"]  # nobody has said it
    cluster.send(0, 2, ONE, cooling_rate=0.5)
    cluster.send(1, 2, ONE, cooling_rate=0.25)
    text = bytes(cluster.status()["text"]).decode()
    assert text.startswith("worker 1 committed cooling rate 0.25, but worker 0 0.5 to round 2")


def test_scalars_of_asynchronous_commits_combine_the_latest_of_all_members() -> None:
    cluster = MemoryServers(3, [0.0], synchronous=False, scalars={"loss": "mean"})
    cluster.send(0, 1, ONE, loss=2.0)
    assert common_scalars(cluster) == {"loss": 2.0}
    cluster.send(1, 1, ONE, loss=6.0)
    assert common_scalars(cluster) == {"loss": 4.0}
    cluster.send(0, 2, ONE, loss=4.0)
    assert common_scalars(cluster) == {"loss": 5.0}
    cluster.say(wire.LEAVE, 1)
    assert common_scalars(cluster) == {"loss": 4.0}


def test_rule_step_has_the_scalars_and_the_numbers_of_commits_and_slots() -> None:
    seen = []

    def note(weights: Any, value: Any, state: Any, step: Any) -> Any:
        seen.append((step.count, step.workers, dict(step.scalars)))
        return weights + value, state

    cluster = MemoryServers(3, [0.0], rule=note, scalars={"loss": "mean", "norm": "sum"})
    cluster.drop(2)
    cluster.send(0, 1, ONE, loss=2.0, norm=1.0)
    cluster.send(1, 1, ONE, loss=4.0, norm=5.0)
    cluster.send(0, 2, ONE, loss=7.0, norm=8.0, use=wire.AT_ONCE)
    assert seen == [(2, 3, {"loss": 3.0, "norm": 6.0}), (1, 3, {"loss": 7.0, "norm": 8.0})]


def test_scalars_with_reserved_name_or_unknown_combination_are_refused() -> None:
    with pytest.raises(ValueError, match="a scalar cannot be named 'pace': messages have a field of that name"):
        Specification("sgd", True, scalars={"pace": "mean"})
    with pytest.raises(ValueError, match="'loss' is to be combined by 'median', but should be by one of common, mean"):
        Specification("sgd", True, scalars={"loss": "median"})


def test_message_does_not_depend_on_the_order_of_the_scalars() -> None:
    assert wire.message_type(["b", "a"]) == wire.message_type(["a", "b"])
