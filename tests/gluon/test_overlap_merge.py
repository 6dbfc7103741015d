"""Merging an answer into weights and statistics that have changed during the exchange."""

import numpy as np
import pytest

from esync import config
from esync.exchange import STATISTICS, WEIGHTS
from esync.gluon.replica import Replica
from esync.runtime.mxnet_import import mx

KEPT = config.OVERLAP_STATISTICS_MOMENTUM
FIXED = (1, 1, 0, 0)


def make_replica(dtype="float32"):
    """Make a replica of three weights, and of statistics.

    The statistics are two running means and two variances, after four values that never change.
    """
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Dense(1, in_units=2), mx.gluon.nn.BatchNorm(in_channels=2, center=False, scale=False))
    net.initialize()
    net.cast(dtype)
    replica = Replica(list(net.collect_params().values()), lambda batch_size: None)
    replica.keep_anchor()
    replica.enable_overlap()
    replica.open()
    put(replica.weights, [1, 2, 3])
    put(replica.statistics, [*FIXED, 0, 0, 5, 5])
    replica.anchor[:] = [1, 2, 2]  # the last step has moved one of them
    return replica


def put(arrays, values):
    arrays.write(0, np.float32(values))


def get(source):
    out = np.empty(source.size, np.float32)
    source.read(0, source.size, out)
    return out.tolist()


def test_overlap_merge_keeps_progress_since_the_push_and_sends_it_once():
    replica = make_replica()
    assert get(replica.update()) == [0, 0, 1]  # what is pushed
    merge = replica.begin_overlap()
    put(replica.weights, [1.5, 2, 7])  # local iterations: +0.5, 0, +4
    merge.iterations = 2
    merge.write(WEIGHTS, 0, np.float32([10, 20]))
    merge.write(WEIGHTS, 2, np.float32([30]))
    assert get(replica.weights) == [10.5, 20, 34]
    assert get(replica.update()) == [0.5, 0, 4]  # the next update has it, on top of what follows
    assert get(replica.common[0]) == [10, 20, 30]


@pytest.mark.parametrize("iterations", [1, 3, 100])
def test_overlap_merge_decays_received_statistics_as_batch_norm_does(iterations):
    replica = make_replica()
    merge = replica.begin_overlap()
    put(replica.statistics, [*FIXED, 1, 1, 0.5, 0.5])  # a variance has fallen from 5
    merge.iterations = iterations
    merge.write(STATISTICS, 0, np.float32([*FIXED, 2, 1, 4, 0.5]))
    share = KEPT**iterations
    assert get(replica.statistics) == pytest.approx([*FIXED, 1 + share, 1, 0.5 + 3.5 * share, 0.5], rel=1e-6)
    assert min(get(replica.statistics)[6:]) > 0
    assert get(replica.common[1]) == [*FIXED, 2, 1, 4, 0.5]


def test_overlap_merge_discarded_at_the_end_leaves_the_common_model():
    replica = make_replica()
    merge = replica.begin_overlap()
    put(replica.weights, [9, 9, 9])
    merge.iterations = 5
    merge.write(WEIGHTS, 0, np.float32([10, 20, 30]))
    merge.write(STATISTICS, 0, np.float32([*FIXED, 2, 1, 4, 0.5]))
    merge.discard()
    assert get(replica.weights) == [10, 20, 30]
    assert get(replica.statistics) == [*FIXED, 2, 1, 4, 0.5]


def test_overlap_merge_counts_from_the_second_push():
    replica = make_replica()
    for _ in range(2):
        merge = replica.begin_overlap()
        put(replica.weights, np.float32(get(replica.weights)) + 1)
        merge.iterations = 1
        merge.write(WEIGHTS, 0, np.float32([10, 20, 30]))
        assert get(replica.weights) == [11, 21, 31]


def test_overlap_merge_of_float16_weights_adds_progress():
    replica = make_replica("float16")
    merge = replica.begin_overlap()
    put(replica.weights, [1.5, 2, 7])
    merge.write(WEIGHTS, 0, np.float32([10, 20, 30]))
    replica.close()
    replica.open()
    assert get(replica.weights) == [10.5, 20, 34]


def test_overlap_merge_does_not_count_float16_rounding_as_progress():
    """Without a local iteration the next update is zero, however the common model is rounded."""
    replica = make_replica("float16")
    for common in (1.0001, 1.0002, 1.0003):
        merge = replica.begin_overlap()
        merge.write(WEIGHTS, 0, np.full(3, common, np.float32))
        replica.close()
        replica.open()
        assert get(replica.update()) == [0, 0, 0]
        assert get(replica.common[0]) == get(replica.weights) == [1, 1, 1]


def test_overlap_resumed_worker_is_as_far_ahead_as_before():
    replica = make_replica()
    replica.anchor[:] = [1, 2, 3]
    replica.keep_common()
    put(replica.weights, [1.5, 2, 7])
    put(replica.statistics, [*FIXED, 1, 1, 4, 4])
    assert get(replica.update()) == [0.5, 0, 4]
    assert [get(vector) for vector in replica.common] == [[1, 2, 3], [*FIXED, 0, 0, 5, 5]]
    replica.close()
    with replica.holding(replica.common):
        replica.open()
        assert (get(replica.weights), get(replica.statistics)) == ([1, 2, 3], [*FIXED, 0, 0, 5, 5])
        replica.close()
    replica.open()
    assert (get(replica.weights), get(replica.statistics)) == ([1.5, 2, 7], [*FIXED, 1, 1, 4, 4])
    assert get(replica.update()) == [0.5, 0, 4]
