"""Compiled loops where numba cannot keep them: no folder to write to, a full disk, broken files."""

import os
from pathlib import Path

import pytest

from ..support import child

PROGRAM = """
import logging
logging.basicConfig(format="%(message)s")
from esync.runtime.machine_code import machine_code

@machine_code()
def twice(value):
    return 2 * value

@machine_code()
def half(value):
    return value / 2

print(twice(21), half(84))
"""
BREAK = {
    "no folder": "from numba.core import caching; caching.CacheImpl._locator_classes = []",
    "full disk": """
from numba.core import caching
def save(*arguments): raise OSError(28, "No space left on device")
caching.IndexDataCacheFile.save = save""",
    "broken file": """
from numba.core import caching
def load(*arguments): raise EOFError("Ran out of input")
caching.IndexDataCacheFile.load = load""",
}


@pytest.mark.parametrize("broken", BREAK)
def test_machine_code_that_cannot_be_kept_is_made_anew_with_a_warning(tmp_path: Path, broken: str) -> None:
    (tmp_path / "program.py").write_text(BREAK[broken] + PROGRAM)
    path = os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])
    done = child.run(str(tmp_path / "program.py"), PYTHONPATH=path)
    assert done.stdout == "42 42.0\n", done.stderr
    assert done.stderr.count("compiled loops cannot be kept") == 1


def test_machine_code_is_kept_for_other_processes(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = child.run(str(tmp_path / "program.py"), NUMBA_CACHE_DIR=str(tmp_path / "kept"))
    assert (done.stdout, done.stderr) == ("42 42.0\n", "")
    assert len(list((tmp_path / "kept").rglob("*.nbi"))) == 2
