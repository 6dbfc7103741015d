"""Cores under the quotas of Linux's control groups, as files in a folder."""

from pathlib import Path

import pytest

from esync.runtime import cores as module
from esync.runtime.cores import cores


@pytest.mark.parametrize(
    ("group", "files", "expected"),
    [
        ("0::/", {}, 8),  # nothing is limited
        ("0::/", {"cpu.max": "max 100000"}, 8),
        ("0::/", {"cpu.max": "350000 100000"}, 3),
        ("0::/", {"cpu.max": "50000 100000"}, 1),
        ("0::/", {"cpu.max": "3200000 100000"}, 8),
        (
            "0::/kubepods/pod1/c1",
            {"kubepods/pod1/cpu.max": "200000 100000", "kubepods/pod1/c1/cpu.max": "max 100000"},
            2,
        ),
        ("0::/docker/5f3a", {"cpu.max": "200000 100000"}, 2),  # the container sees its own group as the root
        (
            "4:memory:/\n2:cpu,cpuacct:/",
            {"cpu,cpuacct/cpu.cfs_quota_us": "150000", "cpu,cpuacct/cpu.cfs_period_us": "50000"},
            3,
        ),
        ("2:cpuacct,cpu:/a", {"cpu/a/cpu.cfs_quota_us": "-1", "cpu/a/cpu.cfs_period_us": "100000"}, 8),
        ("3:cpuset:/", {"cpuset/cpu.cfs_quota_us": "100000", "cpuset/cpu.cfs_period_us": "100000"}, 8),
        ("0::/", {"cpu.max": "nonsense"}, 8),
    ],
)
def test_cores_are_those_that_the_quota_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str, files: dict[str, str], expected: int
) -> None:
    monkeypatch.setattr(module, "affinity", lambda: 8)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(f"{group}\n")
    for name, text in files.items():
        place = tmp_path / "sys/fs/cgroup" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"{text}\n")
    assert cores(tmp_path) == expected


def test_cores_on_system_without_groups_are_those_of_nproc(tmp_path: Path) -> None:
    assert cores(tmp_path) == module.affinity()
