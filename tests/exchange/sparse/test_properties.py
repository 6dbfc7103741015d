"""Properties of sparse exchanges: selection, wire format, compressors."""

import copy
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from esync.exchange.codecs.sparse import bounds_of
from esync.exchange.codecs.sparse.changed_values import ChangeTracker
from esync.exchange.codecs.sparse.compressors import DeepGradientCompression, GradientDropping, SAMomentum
from esync.exchange.codecs.sparse.message_format import BITS, GAPS, HEADER, INDEX_CODES, MessageFormat
from esync.exchange.codecs.sparse.selection import Selection, keep_count, top_k
from esync.exchange.codecs.sparse_messages import pieces, size_classes

#: Values whose sums are exact in float32.
EXACT = st.integers(-(2**9), 2**9).map(lambda number: number / 64)
FINITE = st.floats(-1e6, 1e6, width=32)
quick = settings(max_examples=40, deadline=None)


@quick
@given(arrays(np.float32, st.integers(1, 200), elements=st.one_of(EXACT, FINITE)), st.integers(1, 220))
def test_top_k_selects_the_k_largest_lowest_indices_first(values: np.ndarray, k: int) -> None:
    order = sorted(range(values.size), key=lambda place: (-abs(values[place]), place))
    expected = sorted(place for place in order[:k] if values[place])
    assert top_k(values, k).tolist() == expected


@pytest.mark.parametrize("kind", ["normal", "equal", "few", "cauchy"])
def test_top_k_of_large_tensors_is_exact(kind: str) -> None:
    rng, size = np.random.default_rng(3), 200_000
    values = {
        "normal": rng.standard_normal(size),
        "equal": np.ones(size),
        "few": np.where(rng.random(size) < 0.001, 1.0, 0.0),
        "cauchy": rng.standard_cauchy(size),
    }[kind].astype(np.float32)
    k = 2000
    expected = np.lexsort((np.arange(size), -np.abs(values)))[:k]
    assert top_k(values, k).tolist() == sorted(place for place in expected.tolist() if values[place])


def test_keep_count_follows_ratio_and_smallest_tensor() -> None:
    assert [keep_count(size, 0.01, 0) for size in (1, 99, 100, 199, 200, 11_000_000)] == [1, 1, 1, 1, 2, 110_000]
    assert keep_count(1000, 0.01, 1024) == 1000
    assert keep_count(1024, 0.01, 1024) == 10


@quick
@given(
    st.lists(st.integers(1, 700), min_size=1, max_size=6),
    st.floats(0, 1),
    st.sampled_from(["float32", "float16"]),
    st.integers(0, 2**16),
)
def test_sparse_codec_round_trip_keeps_every_value(sizes: list[int], density: float, kind: str, seed: int) -> None:
    rng, bounds = np.random.default_rng(seed), bounds_of(sizes)
    dense = np.where(rng.random(bounds[-1]) < density, rng.standard_normal(bounds[-1]), 0).astype(np.float32)
    dense = dense.astype(np.float16).astype(np.float32)
    places = np.flatnonzero(dense)
    message_format = MessageFormat(bounds, kind)
    message = message_format.message((places, dense[places])).whole()
    indices, values = message_format.decode(np.concatenate([message, np.zeros(int(rng.integers(0, 9)), np.uint8)]))
    arrived = np.zeros_like(dense)
    arrived[indices] = values
    assert arrived.tobytes() == dense.tobytes()
    assert message.size <= 8 + 4 * len(sizes) + (4 if kind == "float32" else 2) * dense.size + dense.size // 255 + 8


def test_sparse_codec_chooses_bitmap_where_shorter() -> None:
    message_format = MessageFormat(bounds_of([1000]))
    few, many = np.arange(0, 1000, 10), np.arange(0, 1000, 5)
    kinds = [
        message_format.message((indices, np.ones(indices.size, np.float32))).parts[0].view(HEADER)["indices"][0]
        for indices in (few, many)
    ]
    assert [INDEX_CODES[kind] for kind in kinds] == [GAPS, BITS]


@quick
@given(st.integers(0, 5_000_000), st.integers(64, 1_000_000))
def test_pieces_are_fewest_with_little_padding(elements: int, maximum: int) -> None:
    sizes = size_classes(maximum)
    cut = [sizes[piece] for piece in pieces(elements, maximum)]
    assert len(cut) == max(1, -(-elements // maximum))
    remainder = elements - sum(cut[:-1])
    assert 0 <= remainder <= cut[-1]
    assert cut[-1] == sizes[0] or cut[-1] <= 2**0.5 * remainder + 2


steps = st.lists(arrays(np.float32, 24, elements=EXACT), min_size=1, max_size=6)


@quick
@given(steps, st.sampled_from([0.1, 0.5, 1.0]), st.sampled_from(["float32", "float16"]))
def test_gradient_dropping_sent_plus_rest_equals_sum(gradients: list[np.ndarray], ratio: float, kind: str) -> None:
    compressor = GradientDropping(Selection([20, 4], ratio, 0), kind)
    sent, total = np.zeros(24, np.float32), np.zeros(24, np.float32)
    for gradient in gradients:
        total += np.float32(0.5) * gradient
        places, values = compressor.compress(gradient.copy(), 0.5)
        sent[places] += values
    assert (sent + compressor.residual).tobytes() == total.tobytes()


@quick
@given(steps)
def test_compressors_with_everything_sent_equal_their_dense_counterparts(gradients: list[np.ndarray]) -> None:
    def everything() -> Selection:
        return Selection([20, 4], 1.0)

    dropping, dgs = GradientDropping(everything()), SAMomentum(everything())
    dgc = DeepGradientCompression(everything())
    velocity = np.zeros(24, np.float32)
    for gradient in gradients:
        velocity = np.float32(0.5) * velocity + np.float32(0.25) * gradient
        expected = [(dropping, 0.25 * gradient), (dgs, velocity), (dgc, 0.25 * gradient)]  # DGC forgets what it sends
        for compressor, dense in expected:
            step = np.zeros(24, np.float32)
            places, values = compressor.compress(gradient.copy(), 0.25, 0.5)
            step[places] = values
            np.testing.assert_array_equal(step, dense)


@pytest.mark.parametrize("kind", [GradientDropping, SAMomentum, DeepGradientCompression])
def test_compressors_restored_continue_bit_for_bit(kind) -> None:
    """Also in the middle of a warm-up; a state with a missing entry is refused."""
    rng = np.random.default_rng(2)
    options = {"workers": 2, "warm_up": 8} if kind is DeepGradientCompression else {}

    def make():
        return kind(Selection([300, 20], 0.02, 0), "float16", **options)

    def steps(compressor, gradients):
        return [part.tobytes() for gradient in gradients for part in compressor.compress(gradient.copy(), 0.1, 0.5)]

    gradients = list(rng.standard_normal((10, 320)).astype(np.float32))
    reference, resumed = make(), make()
    steps(reference, gradients[:5])
    resumed.restore(copy.deepcopy(reference.state()))
    assert steps(resumed, gradients[5:]) == steps(reference, gradients[5:])
    for missing in reference.state():
        crippled = make()
        with pytest.raises(KeyError, match=missing):
            crippled.restore({name: value for name, value in reference.state().items() if name != missing})


def test_dgc_warm_up_falls_to_its_ratio_and_clips() -> None:
    compressor = DeepGradientCompression(Selection([1000], 0.01, 0), clip=2.0, workers=4, warm_up=8)
    counts = [compressor.compress(np.full(1000, 9.0, np.float32), 1.0, 0.0)[0].size for _ in range(10)]
    assert counts == [398, 398, 158, 158, 63, 63, 25, 25, 10, 10]
    clipped = DeepGradientCompression(Selection([4], 1.0), clip=2.0, workers=4)
    _, values = clipped.compress(np.float32([3, 0, 4, 0]), 1.0, 0.0)
    assert np.linalg.norm(values) == pytest.approx(1.0)


@quick
@given(st.lists(st.integers(1, 300), min_size=1, max_size=5), st.floats(0, 1), st.integers(1, 4), st.integers(0, 2**16))
def test_change_tracker_sends_new_values_wherever_something_changed(
    sizes: list[int], density: float, parts: int, seed: int
) -> None:
    rng, total = np.random.default_rng(seed), sum(sizes)
    offsets = np.unique([0, *rng.integers(0, total, parts - 1), total]).astype(np.int64)
    message_format = MessageFormat(np.unique([*bounds_of(sizes), *offsets]))
    tracker = ChangeTracker(message_format, offsets, 1)
    weights = rng.standard_normal(total).astype(np.float32)
    theta = weights.copy()
    for part, (first, last) in enumerate(pairwise(offsets)):
        tracker.bind_weights(part, weights[first:last])
    for _ in range(2):
        changed = np.zeros(0, np.int64)
        for _ in range(2):
            places = np.flatnonzero(rng.random(total) < density)
            weights[places] += rng.standard_normal(places.size).astype(np.float32)
            tracker.changed(places)
            changed = np.union1d(changed, places)
        indices, values = message_format.decode(tracker.answer(0).whole())
        assert set(changed) <= set(indices.tolist())
        assert indices.size <= 1.25 * changed.size  # segments that are shorter when they are dense
        theta[indices] = values
        assert theta.tobytes() == weights.tobytes()
