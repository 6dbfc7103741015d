"""Properties of the quantizing codecs: sizes, rounding, error feedback, refusals."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from esync.exchange.codecs.quantization import FOUR_BIT, FP16, TWO_BIT, CompressionError, Quantizer, quantizer_of
from esync.exchange.codecs.quantization.float16_conversion import (
    NATIVE,
    half_by_integers,
    half_by_processor,
    value_by_integers,
    value_by_processor,
)

KINDS = [FP16, FOUR_BIT, TWO_BIT]
quick = settings(max_examples=60, deadline=None)


def drawn(seed: int, size: int, spread: float, scale: float) -> np.ndarray:
    """Values of several orders of magnitude, some of them zero."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(size) * 10.0 ** rng.uniform(-spread, spread, size) * scale
    return np.where(rng.random(size) < 0.1, 0, values).astype(np.float32)


@quick
@given(
    st.sampled_from(KINDS),
    st.lists(st.integers(0, 700), max_size=5),
    st.integers(0, 2**16),
    st.floats(0, 2),
    st.sampled_from([1.0, 1e-7, 1e-30, 1e20]),
)
def test_codec_sent_plus_residual_equals_input(
    kind: str, sizes: list[int], seed: int, spread: float, scale: float
) -> None:
    values = drawn(seed, sum(sizes), spread, scale)
    quantizer = quantizer_of(kind, sizes)
    residual, packed = values.copy(), np.full(quantizer.elements, np.nan, np.float32)
    quantizer.pack(residual, packed)
    sent = np.zeros_like(values)
    quantizer.add(packed, sent)
    np.testing.assert_array_equal(sent + residual, values)
    exact = sent.astype(np.float64) + residual.astype(np.float64)
    np.testing.assert_array_equal(exact, values.astype(np.float64))
    if kind == FP16 and values.any() and scale > 1e-20:  # rounded to nearest, and scaled to the end of the range
        unit = packed[0]
        np.testing.assert_array_equal(sent, (values / unit).astype(np.float16).astype(np.float32) * unit)
        assert 2**14 <= np.abs(values).max() / unit < 2**15
    if np.abs(values).max(initial=0) > 1e-20:  # the smallest values are not sent
        assert np.abs(residual).sum(dtype=np.float64) < np.abs(values).sum(dtype=np.float64)


def test_half_conversion_rounds_every_half_and_tie_as_numpy_does() -> None:
    halves = np.arange(0x7C00, dtype=np.uint16)
    exact = halves.view(np.float16).astype(np.float32)
    ties = (exact[:-1] + exact[1:]) / np.float32(2)
    sizes = np.concatenate([exact, ties, np.nextafter(ties, np.float32(0)), np.nextafter(ties, np.float32(1e9))])
    values = np.concatenate([sizes, -sizes])
    expected = values.astype(np.float16)
    ways = [(half_by_integers, value_by_integers)]
    ways += [(half_by_processor, value_by_processor)] if NATIVE else []
    for half, value in ways:
        bits = njit(lambda array, half=half: [half(one) for one in array])(values)
        assert np.array(bits, np.uint16).tobytes() == expected.tobytes()
        numbers = njit(lambda array, value=value: [value(np.uint32(one)) for one in array])(expected.view(np.uint16))
        assert np.array(numbers, np.float32).tobytes() == expected.astype(np.float32).tobytes()


@quick
@given(
    st.sampled_from([FP16, FOUR_BIT]),
    st.integers(0, 2**16),
    st.integers(1, 800),
    st.sampled_from([1.0, 1e-7, 1e-30, 1e20]),
)
def test_codec_with_fused_passes_gives_the_same_bits(name: str, seed: int, size: int, scale: float) -> None:
    one, other = drawn(seed, size, 1, scale), drawn(seed + 1, size, 1, scale)
    quantizer = quantizer_of(name, [size])
    results = []
    for kind in (Quantizer, type(quantizer)):
        packed = [np.full(quantizer.elements, np.nan, np.float32) for _ in range(2)]
        residual, put, common = one.copy(), np.full(size, np.nan, np.float32), other.copy()
        kind.pack_with(quantizer, residual, other, packed[0])
        kind.put(quantizer, packed[0], put)
        kind.step(quantizer, one, common, packed[1])
        results.append([array.tobytes() for array in (residual, put, common, *packed)])
    assert results[0] == results[1]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("size", [0, 1, 3, 4, 1001, 1024])
def test_codec_packs_into_the_stated_size(kind: str, size: int) -> None:
    """A half, an eighth or a sixteenth of the bytes, and one number more for the bucket, or for 256 values."""
    quantizer = quantizer_of(kind, [size])
    numbers, values_in_number = {FP16: (1, 2), FOUR_BIT: (-(-size // 256), 8), TWO_BIT: (1, 16)}[kind]
    assert quantizer.elements == numbers + -(-size // values_in_number)
    values, packed = np.ones(size, np.float32), np.zeros(quantizer.elements, np.float32)
    quantizer.pack(values, packed)
    quantizer.add(packed, values)
    np.testing.assert_array_equal(values, 1)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("wrong", [np.inf, -np.inf, np.nan])
def test_codec_with_nan_or_inf_is_refused(kind: str, wrong: float) -> None:
    values = np.ones(40, np.float32)
    values[17] = wrong
    quantizer = quantizer_of(kind, [40])
    with pytest.raises(CompressionError, match="diverged"):
        quantizer.pack(values, np.zeros(quantizer.elements, np.float32))


@quick
@given(st.integers(0, 2**16), st.integers(1, 800), st.floats(0, 2))
def test_four_bit_codec_rounds_to_half_a_unit_of_each_block(seed: int, size: int, spread: float) -> None:
    """An outlier makes its own block coarse, and no other."""
    values = drawn(seed, size, spread, 1.0)
    quantizer = quantizer_of(FOUR_BIT, [size])
    residual, packed = values.copy(), np.zeros(quantizer.elements, np.float32)
    quantizer.pack(residual, packed)
    for first in range(0, size, 256):
        block = slice(first, first + 256)
        largest = np.abs(values[block]).max()
        assert packed[first // 256] == pytest.approx(largest / 7, rel=0.01)
        assert np.abs(residual[block]).max() <= 0.5001 * packed[first // 256]
        assert largest == 0 or np.abs((values - residual)[block]).max() >= 0.98 * largest


def test_two_bit_codec_scales_each_tensor_and_converges_by_error_feedback() -> None:
    rng = np.random.default_rng(5)
    values = np.concatenate([rng.standard_normal(1000) * size for size in (1e-6, 1.0)]).astype(np.float32)
    quantizer = quantizer_of(TWO_BIT, [1000, 1000])
    packed, residual, got = np.zeros(quantizer.elements, np.float32), np.zeros(2000, np.float32), np.zeros(2000)
    for _ in range(60):
        residual += values
        quantizer.pack(residual, packed)
        sent = np.zeros(2000, np.float32)
        quantizer.add(packed, sent)
        got += sent
    for part in (slice(0, 1000), slice(1000, 2000)):
        assert np.abs(got[part] / 60 - values[part]).mean() < 0.05 * np.abs(values[part]).mean()
