"""Memory that this process may use, within the limit of a container."""

import math
from pathlib import Path


def available_memory() -> float:
    """Return the bytes of memory available to this process, within the limit of its container."""
    available = math.inf
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                available = 1024.0 * int(line.split()[1])
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return available
    return min(available, float(limit)) if limit.isdecimal() else available
