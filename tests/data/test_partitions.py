import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from esync.data import partition
from esync.data.partitions import (
    PartitionError,
    dirichlet,
    redistribute,
    share_of,
    shuffles,
    uniform,
    with_speeds,
)

LABELS = st.lists(st.integers(0, 9), min_size=1, max_size=300).map(np.array)
SPECS = st.sampled_from(["uniform", "contiguous", "class", "class-sorted"]) | st.floats(1e-12, 1e6).map(
    "dirichlet:{!r}".format
)


@given(SPECS, LABELS, st.integers(1, 12), st.integers(0, 2**32))
def test_partition_puts_every_sample_in_one_share_or_drops_it(spec, labels, parts, seed):
    assume(parts <= len(labels))
    try:
        result = partition(spec, labels, parts, seed)
    except PartitionError:
        assert spec in ("contiguous", "class", "class-sorted")
        assert len(labels) % parts
        return
    assert set(labels[np.concatenate(result.shares)]) == set(labels)
    everything = np.concatenate([*result.shares, result.dropped])
    assert sorted(everything.tolist()) == list(range(len(labels)))
    assert len(result.shares) == parts
    assert all(len(share) for share in result.shares)
    assert all(indices.dtype == np.int64 for indices in [*result.shares, result.dropped])
    if spec == "uniform":
        assert len(max(result.shares, key=len)) - len(min(result.shares, key=len)) <= 1
        assert len(result.dropped) == 0
    again = partition(spec, labels, parts, seed)
    assert [share.tolist() for share in again.shares] == [share.tolist() for share in result.shares]


@given(
    st.sampled_from(["uniform", "contiguous", "class"]), LABELS, st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=9)
)
def test_partition_with_weights_splits_in_proportion_and_drops_nothing(scheme, labels, weights):
    assume(len(weights) <= len(labels))
    result = partition(f"{scheme}:{','.join(map(repr, weights))}", labels, len(weights), 3)
    assert sorted(np.concatenate(result.shares).tolist()) == list(range(len(labels)))
    assert len(result.dropped) == 0
    for share, weight in zip(result.shares, weights, strict=True):
        assert len(share) >= 1
        assert abs(len(share) - 1 - (len(labels) - len(weights)) * weight / sum(weights)) <= 1


def test_partition_by_class_with_weights_gives_slow_workers_little_and_few_classes():
    labels = np.repeat(np.arange(10), 100)
    result = partition("class:117,1,117", labels, 3, 0)
    assert [len(share) for share in result.shares] == [497, 6, 497]
    assert [np.unique(labels[share]).tolist() for share in result.shares] == [[0, 1, 2, 3, 4], [4, 5], [5, 6, 7, 8, 9]]


def test_partition_with_weights_whose_sum_is_no_float_splits_in_proportion():
    shares = partition("uniform:1e308,1e308,1e308", np.zeros(30, int), 3, 0).shares
    assert [len(share) for share in shares] == [10, 10, 10]


def test_partition_with_weights_for_another_number_of_workers_is_refused():
    with pytest.raises(PartitionError, match="weights for 2 workers, but there are 3"):
        partition("class:4,1", np.zeros(10, int), 3, 0)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("class:speed", "class:4,1,2"),
        ("speed", "uniform:4,1,2"),
        ("contiguous:speed", "contiguous:4,1,2"),
        ("class:9,1,1", "class:9,1,1"),
        ("dirichlet:0.3", "dirichlet:0.3"),
    ],
)
def test_partition_by_speed_has_the_speeds_as_weights(spec, expected):
    assert with_speeds(spec, [0.5, 2.0, 1.0]) == expected


def test_partition_by_speed_without_speeds_is_refused_with_what_to_give():
    with pytest.raises(PartitionError, match=r"class:speed takes the devices' speeds .* class:4,4,1 for instance"):
        partition("class:speed", np.zeros(10, int), 3, 0)
    with pytest.raises(ValueError, match="expected uniform"):
        partition("dirichlet:speed", np.zeros(10, int), 3, 0)


def test_contiguous_and_by_class_keep_the_order_of_the_file_and_drop_the_remainder():
    result = partition("contiguous", np.zeros(11, int), 3, 0)
    assert [share.tolist() for share in result.shares] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert result.dropped.tolist() == [9, 10]
    labels = np.random.default_rng(0).integers(0, 3, 1001)
    expected = sorted(range(1001), key=labels.tolist().__getitem__)
    result = partition("class", labels, 4, 0)
    assert np.concatenate(result.shares).tolist() == expected[:1000]
    assert result.dropped.tolist() == expected[1000:]
    kept_in_order = partition("class-sorted", labels, 4, 0)
    assert [share.tolist() for share in kept_in_order.shares] == [share.tolist() for share in result.shares]
    assert [shuffles(spec) for spec in ("class", "class:2,1", "class-sorted", "class-sorted:2,1")] == [
        *(True, True),
        *(False, False),
    ]


@pytest.mark.parametrize("scheme", ["class", "class-sorted", "contiguous"])
def test_partition_that_would_leave_a_whole_class_out_is_refused_with_weights_that_do_not(scheme):
    labels = np.array([0] * 60 + [1] * 40 + [2])
    with pytest.raises(PartitionError, match=rf"every sample of class 2: .* {scheme}:1,1 for instance"):
        partition(scheme, labels, 2, 0)
    assert 2 in labels[partition(f"{scheme}:1,1", labels, 2, 0).shares[1]]
    assert len(partition(scheme, np.append(labels, 2), 2, 0).dropped) == 0
    dropped = partition(scheme, np.append(labels, [2, 2]), 2, 0).dropped  # others of its class are kept
    assert len(dropped) == 1


def test_uniform_shuffles_by_seed():
    first, second = uniform(1000, 2, seed=1), uniform(1000, 2, seed=2)
    assert first.shares[0].tolist() != second.shares[0].tolist()
    assert np.diff(first.shares[0]).min() < 0


def class_counts(result, labels):
    return np.array([np.bincount(labels[share], minlength=10) for share in result.shares])


def test_dirichlet_with_a_large_alpha_mixes_evenly():
    labels = np.repeat(np.arange(10), 600)
    result = dirichlet(labels, 6, alpha=1e6, seed=0)
    assert np.abs(class_counts(result, labels) - 100).max() <= 5
    assert result.shares[0].min() < 300 <= result.shares[0][labels[result.shares[0]] == 0].max()  # of the whole file


def test_dirichlet_with_a_tiny_alpha_gives_whole_classes_and_leaves_no_worker_empty():
    labels = np.repeat(np.arange(10), 50)
    for seed in range(20):
        counts = class_counts(dirichlet(labels, 8, alpha=1e-9, seed=seed), labels)
        donated = (counts.sum(axis=1) == 1).sum()
        assert (counts >= 50 - donated).sum() == 10  # each class is with one worker, but for the donated samples
        assert (counts.sum(axis=1) > 0).all()


def test_dirichlet_skew_falls_with_alpha():
    labels = np.repeat(np.arange(10), 200)

    def largest_part_of_a_class(alpha):
        return np.mean([class_counts(dirichlet(labels, 5, alpha, s), labels).max(axis=0).mean() for s in range(20)])

    assert largest_part_of_a_class(0.05) > largest_part_of_a_class(0.5) > largest_part_of_a_class(5.0) > 40


@pytest.mark.parametrize(
    "spec",
    ["", "Uniform", "uniform:", "class:1,,2", "class:1,0", "contiguous:1,inf", "dirichlet", "dirichlet:x",
     "dirichlet:0", "dirichlet:nan", "dirichlet:1e7", "dirichlet:1:2"],
)  # fmt: skip
def test_partition_with_unknown_specification_is_refused(spec):
    with pytest.raises(
        ValueError, match=r"expected uniform, contiguous, class, class-sorted .*, each .* or dirichlet:ALPHA"
    ):
        partition(spec, np.zeros(10, int), 2, 0)


@pytest.mark.parametrize(
    ("spec", "parts"), [("uniform", 0), ("uniform", 11), ("contiguous", 11), ("class", 11), ("dirichlet:0.3", 11)]
)
def test_partition_with_more_shares_than_samples_or_none_is_refused(spec, parts):
    with pytest.raises(ValueError, match=f"cannot split 10 samples into {parts} shares"):
        partition(spec, np.zeros(10, int), parts, 0)


def test_redistribute_deals_out_shares_of_missing_workers():
    dealt = partition("uniform", np.zeros(1003, np.int64), 4, seed=5)
    again = redistribute(dealt, [0, 3], seed=5)
    assert [len(share) for share in again.shares[1:3]] == [0, 0]
    assert np.array_equal(np.sort(np.concatenate(again.shares)), np.arange(1003))
    for rank in (0, 3):
        assert again.shares[rank][: len(dealt.shares[rank])].tolist() == dealt.shares[rank].tolist()
        assert abs(len(again.shares[rank]) - 1003 / 2) <= 2
    for member in (0, 3):
        assert np.array_equal(redistribute(dealt, (3, 0), seed=5).shares[member], again.shares[member])
    assert redistribute(dealt, range(4), seed=5) is dealt
    assert redistribute(dealt, [], seed=5) is dealt


@pytest.mark.parametrize("spec", ["uniform", "class"])
def test_share_of_resting_workers_is_held_by_the_others_and_by_themselves(spec):
    dealt = partition(spec, np.arange(600) % 6, 6, seed=3)
    shares = [share_of(rank, dealt, range(6), (4, 5), 3) for rank in range(6)]
    assert np.array_equal(np.sort(np.concatenate(shares[:4])), np.arange(600))
    assert [len(share) for share in shares] == [150] * 4 + [100] * 2
    for rank in (4, 5):
        assert np.array_equal(shares[rank], dealt.shares[rank])
    # Rank 3 is gone besides: its share, too, is dealt to those that are left.
    remaining_shares = [share_of(rank, dealt, (0, 1, 2, 4, 5), (4, 5), 3) for rank in range(3)]
    assert np.array_equal(np.sort(np.concatenate(remaining_shares)), np.arange(600))
    assert np.array_equal(share_of(2, dealt, range(6), (), 3), dealt.shares[2])
