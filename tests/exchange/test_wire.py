import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esync.exchange.protocol import wire


@given(st.binary(min_size=wire.MESSAGE.itemsize, max_size=wire.MESSAGE.itemsize), st.integers(0, 3))
def test_message_keeps_every_bit_pattern(content, spare):
    """Patterns that are NaN as float32, including signalling ones, must not change."""
    record = np.frombuffer(content, wire.MESSAGE)[0]
    elements = wire.message_elements(1) + spare
    packed = wire.pack(record, elements)
    assert packed.dtype == np.float32
    assert packed.shape == (elements,)
    stored = np.empty(elements, np.float32)
    np.copyto(stored, packed)  # what the key store does
    assert wire.unpack(stored, wire.MESSAGE).tobytes() == content


@pytest.mark.parametrize("slots", [1, 2, 3, 7, 64, 299])
def test_message_elements_hold_a_message_and_the_status(slots):
    size = 4 * wire.message_elements(slots)
    needed = max(wire.MESSAGE.itemsize, wire.status_type(slots).itemsize)
    assert needed <= size < needed + 4


def test_header_writes_through_and_leaves_the_values_alone():
    assert wire.HEADER.itemsize == 4 * wire.HEADER_ELEMENTS
    bucket = np.arange(wire.HEADER_ELEMENTS + 5, dtype=np.float32)
    values = bucket[wire.HEADER_ELEMENTS :].copy()
    header = wire.header_of(bucket)
    header["kind"], header["rank"], header["nonce"], header["sequence"] = wire.PAYLOAD, 5, 2**62, 2**40
    again = wire.header_of(bucket)
    assert [int(again[name]) for name in ("kind", "rank", "nonce", "sequence")] == [wire.PAYLOAD, 5, 2**62, 2**40]
    assert np.array_equal(bucket[wire.HEADER_ELEMENTS :], values)


@pytest.mark.parametrize("character", ["a", "é", "€", "😀"])
def test_encode_text_too_long_keeps_as_many_characters_as_fit(character):
    width = len(character.encode())
    for start in range(width):
        text = "x" * start + character * wire.TEXT_BYTES
        count = (wire.TEXT_BYTES - start) // width
        assert wire.encode_text(text).decode() == "x" * start + character * count


def test_encode_text_with_surrogates_is_sent_with_replacements():
    """A file name that is not UTF-8 contains surrogates and may be part of an abort reason."""
    sent = wire.message(wire.ABORT, text="cannot write to logs/\udcff: disk full")
    got = wire.unpack(wire.pack(sent, wire.message_elements(1)), wire.MESSAGE)["text"].decode()
    assert got.startswith("cannot write to logs/")
    assert got.endswith(": disk full")
