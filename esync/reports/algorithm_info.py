"""The description of a run's algorithm, from "algorithm" in the run.json of its devices."""

from .discovery import RUN_FILE
from .summary_file import AlgorithmInfo, Summary


def algorithm_info_of(summary: Summary) -> tuple[AlgorithmInfo, list[str]]:
    """Return the description of the first device that has one, and a problem if other devices differ."""
    found = {
        f"{host}/{name}/{RUN_FILE}": device.run.algorithm
        for host, devices in summary.items()
        for name, device in devices.items()
        if device.run and device.run.algorithm
    }
    if not found:
        return AlgorithmInfo(), []
    first, info = next(iter(found.items()))
    differing = [
        device
        for device, other in found.items()
        if (other.label, other.summary, other.style) != (info.label, info.summary, info.style)
    ]
    if not differing:
        return info, []
    more = f" and {len(differing) - 1} more" if len(differing) > 1 else ""
    return info, [f"{differing[0]}{more}: differs about the algorithm from {first}, which is used"]
