"""Compiled loops where numba cannot keep them: no folder to write to, a full disk, broken files."""

import os
import subprocess
import sys
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


#: Compiles for the type that it is given, and waits before it writes which file has the code.
TYPED = """
import sys, time
import numpy as np
from numba.core.caching import IndexDataCacheFile
from esync.runtime.machine_code import machine_code

save_index = IndexDataCacheFile._save_index

def save_late(*arguments):
    time.sleep(1)
    save_index(*arguments)

IndexDataCacheFile._save_index = save_late

@machine_code()
def total(values):
    result = values[0]
    for value in values[1:]:
        result += value
    return result

print(float(total(np.arange(5, dtype=sys.argv[1]))))
"""


def test_machine_code_for_two_types_made_at_the_same_time_is_told_apart(tmp_path: Path) -> None:
    """Without the lock, numba 0.62 writes the code for two of them into one file."""
    (tmp_path / "program.py").write_text(TYPED)
    environment = child.environment(NUMBA_CACHE_DIR=str(tmp_path / "kept"))
    for _ in range(2):
        processes = [
            subprocess.Popen(
                [sys.executable, str(tmp_path / "program.py"), kind],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for kind in ("int64", "float32")
        ]
        assert [process.communicate(timeout=120)[0] for process in processes] == ["10.0\n"] * 2
    assert len(list((tmp_path / "kept").rglob("*.nbc"))) == 2
