"""Disks that are full, but for some pages."""

import os
from pathlib import Path


def fill(disk: Path, pages: int = 0) -> Path:
    """Leave so many pages of the fixture `small_disk`; the file that takes the others."""
    room, ballast = os.statvfs(disk), disk / "ballast"
    ballast.write_bytes(bytes((room.f_bavail - pages) * room.f_frsize))
    return ballast
