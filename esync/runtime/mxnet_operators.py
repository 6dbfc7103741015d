"""Cache the code of MXNet's operator functions, as Python does with modules.

During its import, MXNet generates the source of 2,500 functions, one for each operator, and compiles
it. That takes two fifths of the time of the import. Here the compiled code is read from a file in
`__pycache__`, which the first import writes. Functions that are not in the file are compiled as usual.

Without docstrings (PYTHONOPTIMIZE=2) MXNet cannot generate the source; they are replaced by empty ones.
"""

import contextlib
import functools
import importlib.util
import marshal
import sys
from collections.abc import Iterator
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from .files import write_atomically

#: The modules that execute such source, by a call of `exec`.
MODULES = frozenset({"mxnet.ndarray.register", "mxnet.symbol.register"})
#: The modules whose classes' docstrings go into the source.
DOCUMENTATION = frozenset({"mxnet.ndarray_doc", "mxnet.symbol_doc"})
#: The address of an operator, which differs from process to process, is the first argument of one
#: of these calls in the source; …
CALLS = ("_imperative_invoke(", "_symbol_creator(")
#: … and this number replaces it in the cached source and code.
PLACEHOLDER = 6_277_101_735_386_680_763


def cache_file() -> Path:
    """Return the cache file for this release of Python and its level of optimization (-O)."""
    return Path(importlib.util.cache_from_source(__file__)).with_suffix(".operators")


class _Finder(MetaPathFinder):
    """Finds `MODULES`, and replaces their `exec` by one that uses the cached code."""

    def __init__(self, codes: dict[str, CodeType]) -> None:
        self.codes = codes
        self.missed: dict[str, CodeType] = {}

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname in MODULES | DOCUMENTATION else None
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                if fullname in MODULES:
                    vars(module)["exec"] = functools.partial(self._run, vars(module))
                execute(module)
                if fullname in DOCUMENTATION:
                    for value in vars(module).values():
                        if isinstance(value, type) and value.__doc__ is None:
                            value.__doc__ = ""

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def _run(self, module: dict[str, Any], source: str, globals_: dict[str, Any] | None, names: dict[str, Any]) -> None:
        """Execute source like `exec(source, globals_, names)` in that module."""
        address = _address(source)
        if address is None:
            exec(source, globals_ or module, names)
            return
        general = source.replace(address, str(PLACEHOLDER))
        code = self.codes.get(general)
        if code is None:
            code = self.missed[general] = compile(general, "<string>", "exec", dont_inherit=True)
        exec(_with_address(code, int(address)), globals_ or module, names)


def _address(source: str) -> str | None:
    """Return the address of the operator that a function calls; None if there is none."""
    for call in CALLS:
        _, mark, rest = source.rpartition(call)
        address = rest.partition(",")[0]
        if mark and address.isdecimal() and len(address) > 8:  # no other number in the source is as long
            return address
    return None


def _with_address(code: CodeType, address: int) -> CodeType:
    """Return the code with the placeholder replaced by an operator's address."""
    constants = tuple(
        _with_address(constant, address)
        if isinstance(constant, CodeType)
        else address
        if constant == PLACEHOLDER
        else constant
        for constant in code.co_consts
    )
    return code.replace(co_consts=constants)


@contextlib.contextmanager
def kept_code() -> Iterator[None]:
    """Use the cached code for an import of MXNet in the `with` block, and update the cache."""
    file = cache_file()
    finder = _Finder(_read(file))
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
    if finder.missed and not sys.dont_write_bytecode:
        with contextlib.suppress(OSError):  # a read-only folder, or a full disk
            write_atomically(file, marshal.dumps(finder.codes | finder.missed))


def _read(file: Path) -> dict[str, CodeType]:
    try:
        codes = marshal.loads(file.read_bytes())
    except (OSError, EOFError, ValueError, TypeError):  # missing or damaged
        return {}
    return codes if isinstance(codes, dict) else {}
