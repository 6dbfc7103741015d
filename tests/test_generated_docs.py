"""Generated tables in docs/ are up to date, and tests named in docs/ exist."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from .support.child import run

ROOT = Path(__file__).resolve().parents[1]
#: Runs the program without MXNet; %s comes first.
PROGRAM = """
import runpy, sys
sys.modules["mxnet"] = None
from esync import config
%s
sys.argv = ["docs/generate.py", *sys.argv[1:]]
runpy.run_path("docs/generate.py", run_name="__main__")
"""


def generate(*arguments: str, root: Path, change: str = "", **environment: str) -> "subprocess.CompletedProcess[str]":
    program = f"import os; os.chdir({str(root)!r})\n{PROGRAM % change}"
    path = ":".join(filter(None, [str(ROOT), environment.pop("also", "")]))
    return run("-c", program, *arguments, PYTHONPATH=path, **environment)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of all pages and of the program."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("*.png"))
    return tmp_path


def test_generated_docs_are_up_to_date_whatever_else_is_installed_or_registered(tmp_path: Path) -> None:
    installed = tmp_path / "other-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[esync.algorithms]\nother = other:Other\n")
    change = """
from esync.algorithms import LocalSGD, register
Other = register("other")(type("Other", (LocalSGD,), {"__module__": "other"}))
"""
    done = generate("--check", root=ROOT, change=change, also=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_generated_docs_with_changed_page_name_and_rewrite_it(copy: Path) -> None:
    page = copy / "docs/reference/modes.md"
    text = page.read_text()
    assert "simulated without gradients" in text
    page.write_text(text.replace("simulated without gradients", "at once"))
    done = generate("--check", root=copy)
    assert done.returncode == 1
    assert (
        done.stderr == "docs/reference/modes.md is stale: run python docs/generate.py, and commit what it has changed\n"
    )
    done = generate(root=copy)
    assert (done.returncode, done.stdout) == (0, "docs/reference/modes.md: written\n")
    assert page.read_text() == text


@pytest.mark.parametrize(
    ("change", "stale"),
    [
        ("config.STALENESS = 4711", {"docs/reference/modes.md"}),  # the default of an option
        (
            "config.SPARSE_RATIO = 0.4711; config.LEASE = 4711.0; "  # the latter is of a flag of all modes
            "from esync.algorithms import SSP; SSP.serverless = True",
            {"docs/reference/flags.md", "docs/how-to/collectives.md", "docs/reference/modes.md"},
        ),
        ("config.CHECKPOINT_EVERY = 4711", {"docs/reference/api.md"}),  # of an argument of a class that needs MXNet
        ("from esync.algorithms import DyLU; DyLU.sends = 'gradients'", {"docs/reference/modes.md"}),
    ],
)
def test_generated_docs_become_stale_when_the_code_changes(change: str, stale: set[str]) -> None:
    done = generate("--check", root=ROOT, change=change)
    assert done.returncode == 1
    assert stale <= {line.partition(" is stale")[0] for line in done.stderr.splitlines()}


def test_generated_docs_with_missing_or_unknown_block_name_it(copy: Path) -> None:
    page = copy / "docs/reference/flags.md"
    page.write_text(page.read_text().replace("generated: flags: cluster", "generated: flags: clusters"))
    done = generate("--check", root=copy)
    assert done.returncode == 1
    assert "docs/reference/flags.md: there is no group of flags 'clusters', but training, learning rates" in done.stderr
    assert "no page has a block 'flags: cluster'" in done.stderr


def test_tests_named_in_documentation_exist() -> None:
    named = [
        (page.name, file, test)
        for page in (ROOT / "docs").rglob("*.md")
        for file, test in re.findall(r"`(tests/[\w/]+\.py)::(\w+)", page.read_text())
    ]
    assert len(named) > 20
    missing = [mention for mention in named if f"def {mention[2]}(" not in (ROOT / mention[1]).read_text()]
    assert missing == []
