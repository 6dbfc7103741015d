"""Nobody in esync/ imports, by whatever detour, a module that imports it.

Read from the source, so that imports inside functions count as well, and those for type checkers
only: whoever reads a module has to know what it imports, whenever that happens.
"""

import ast
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from .support import child

ROOT = Path(__file__).resolve().parents[1]
Imports = dict[str, set[str]]


def modules(root: Path, packages: Iterable[str]) -> dict[str, Path]:
    """Map the names of all modules of these packages to their files."""
    files = {}
    for package in packages:
        for path in (root / package).rglob("*.py"):
            parts = path.relative_to(root).with_suffix("").parts
            files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


@cache
def imports(root: Path, *packages: str) -> Imports:
    """Map each file of these packages to the files among them that it imports."""
    files = modules(root, packages)
    names = {path: name for name, path in files.items()}
    graph: Imports = {}
    for path, name in names.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        imported = set[str]()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
                module = ".".join([*above, *([node.module] if node.module else [])])
                # `from package import name` imports the module package.name, where there is one.
                targets = {f"{module}.{alias.name}" for alias in node.names}
                imported |= targets & files.keys()
                if not targets <= files.keys():
                    imported.add(module)
        graph[str(path.relative_to(root))] = {str(files[name].relative_to(root)) for name in imported if name in files}
    return graph


def cycle(graph: Imports) -> list[str]:
    """Return files of which each imports the one before it, and the first one the last; none without a cycle."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_imports_of_modules_have_no_cycles():
    assert not cycle(imports(ROOT, "esync", "logs_tools"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("from . import b", "from . import a"),
        ("from .b import name", "import package.a"),
        ("import package.b", "def f():\n    from package import a"),
        ("from .b import *", "if TYPE_CHECKING:\n    from .a import A"),
        ("from . import b", "from .sub.deeper import name"),  # which imports a
    ],
)
def test_import_cycle_is_found(tmp_path, one, other):
    files = {"__init__": "", "a": one, "b": other, "sub/__init__": "", "sub/deeper": "from .. import a"}
    for name, text in files.items():
        path = tmp_path / "package" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert {"package/a.py", "package/b.py"} <= set(cycle(imports(tmp_path, "package")))


def rooms_of_the_documentation() -> dict[str, set[str]]:
    """Return what each folder and module of the package may import, by docs/internals/architecture.md."""
    page = (ROOT / "docs/internals/architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)(?:/|\.py)` \|[^|]+\|([^|]*)\|$", page, re.MULTILINE)
    return {name: set(re.findall(r"\w+", allowed)) for name, allowed in rows}


def room(path: str) -> str:
    """Return the folder or module of the package that a file belongs to."""
    return Path(path).parts[1].removesuffix(".py")


def test_imports_of_each_folder_are_those_in_the_documentation():
    actual: dict[str, set[str]] = {}
    for path, imported in imports(ROOT, "esync").items():
        actual.setdefault(room(path), set()).update(room(other) for other in imported if room(other) != room(path))
    del actual["__init__"]  # the public names lead everywhere
    assert rooms_of_the_documentation() == actual


def imports_of_package(package: Path, graph: Imports) -> set[str]:
    """Return what the modules of a package import from its siblings in the package around it."""
    folder, siblings = package.parts, set[str]()
    for path, imported in graph.items():
        if Path(path).parts[: len(folder)] == folder:
            part_lists = [Path(other).with_suffix("").parts for other in imported]
            siblings |= {parts[len(folder) - 1] for parts in part_lists if parts[: len(folder) - 1] == folder[:-1]}
    return siblings - {folder[-1], "__init__"}


def test_imports_of_each_package_are_those_in_its_docstring():
    graph = imports(ROOT, "esync")
    for package in [*ROOT.glob("esync/*/__init__.py"), *ROOT.glob("esync/*/*/__init__.py")]:
        folder = package.parent.relative_to(ROOT)
        text = ast.get_docstring(ast.parse(package.read_text(encoding="utf-8"))) or ""
        match = re.search(r"[Mm]ay\s+import\s([^.;]*)", text)
        assert match or len(folder.parts) > 2, f"{folder} does not say what it may import"
        if match:
            assert set(re.findall(r"`(\w+)`", match[1])) == imports_of_package(folder, graph), folder


def test_imports_of_folders_have_no_cycles():
    assert not cycle(rooms_of_the_documentation())


def test_protocol_imports_no_clock_threads_or_network():
    """The in-memory tests cover the real code only if these come through the Store interface."""
    lines = [
        *("import time", "import threading", "import secrets", "import socket", "import mxnet"),
        *("from time import monotonic", "from mxnet import nd", "from ...runtime.mxnet_import import mx"),
        "from esync.runtime import mxnet_import",
    ]
    text = "\n".join([*lines, "def f() -> None:", *(f"    {line}" for line in lines)])
    command = [sys.executable, "-m", "ruff", "check", "--output-format=concise", "--select=TID251", "-"]
    for file, refused in (("protocol/client", 2 * len(lines)), ("keystores/line", 0)):
        words = [*command, f"--stdin-filename=esync/exchange/{file}.py"]
        output = subprocess.run(words, cwd=ROOT, input=text, capture_output=True, text=True).stdout.splitlines()
        assert len({line.split(":")[1] for line in output if "TID251" in line}) == refused


#: Hides, in every process of Python that finds it as sitecustomize, what only extras install.
WITHOUT_EXTRAS = """
import sys

class Hidden:
    def find_spec(name, *_):
        if name.partition(".")[0] in {"numba", "llvmlite", "matplotlib", "PIL", "mxnet", "gluoncv"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name.partition(".")[0])

sys.meta_path.insert(0, Hidden)
"""


def test_commands_that_train_nothing_need_no_extra(tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_EXTRAS)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    monkeypatch.chdir(tmp_path)

    def esync(*words: str, code: int = 0) -> str:
        result = child.run("-m", "esync", *words)
        assert result.returncode == code, result.stderr
        return result.stderr if code else result.stdout

    simulate = ("simulate", ":paper", "--numerics", "none", "--max-time", "60")
    assert "esync.worker" in esync("launch", ":quick", "--dry-run")
    assert " rounds in " in esync(*simulate)
    assert "round files, devices: 6" in esync("summarize", "--mode", "esync")
    esync("compare", "logs/resnet18-v1", "--json", "comparison.json")
    esync("report", "logs/resnet18-v1/esync")
    with child.started(
        "-u", "-m", "esync", "state-server", "--port", "10917", until="listening on http://127.0.0.1:10917"
    ):
        pass
    # What does need one says which, in one sentence.
    assert esync("plot", code=1).endswith('matplotlib, which is not installed: pip install "esync[figures]"\n')
    assert esync(*simulate, "--compression", "fp16", code=1).endswith('pip install "esync[compiled]"\n')


def test_imports_of_the_process_that_clusters_are_forked_from_exist() -> None:
    """The forkserver ignores errors of its preloaded module: without these imports tests would only be slower."""
    tree = ast.parse((ROOT / "tests/support/forkserver_imports.py").read_text())
    names = [alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names]
    assert "esync.worker" in names
    assert [name for name in names if importlib.util.find_spec(name) is None] == []
