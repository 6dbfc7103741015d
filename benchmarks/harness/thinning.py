"""Results with no more than what figures and tables need."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from esync.reports.published_smoothing import IID
from esync.reports.summary_file import DeviceSummary, Summary

#: Significant digits of a figure.
DIGITS = 9
#: Digits after the point of a round's times in a summary: seconds to a tenth of a millisecond.
TIME_DIGITS = 4
#: What a table or a summary needs of a simulated device.
DEVICE = ("rank", "host", "device", "step_time", "rounds", "iterations", "computing_ratio", "wait", "transfer")
#: Lists of a summary with a time of each round.
TIMES = ("aggregate_time_list", "computing_time_list", "wait_list", "transfer_list", "total_time_list")
#: Lists of a summary whose values add up.
SUMS = (
    *("num_samples_list", "self_iters_list", "bytes_sent_list", "bytes_received_list"),
    *("aggregate_time_list", "computing_time_list", "wait_list", "transfer_list"),
)
#: Lists of a summary whose last value stands for several rounds.
ENDS = ("rounds_list", "elapsed_time_list", "total_time_list")
#: Rounds that are joined: the published filter takes the end of every such round, beginning with the first.
JOINED = IID[0]


def thinned(value: Any) -> Any:
    """Return figures with `DIGITS` significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {name: thinned(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [thinned(item) for item in value]
    return value


def thinned_result(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a simulation's result with what tables need of its devices."""
    if "devices" not in result:
        return dict(result)
    devices = [{name: device[name] for name in DEVICE if name in device} for device in result["devices"]]
    return {**result, "devices": devices}


def thinned_summary(summary: Summary) -> Summary:
    """Return a summary whose times are rounded.

    Rounds of devices that never wait for one another are joined, `JOINED` at a time.
    """
    return {
        host: {name: _rounded(_joined(device)) for name, device in devices.items()} for host, devices in summary.items()
    }


def _rounded(device: DeviceSummary) -> DeviceSummary:
    times = {name: [seconds and round(seconds, TIME_DIGITS) for seconds in getattr(device, name)] for name in TIMES}
    return device.model_copy(update=times)


def _joined(device: DeviceSummary) -> DeviceSummary:
    """Join rounds, unless some are missing or the longest wait of a single one would be lost."""
    if device.rounds_joined or device.missing_rounds or any(device.wait_list):
        return device
    lasts = [place for place in range(len(device.rounds_list)) if place % JOINED == 0]
    if lasts[-1] != len(device.rounds_list) - 1:
        lasts.append(len(device.rounds_list) - 1)
    sums = {name: list(_sums(getattr(device, name), lasts)) for name in SUMS}
    ends = {name: [values[place] for place in lasts] if (values := getattr(device, name)) else [] for name in ENDS}
    return device.model_copy(update={**sums, **ends, "rounds_joined": True})


def _sums(values: Sequence[float | None], lasts: Sequence[int]) -> Iterator[float]:
    """Yield the sum of the values up to each of these places, from the one before it on."""
    begin = 0
    for last in lasts if values else ():
        yield sum(value or 0 for value in values[begin : last + 1])
        begin = last + 1
