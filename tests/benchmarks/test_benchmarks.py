"""The programs of benchmarks/ start, and use only names that exist."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ..data import tiny_dataset

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted((ROOT / "benchmarks").glob("*.py"))

#: Modules of the tests, which `harness.program` makes known.
PARTS_OF_TESTS = re.compile(r"^(from|import) (namespaces|tiny_dataset)\b", re.MULTILINE)

#: Asks the programs whose paths it is given for their help, one after the other; prints what each
#: has said.
ASK = """
import contextlib, io, json, runpy, sys, traceback
said = {}
for path in sys.argv[1:]:
    out = io.StringIO()
    sys.argv = [path, "--help"]
    with contextlib.redirect_stdout(out):
        try:
            runpy.run_path(path, run_name="__main__")
        except SystemExit as end:
            code = end.code
        except BaseException:
            code = traceback.format_exc()
        else:
            code = "it has no exit code"
    said[path] = [code, out.getvalue()]
print(json.dumps(said))
"""


def test_benchmark_help_starts_and_shows_how_it_is_called():
    assert len(PROGRAMS) > 15
    paths = [str(path) for path in PROGRAMS]
    asked = subprocess.run(
        [sys.executable, "-c", ASK, *paths], cwd=ROOT / "benchmarks", stdout=subprocess.PIPE, text=True, check=True
    )
    outputs = json.loads(asked.stdout.splitlines()[-1])
    assert {path: code for path, (code, _) in outputs.items() if code != 0} == {}
    for path, (_, text) in outputs.items():
        assert text.startswith(f"usage: {Path(path).name}"), path
        assert f"benchmarks/{Path(path).name}" in text, f"{path}: the help does not say how it is called"


@pytest.mark.parametrize("path", [path for path in PROGRAMS if PARTS_OF_TESTS.search(path.read_text())])
def test_benchmark_that_uses_parts_of_tests_finds_them_by_itself(path: Path):
    """The test above runs all of them in one process, where an earlier one has made them known."""
    subprocess.run([sys.executable, str(path), "--help"], cwd=ROOT, stdout=subprocess.DEVNULL, check=True)


@pytest.mark.timeout(900)
def test_benchmarks_use_only_names_that_exist():
    paths = [ROOT / "benchmarks", ROOT, *(ROOT / "tests" / folder for folder in ("data", "launch"))]
    files = [*PROGRAMS, *sorted((ROOT / "benchmarks" / "harness").glob("*.py"))]
    checked = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--cache-dir", ".mypy_cache/benchmarks", "--explicit-package-bases"),
            *("--follow-imports", "silent", "--no-warn-unused-ignores"),
            *("--disable-error-code", "misc"),  # lambdas with defaults, which a loop needs
            *(str(file.relative_to(ROOT)) for file in files),
        ],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": ":".join(str(path) for path in paths)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize(
    "command",
    [
        "simulate_scale.py --workers 50 --rounds 3 --json runs.json",
        "sparse_accuracy.py --seeds 1 --workers 2 --epochs 2 --batch-size 4 --methods ASGD DGS --json runs.json",
    ],
    ids=lambda command: command.split()[0],
)
def test_benchmark_that_simulates_writes_its_figures(tmp_path, command):
    tiny_dataset.write(tmp_path / "data")
    program, *words = command.split()
    ended = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / program), *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert "Traceback" not in ended.stdout
    assert ended.returncode in (0, 1), ended.stdout  # 1: with so little a target is missed
    assert json.loads((tmp_path / "runs.json").read_text())
