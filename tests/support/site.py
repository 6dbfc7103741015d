"""The documentation's site, built."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def build_site(folder: Path, config: Path = ROOT / "mkdocs.yml") -> "subprocess.CompletedProcess[str]":
    """Build the site into a folder, with warnings as errors, where nothing can import MXNet."""
    pytest.importorskip("mkdocstrings", reason="the site needs the extra docs")
    blocked = folder.parent / "blocked"
    blocked.mkdir(exist_ok=True)
    (blocked / "mxnet.py").write_text("raise ImportError('the site has to be built without MXNet')\n")
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(folder)],
        env={**os.environ, "PYTHONPATH": str(blocked), "NO_MKDOCS_2_WARNING": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=170,
    )
