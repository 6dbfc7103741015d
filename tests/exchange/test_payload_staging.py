import numpy as np
import pytest

from esync.exchange.protocol.payload_staging import HostMemory, PayloadStaging, RankOrderedSum
from esync.rules import Step, sgd


@pytest.fixture
def memory() -> HostMemory:
    return HostMemory()


@pytest.fixture
def staging(memory) -> PayloadStaging:
    return PayloadStaging(memory)


def ones(count: int = 4, value: float = 1.0) -> np.ndarray:
    return np.full(count, value, np.float32)


# --- memory ---------------------------------------------------------------------------------------


def test_host_memory_reuses_released_arrays(memory):
    first = memory.stage(values := ones(10))
    values.fill(9)
    assert np.array_equal(first, ones(10))  # it is a copy
    memory.release([first])
    assert memory.stage(ones(10, 2.0)) is first
    assert np.array_equal(first, ones(10, 2.0))
    assert memory.stage(ones(10)) is not first


def test_host_memory_assigns_pulled_values_in_place(memory):
    kept = ones()
    weights, state = memory.update(sgd, memory.to_array(kept), ones(value=6.0), None, Step(0.5, momentum=0.9), 3)
    assert weights is kept
    assert np.array_equal(memory.fetch(kept), ones(value=0.0))
    assert np.array_equal(state, ones(value=-1.0))


# --- staging --------------------------------------------------------------------------------------


def test_staging_payload_is_complete_with_all_buckets_each_counted_once(staging, memory):
    for _ in range(2):
        staging.put(0, 1, 1, bucket=3, values=ones())
    staging.put(1, 1, 1, bucket=5, values=ones(value=3.0))
    assert not staging.complete(0, 1, 1, buckets=2)
    assert memory.staged_bytes == 32
    staging.put(0, 1, 1, bucket=5, values=ones(value=2.0))
    assert staging.complete(0, 1, 1, buckets=2)
    assert {bucket: values[0] for bucket, values in staging.pop(0).items()} == {3: 1.0, 5: 2.0}
    assert staging.pop(1)[5][0] == 3.0


@pytest.mark.parametrize(("nonce", "sequence"), [(2, 1), (1, 2)])
def test_staging_bucket_of_another_payload_replaces_the_unfinished_one(staging, memory, nonce, sequence):
    staging.put(0, 1, 1, bucket=0, values=ones())
    assert not staging.complete(0, nonce, sequence, buckets=1)
    staging.put(0, nonce, sequence, bucket=1, values=ones(value=3.0))
    assert staging.complete(0, nonce, sequence, buckets=1)
    assert not staging.complete(0, nonce, sequence, buckets=2)
    assert not staging.complete(0, 1, 1, buckets=1)
    assert memory.staged_bytes == 16
    assert list(staging.pop(0)) == [1]


def test_staging_late_bucket_of_the_payload_before_does_not_discard_the_next(staging, memory):
    staging.put(0, 1, 2, bucket=0, values=ones())
    staging.put(0, 1, 1, bucket=1, values=ones())
    staging.put(0, 1, 2, bucket=1, values=ones())
    assert staging.complete(0, 1, 2, buckets=2)
    assert memory.staged_bytes == 2 * ones().nbytes


def there(*ranks: int) -> np.ndarray:
    """Which ranks are members."""
    return np.isin(np.arange(max(ranks) + 1), ranks)


# --- sum ------------------------------------------------------------------------------------------


def test_rank_ordered_sum_keeps_values_until_their_turn(memory):
    adding = RankOrderedSum(memory)
    adding.put(2, {0: memory.stage(ones(100))}, there(*range(3)))
    adding.put(1, {0: memory.stage(ones(100))}, there(*range(3)))
    assert memory.staged_bytes == 800
    adding.put(0, {0: memory.stage(ones(100))}, there(*range(3)))
    assert (memory.staged_bytes, memory.peak_bytes) == (400, 1200)
    assert np.array_equal(adding.finish()[0], ones(100, 3.0))


def test_rank_ordered_sum_keeps_order_where_a_worker_left_after_its_commit(memory):
    values = [np.array([value], np.float32) for value in (1e8, 1.0, -1e8)]  # (1e8 + 1) − 1e8 is 0, not 1
    adding = RankOrderedSum(memory)
    adding.put(1, {0: memory.stage(values[1])}, there(0, 1, 2))
    adding.put(0, {0: memory.stage(values[0])}, there(0, 2))
    adding.put(2, {0: memory.stage(values[2])}, there(0, 2))
    assert adding.finish()[0].tolist() == [0.0]
