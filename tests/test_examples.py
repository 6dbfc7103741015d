"""The programs of examples/, started from another folder, as scripts and as modules."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize("name", ["cifar10", "imagenet"])
@pytest.mark.parametrize("as_module", [False, True], ids=["script", "module"])
def test_example_that_imports_its_sibling_starts(name: str, as_module: bool, tmp_path: Path) -> None:
    program = ["-m", f"esync.examples.{name}"] if as_module else [str(EXAMPLES / f"{name}.py")]
    done = subprocess.run([sys.executable, *program, "--help"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: ")
