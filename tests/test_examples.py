"""The programs of examples/, started from another folder, as scripts and as modules."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize("name", ["cifar10", "imagenet"])
@pytest.mark.parametrize("as_module", [False, True], ids=["script", "module"])
def test_example_that_imports_its_sibling_starts(name: str, as_module: bool, tmp_path: Path) -> None:
    program = ["-m", f"esync.examples.{name}"] if as_module else [str(EXAMPLES / f"{name}.py")]
    done = subprocess.run([sys.executable, *program, "--help"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: ")


def test_notebook_runs_and_shows_what_is_in_it(tmp_path: Path) -> None:
    notebook = nbformat.read(EXAMPLES / "esync.ipynb", nbformat.NO_CONVERT)
    shown = [cell.get("outputs", []) for cell in notebook.cells]
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": tmp_path}}).execute()
    ran = [cell.get("outputs", []) for cell in notebook.cells]
    assert [text_of(outputs) for outputs in ran] == [text_of(outputs) for outputs in shown]
    assert any("image/png" in output.get("data", {}) for outputs in ran for output in outputs)


def text_of(outputs: list[dict[str, Any]]) -> str:
    """Return what a cell has printed; all times in it are virtual."""
    return "".join(output["text"] for output in outputs if output["output_type"] == "stream")
