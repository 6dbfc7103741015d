"""The MXNet context of this process: that of the device chosen by the environment or a flag."""

from typing import Any

from .. import config
from .errors import ExpectedError
from .worker_environment import DEVICE_VARIABLE, WorkerEnvironment


class NoSuchDeviceError(ExpectedError):
    """Raised when the requested device does not exist."""


def context() -> Any:
    """Return the MXNet context that this worker is to train on, for instance mx.gpu(0).

    It is the device in ESYNC_DEVICE (cpu, gpu0, gpu1 …), which the launcher sets for each worker.
    Without it, it is the first GPU, or the CPU if there is no GPU.

    Raises:
        NoSuchDeviceError: this machine, or this build of MXNet, does not have that GPU.
        EnvironmentProblemError: ESYNC_DEVICE is not the name of a device.
    """
    device = WorkerEnvironment.read().device
    return find_device(device, f"{DEVICE_VARIABLE} is {device}", "cpu")[0]


def find_device(device: str | None, flag: str, cpu: str) -> tuple[Any, str]:
    """Return the MXNet context of a device, and the device's name.

    Args:
        device: cpu, gpu0, gpu1 …; None stands for the first GPU, or the CPU if there is none.
        flag: beginning of the error message, the flag or variable that names the device.
        cpu: value of that flag or variable for the CPU.

    Raises:
        NoSuchDeviceError: there is no such GPU.
    """
    from .mxnet_import import mx

    gpus = mx.context.num_gpus()
    if device is None:
        device = f"gpu{config.DEFAULT_GPU_ID}" if gpus else "cpu"
    if device == "cpu":
        return mx.cpu(), device
    gpu = int(device.removeprefix("gpu"))
    if gpu >= gpus:
        raise NoSuchDeviceError(f"{flag}: this machine and this build of MXNet have {gpus} GPU(s); {cpu} is the CPU")
    return mx.gpu(gpu), device
