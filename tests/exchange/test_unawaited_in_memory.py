"""Workers that rounds do not wait for, over two servers in memory."""

import numpy as np
import pytest

from esync.exchange import WEIGHTS, Control, Payload, Specification, Use

from ..support.memory_exchanges import MemoryExchanges


def side(codec: str = "none", workers: int = 3) -> MemoryExchanges:
    specification = Specification("add_mean_update", True, compression=codec, tensors=[8], weighting="samples")
    return MemoryExchanges(specification, workers, np.zeros(8, np.float32), 2, 4)


@pytest.mark.parametrize("codec", ["none", "fp16", "2bit"])
def test_unawaited_update_is_added_when_it_comes_and_its_worker_catches_up(codec: str) -> None:
    cluster = side(codec)
    fast, other, slow = cluster.workers
    slow.spawn(slow.exchange.step_aside)
    for _ in range(3):
        cluster.round([fast, other])
    assert (fast.result.round, fast.result.aside) == (3, (2,))
    slow.send(np.full(8, 4.0), use=Use.UNAWAITED)
    cluster.round([fast, other])
    slow.fetch()
    assert (slow.result.round, slow.result.used) == (4, True)
    assert cluster.agrees_with(slow, fast)
    if codec in ("none", "fp16"):
        np.testing.assert_array_equal(fast.weights, np.full(8, 3 + 6 / 3, np.float32))
    slow.send(np.full(8, 1.0), use=Use.BACK)
    cluster.round([fast, other])
    slow.fetch()
    for worker in (fast, other):
        worker.send()
    assert cluster.states("rounds_together") == [5, 5]  # they wait for it again
    slow.send()
    for worker in (fast, other, slow):
        worker.fetch()
    assert slow.result.round == 6
    assert slow.weights.tobytes() == fast.weights.tobytes()


def test_resting_worker_takes_over_the_model_without_sending_anything() -> None:
    cluster = side("fp16")
    fast, other, slow = cluster.workers
    slow.spawn(lambda: slow.exchange.step_aside(resting=True))
    cluster.round([fast, other])
    assert fast.result.resting == other.result.resting == (2,)
    sent: list[np.ndarray] = []
    slow.before_sending(lambda server, arrays, message: sent.extend(arrays))
    payload = Payload({}, 0, 1.0, control=Control(Use.DISCARD), requested={WEIGHTS})
    slow.spawn(lambda: slow.exchange.start(payload, slow).wait())
    cluster.cluster.run()
    assert not sent
    assert slow.weights.tobytes() == fast.weights.tobytes()


@pytest.mark.parametrize("resting", [False, True])
def test_rounds_go_on_with_those_aside_when_all_others_are_gone(resting: bool) -> None:
    cluster = side()
    _, other, slow = cluster.workers
    slow.spawn(slow.exchange.step_aside)
    other.spawn(lambda: other.exchange.step_aside(resting=resting))
    cluster.cluster.run()
    slow.send(use=Use.UNAWAITED)
    cluster.drop(0)
    if not resting:  # it is the first of those aside
        other.send(use=Use.UNAWAITED)
        other.fetch()
        slow.send(use=Use.UNAWAITED) if slow.result.round == 1 else None
    assert cluster.states("rounds_together") == [1, 1]
