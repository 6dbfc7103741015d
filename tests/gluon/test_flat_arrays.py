"""Arrays as one flat vector, read and written in slices."""

import numpy as np
import pytest

from esync.gluon import flat_arrays
from esync.gluon.flat_arrays import Difference, FlatArrays, Scaled
from esync.runtime.mxnet_import import mx


def flat(*arrays) -> FlatArrays:
    opened = FlatArrays(lambda: arrays)
    opened.open()
    return opened


def counting(*shapes: tuple[int, ...], dtype: str = "float32") -> list:
    """Arrays of these shapes that hold 0, 1, 2, … through all of them."""
    arrays, first = [], 0
    for shape in shapes:
        size = int(np.prod(shape))
        arrays.append(mx.nd.array(np.arange(first, first + size).reshape(shape), dtype=dtype))
        first += size
    mx.nd.waitall()
    return arrays


SHAPES = [(2, 3), (1,), (4,)]


@pytest.mark.parametrize("start", [0, 5])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_flat_arrays_change_of_scaled_copy_keeps_unchanged_bits(start, dtype, monkeypatch):
    """Multiplying by 1/48 and dividing again would change one value in six."""
    monkeypatch.setattr(flat_arrays, "BLOCK", 64)
    before = [np.random.default_rng(seed).standard_normal(size).astype(dtype) for seed, size in enumerate((300, 7, 93))]
    arrays = [mx.nd.array(values, dtype=dtype) for values in before]
    vector, expected = flat(*arrays), np.concatenate(before)
    copy = vector.times(1 / 48, start, 390)
    np.testing.assert_array_equal(copy, np.float32(expected[start:390]) * np.float32(1 / 48))
    copy[::10] = 2.0
    vector.change(copy, 1 / 48, start)
    assert vector.close()
    expected[start:390:10] = 96
    result = np.concatenate([array.asnumpy() for array in arrays])
    assert result.tobytes() == expected.tobytes()
    vector.open()
    vector.change(vector.times(1 / 48, 0, 400), 1 / 48, 0)
    assert not vector.close()  # there is nothing to bring back to a device


def test_flat_arrays_read_of_float32_on_host_copies_nothing():
    array = counting((4,))[0]
    vector = flat(array)
    array[:] = 9
    mx.nd.waitall()
    out = np.zeros(4, np.float32)
    vector.read(0, 4, out)
    assert out.tolist() == [9, 9, 9, 9]


def test_flat_arrays_that_are_only_read_are_not_written_back():
    """A copy that is out of date must not overwrite the values."""
    array = counting((3,), dtype="float16")[0]
    vector = flat(array)
    array[:] = 7
    vector.close()
    assert array.asnumpy().tolist() == [7, 7, 7]


@pytest.mark.parametrize(("start", "stop"), [(0, 11), (3, 8), (6, 7), (10, 11)])
def test_scaled_and_difference_change_what_is_read(start, stop):
    values = np.arange(11, dtype=np.float32)
    sources = {
        Scaled(flat(*counting(*SHAPES)), 0.1): np.float32(0.1) * values,
        Difference(flat(*counting(*SHAPES)), values**2): values - values**2,
    }
    for source, expected in sources.items():
        out = np.zeros(stop - start, np.float32)
        source.read(start, stop, out)
        assert out.tolist() == expected[start:stop].tolist()
