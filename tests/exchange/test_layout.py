from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from esync import config
from esync.exchange.protocol.layout import STATISTICS, WEIGHTS, Layout

layouts = st.builds(
    Layout,
    st.builds(
        lambda weights, statistics, further: {STATISTICS: statistics, WEIGHTS: weights, **further},
        st.integers(1, 200),
        st.integers(0, 100),
        st.dictionaries(st.sampled_from(["control", "moments"]), st.integers(0, 100)),
    ),
    servers=st.integers(1, 7),
    bucket_elements=st.integers(1, 60),
)


@given(layouts, st.integers(0, 6))
def test_layout_puts_every_value_in_one_bucket_with_keys_of_its_own(layout, workers):
    """Buckets are small enough, and spread evenly over the servers."""
    counts = [0] * layout.servers
    covered = {vector: [] for vector in layout.sizes}
    for place, bucket in enumerate(layout.buckets):
        assert bucket.index == place
        assert 0 < bucket.stop - bucket.start <= layout.bucket_elements
        covered[bucket.vector] += range(bucket.start, bucket.stop)
        counts[bucket.shard] += 1
    assert covered == {vector: list(range(size)) for vector, size in layout.sizes.items()}
    assert max(counts) - min(counts) <= 1
    for shard in range(layout.servers):
        mine = [bucket for bucket in layout.buckets if bucket.shard == shard]
        assert [bucket.slot for bucket in mine] == list(range(len(mine)))
        assert layout.mailbox_elements(shard) == max((bucket.stop - bucket.start for bucket in mine), default=1)
    keys = [key(shard) for key in (layout.status_key, layout.mailbox_key) for shard in range(layout.servers)]
    for place, key in enumerate(keys):
        assert key % layout.servers == place % layout.servers
    for channel in range(workers + 1):
        for bucket in layout.buckets:
            key = layout.key(bucket, channel)
            assert key % layout.servers == bucket.shard
            assert layout.locate(key) == (channel, bucket)
            keys.append(key)
    assert len(set(keys)) == len(keys)


def test_layout_buckets_are_as_large_as_config_says():
    layout = Layout({WEIGHTS: config.BUCKET_ELEMENTS + 1}, servers=1)
    assert [b.stop - b.start for b in layout.buckets] == [config.BUCKET_ELEMENTS, 1]


def test_layout_is_independent_of_the_order_of_vectors():
    """Workers may name the same vectors in different orders and must get the same keys."""
    sizes = {WEIGHTS: 5, "control": 5, STATISTICS: 2}
    layouts = [Layout(dict(order), servers=2, bucket_elements=2) for order in permutations(sizes.items())]
    assert [bucket.vector for bucket in layouts[0].buckets] == [WEIGHTS] * 3 + ["control"] * 3 + [STATISTICS]
    assert all(layout.buckets == layouts[0].buckets for layout in layouts)
