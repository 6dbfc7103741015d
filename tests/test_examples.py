"""The programs of examples/, started from another folder, as scripts and as modules."""

from pathlib import Path

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
