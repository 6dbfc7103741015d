"""Properties of the codecs: nothing is lost, all readers get the same bits, and what is wrong is refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from esync.exchange.codecs.quantization import BucketCodec, Compression, CompressionError, codec_of
from esync.exchange.codecs.quantization.float16 import (
    NATIVE,
    half_by_integers,
    half_by_processor,
    value_by_integers,
    value_by_processor,
)

FP16, TWO_BIT = Compression("fp16"), Compression("2bit")
KINDS = [FP16, TWO_BIT]
quick = settings(max_examples=80, deadline=None)


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
def test_sent_and_kept_are_what_was_given(
    kind: Compression, sizes: list[int], seed: int, spread: float, scale: float
) -> None:
    given_ = drawn(seed, sum(sizes), spread, scale)
    codec = codec_of(kind, sizes)
    kept, packed = given_.copy(), np.full(codec.elements, np.nan, np.float32)
    codec.pack(kept, packed)
    sent = np.zeros_like(given_)
    codec.add(packed, sent)
    np.testing.assert_array_equal(sent + kept, given_)
    exact = sent.astype(np.float64) + kept.astype(np.float64)
    np.testing.assert_array_equal(exact, given_.astype(np.float64))
    if np.abs(given_).max(initial=0) > 1e-20:  # the smallest values are not sent
        assert np.abs(kept).sum(dtype=np.float64) < np.abs(given_).sum(dtype=np.float64)


@quick
@given(st.integers(0, 2**16), st.integers(1, 400), st.floats(-8, 8))
def test_float16_is_rounded_to_the_nearest(seed: int, size: int, order: float) -> None:
    values = drawn(seed, size, 0.5, 10.0**order)
    codec = codec_of(FP16, [size])
    kept, packed, sent = values.copy(), np.zeros(codec.elements, np.float32), np.zeros_like(values)
    codec.pack(kept, packed)
    codec.add(packed, sent)
    unit = packed[0]
    np.testing.assert_array_equal(sent, (values / unit).astype(np.float16).astype(np.float32) * unit)
    assert not np.abs(values).max() or 2**14 <= np.abs(values).max() / unit < 2**15


def test_every_half_every_tie_and_what_lies_beside_are_rounded_as_numpy_does() -> None:
    halves = np.arange(0x7C00, dtype=np.uint16)
    exact = halves.view(np.float16).astype(np.float32)
    ties = (exact[:-1] + exact[1:]) / np.float32(2)
    sizes = np.concatenate([exact, ties, np.nextafter(ties, np.float32(0)), np.nextafter(ties, np.float32(1e9))])
    values = np.concatenate([sizes, -sizes])
    expected = values.astype(np.float16)
    ways = [(half_by_integers, value_by_integers)]
    ways += [(half_by_processor, value_by_processor)] if NATIVE else []
    for half, value in ways:
        bits = njit(lambda each, half=half: [half(one) for one in each])(values)
        assert np.array(bits, np.uint16).tobytes() == expected.tobytes()
        said = njit(lambda each, value=value: [value(np.uint32(one)) for one in each])(expected.view(np.uint16))
        assert np.array(said, np.float32).tobytes() == expected.astype(np.float32).tobytes()


@quick
@given(st.integers(0, 2**16), st.integers(1, 400), st.sampled_from([1.0, 1e-7, 1e-30, 1e20]))
def test_fewer_passes_give_the_same_bits(seed: int, size: int, scale: float) -> None:
    one, other = drawn(seed, size, 1, scale), drawn(seed + 1, size, 1, scale)
    codec = codec_of(FP16, [size])
    found = []
    for kind in (BucketCodec, type(codec)):
        packed = [np.full(codec.elements, np.nan, np.float32) for _ in range(2)]
        rest, put, common = one.copy(), np.full(size, np.nan, np.float32), other.copy()
        kind.pack_with(codec, rest, other, packed[0])
        kind.put(codec, packed[0], put)
        kind.step(codec, one, common, packed[1])
        found.append([each.tobytes() for each in (rest, put, common, *packed)])
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("size", [0, 1, 3, 4, 1001, 1024])
def test_sizes(kind: Compression, size: int) -> None:
    """Half of the bytes, or a sixteenth, and one number."""
    codec = codec_of(kind, [size])
    assert codec.elements == 1 + -(-size // (2 if kind == FP16 else 16))
    values, packed = np.ones(size, np.float32), np.zeros(codec.elements, np.float32)
    codec.pack(values, packed)
    codec.add(packed, values)
    np.testing.assert_array_equal(values, 1)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("wrong", [np.inf, -np.inf, np.nan])
def test_values_that_are_no_numbers_are_refused(kind: Compression, wrong: float) -> None:
    values = np.ones(40, np.float32)
    values[17] = wrong
    codec = codec_of(kind, [40])
    with pytest.raises(CompressionError, match="diverged"):
        codec.pack(values, np.zeros(codec.elements, np.float32))


def test_what_no_codec_has_written_changes_nothing() -> None:
    for kind, wrong in ((FP16, [np.nan, 0.3, -1, 0, np.inf]), (TWO_BIT, [np.nan, -1, np.inf])):
        codec = codec_of(kind, [40])
        for unit in wrong:
            packed, target = np.zeros(codec.elements, np.float32), np.ones(40, np.float32)
            packed[0] = unit
            with pytest.raises(CompressionError):
                codec.add(packed, target)
            assert (target == 1).all()
        packed[0] = 1
        packed[1:].view(np.uint8)[:] = 0xFF
        with pytest.raises(CompressionError):
            codec.add(packed, target)
        assert (target == 1).all()


def test_two_bits_adapt_to_each_tensor_and_error_feedback_gets_there() -> None:
    rng = np.random.default_rng(5)
    values = np.concatenate([rng.standard_normal(1000) * size for size in (1e-6, 1.0)]).astype(np.float32)
    codec = codec_of(TWO_BIT, [1000, 1000])
    packed, rest, got = np.zeros(codec.elements, np.float32), np.zeros(2000, np.float32), np.zeros(2000)
    for _ in range(60):
        rest += values
        codec.pack(rest, packed)
        sent = np.zeros(2000, np.float32)
        codec.add(packed, sent)
        got += sent
    for part in (slice(0, 1000), slice(1000, 2000)):
        assert np.abs(got[part] / 60 - values[part]).mean() < 0.05 * np.abs(values[part]).mean()


@pytest.mark.parametrize("text", ["none", "fp16", "2bit", "topk:0.01", "topk:1", "topk:0.01:0.02"])
def test_names_are_read_as_they_are_written(text: str) -> None:
    assert str(Compression.parse(text)) == text
    assert bool(Compression.parse(text)) == (text != "none")


@pytest.mark.parametrize(
    "text", ["", "topk", "topk:", "topk:0", "topk:2", "topk:nan", "fp16:2", "8bit", "topk:x", "topk:1:0", "topk:1:1:1"]
)
def test_wrong_names_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="should be"):
        Compression.parse(text)
