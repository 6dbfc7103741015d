import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esync.data import Batches

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (100, 4, 5), dtype=np.uint8)
NUMBERS = np.arange(100)  # as labels they tell which samples a batch holds

SHARES = st.lists(st.integers(0, 99), min_size=1, max_size=40, unique=True).map(np.array)
SIZES = st.integers(1, 60)


def numbers(batches, count):
    return [next(batches)[1].astype(int).tolist() for _ in range(count)]


@given(SHARES, SIZES, st.integers(0, 99))
def test_batches_visit_each_sample_once_per_epoch(share, batch_size, seed):
    batches = Batches(IMAGES, NUMBERS, share, batch_size, seed)
    stream = np.concatenate(numbers(batches, 2 + 3 * len(share) // batch_size))
    assert len(stream) >= 3 * len(share)
    for epoch in range(3):
        visited = stream[epoch * len(share) : (epoch + 1) * len(share)]
        assert sorted(visited.tolist()) == sorted(share.tolist())


@given(SHARES, SIZES, st.integers(0, 10), st.integers(1, 5))
def test_batches_restored_continue_the_same_stream(share, batch_size, before, after):
    batches = Batches(IMAGES, NUMBERS, share, batch_size, seed=3)
    numbers(batches, before)
    state = json.loads(json.dumps(batches.state()))
    expected = numbers(batches, after)
    resumed = Batches(IMAGES, NUMBERS, share, batch_size, seed=3)
    numbers(resumed, 2)  # wherever it was, restore moves it
    resumed.restore(state)
    assert numbers(resumed, after) == expected


def test_batches_without_a_seed_have_the_order_of_the_share_in_every_epoch():
    share = np.array([7, 3, 9, 1])
    batches = Batches(IMAGES, NUMBERS, share, 3, seed=None)
    assert numbers(batches, 4) == [[7, 3, 9], [1, 7, 3], [9, 1, 7], [3, 9, 1]]


def test_batches_images_are_float32_in_0_to_1_with_channel_and_float_labels():
    images, labels = next(Batches(IMAGES, NUMBERS, np.arange(100), batch_size=64, seed=0))
    assert images.shape == (64, 1, 4, 5)
    assert images.dtype == labels.dtype == np.float32
    assert labels.shape == (64,)
    for image, number in zip(images, labels.astype(int), strict=True):
        np.testing.assert_array_equal(image[0], IMAGES[number].astype(np.float32) / np.float32(255))


def test_batches_order_depends_on_seed_and_epoch_only():
    share = np.arange(100)
    epochs = numbers(Batches(IMAGES, NUMBERS, share, 100, seed=0), 3)
    assert epochs == numbers(Batches(IMAGES, NUMBERS, share, 100, seed=0), 3)
    other_epochs = numbers(Batches(IMAGES, NUMBERS, share, 100, seed=1), 3)
    ranks = [numbers(Batches(IMAGES, NUMBERS, share, 100, seed=(0, rank)), 1)[0] for rank in (1, 2)]
    orders = [*epochs, *other_epochs, *ranks]
    assert len({tuple(order) for order in orders}) == len(orders)


def test_batches_are_copies_of_the_data():
    images, labels = next(Batches(IMAGES, NUMBERS, np.arange(10), 10, seed=0))
    before = IMAGES.copy()
    images[:], labels[:] = 0, 0
    np.testing.assert_array_equal(IMAGES, before)
    np.testing.assert_array_equal(NUMBERS, np.arange(100))


def test_batches_without_samples_or_with_batch_size_0_are_refused():
    with pytest.raises(ValueError, match="without samples"):
        Batches(IMAGES, NUMBERS, np.array([], int), 10, seed=0)
    with pytest.raises(ValueError, match="batch size 0"):
        Batches(IMAGES, NUMBERS, np.arange(10), 0, seed=0)


@pytest.mark.parametrize("state", [(0, 11), (0, -1), (-1, 0)])
def test_batches_restore_from_another_share_is_refused(state):
    batches = Batches(IMAGES, NUMBERS, np.arange(10), 4, seed=0)
    with pytest.raises(ValueError, match="another partition"):
        batches.restore({"epoch": state[0], "position": state[1]})
