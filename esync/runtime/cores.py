"""Number of cores that this process may use, within the quota of a container."""

import os
from collections.abc import Iterator
from pathlib import Path

#: Files with a group's quota and period in microseconds, for both versions of Linux's control groups.
_FILES = (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us"))


def affinity() -> int:
    """Return the number of cores on which this process may run, as `nproc` counts them."""
    return len(os.sched_getaffinity(0))


def cores(root: Path = Path("/")) -> int:
    """Return the number of cores that this process may keep busy, at least 1.

    Args:
        root: folder with the file systems /proc and /sys.
    """
    return max(1, min([affinity(), *map(int, _quotas(root))]))


def threads() -> int | None:
    """Return the number of threads to divide among the processes of this machine; None if the user has set it."""
    return None if "OMP_NUM_THREADS" in os.environ else cores()


def _quotas(root: Path) -> Iterator[float]:
    """Yield the quotas of this process's group and its parent groups, in cores."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    mounted = root / "sys/fs/cgroup"
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        for mount in (mounted, mounted / "unified") if not controllers else (mounted / controllers, mounted / "cpu"):
            folder = mount / path.strip("/")
            for group in (folder, *folder.parents):  # a container may see its own group only
                if not group.is_relative_to(mount):
                    break
                for names in _FILES:
                    try:
                        quota, period = " ".join((group / name).read_text(encoding="ascii") for name in names).split()
                        if quota not in ("max", "-1"):
                            yield int(quota) / int(period)
                    except (OSError, ValueError):
                        continue
