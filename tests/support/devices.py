"""Devices that a test runs on: the CPU, and the first GPU where there is one."""

from typing import Any

import pytest

from esync.runtime.mxnet_device import find_device

#: Values of a parameter "device". A test with it shows on every machine that it is right itself.
DEVICES = ("cpu", pytest.param("gpu0", marks=pytest.mark.gpu))


def context_of(device: str) -> Any:
    """The MXNet context of a device."""
    return find_device(device, device, "cpu")[0]
