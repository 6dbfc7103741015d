"""Data sets returned by a user's function: package.module:function or file.py:function."""

from typing import Any

import numpy as np

from ..runtime import user_functions
from ..runtime.user_code import readable_errors
from .errors import DataError
from .user_arrays import LabeledSamples, UserArrays, check_arrays, require_memory

RETURNS = "(train, test), each a pair (samples, labels) of arrays or a Gluon data set; test may be None"


def load_function(text: str) -> UserArrays:
    """Call a function without arguments, and convert its result to arrays.

    Raises:
        DataError: the result is not a data set.
        UserCodeError: the function does not exist, or fails.
    """
    result = user_functions.call(text, {})
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise DataError(text, f"has returned {_described(result)}", expected=RETURNS)
    train, test = result
    return check_arrays(
        text,
        _as_arrays(f"{text}, train", train),
        None if test is None else _as_arrays(f"{text}, test", test),
    )


def _as_arrays(origin: str, value: Any) -> LabeledSamples:
    if isinstance(value, tuple | list) and len(value) == 2:
        return _array(origin, value[0]), _array(origin, value[1])
    if hasattr(value, "__len__") and hasattr(value, "__getitem__") and not isinstance(value, tuple | list | np.ndarray):
        return _gathered(origin, value)
    raise DataError(origin, _described(value), expected=RETURNS)


def _gathered(origin: str, dataset: Any) -> LabeledSamples:
    """Read every sample of a Gluon data set once."""
    samples, labels = np.empty(0), []
    with readable_errors(f"{origin} has no length"):
        count = len(dataset)
    for number in range(count):
        with readable_errors(f"{origin}, sample {number} cannot be read"):
            item = dataset[number]
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise DataError(f"{origin}, sample {number}", _described(item), expected="a pair: sample and label")
        sample, label = _array(origin, item[0]), _array(origin, item[1])
        if not number:
            require_memory(origin, count * sample.nbytes, f"{count} samples of shape {sample.shape}")
            samples = np.empty((count, *sample.shape), sample.dtype)
        if sample.shape != samples.shape[1:] or sample.dtype != samples.dtype:
            raise DataError(
                f"{origin}, sample {number}",
                f"shape {sample.shape} and type {sample.dtype}",
                expected=f"{samples.shape[1:]} and {samples.dtype}, as the first one",
            )
        samples[number] = sample
        if label.size != 1 or label.dtype.kind not in "iufb" or not float(label.item()).is_integer():
            raise DataError(f"{origin}, sample {number}", f"label {label}", expected="0, 1, …, one for each class")
        labels.append(int(label.item()))
    return samples, np.array(labels, np.int64)


def _array(origin: str, value: Any) -> np.ndarray:
    """Convert an array, of MXNet or of any type that NumPy accepts, to NumPy's."""
    with readable_errors(f"{origin}: an object of class {type(value).__name__} is no array"):
        array = np.asarray(value.asnumpy() if hasattr(value, "asnumpy") else value)
    if array.dtype == object:
        raise DataError(origin, _described(value), expected="an array of numbers, all samples of one shape")
    return array


def _described(value: Any) -> str:
    if value is None:
        return "nothing"
    size = f" of length {len(value)}" if isinstance(value, tuple | list) else ""
    return f"an object of class {type(value).__name__}{size}"
