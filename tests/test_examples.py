"""The programs of examples/, started from another folder, as scripts and as modules."""

from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from .support import child

EXAMPLES = Path(__file__).parents[1] / "examples"
#: Show the help of each program, first as a module, then as a script.
PROGRAM = """
import runpy, sys
examples = sys.argv[1]
for script in (False, True):
    if script: sys.path.insert(0, examples)
    for name in ("cifar10", "imagenet"):
        sys.argv = [name, "--help"]
        try:
            if script: runpy.run_path(f"{examples}/{name}.py", run_name="__main__")
            else: runpy.run_module(f"esync.examples.{name}", run_name="__main__")
        except SystemExit as end:
            end.code and sys.exit(end.code)
"""


def test_examples_that_import_their_sibling_start() -> None:
    done = child.run("-P", "-c", PROGRAM, str(EXAMPLES))
    assert (done.returncode, done.stdout.count("usage: ")) == (0, 4), done.stderr


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
