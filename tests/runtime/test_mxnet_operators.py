"""The kept code of MXNet's operator functions: the same functions, in less time, or as before."""

import json
import marshal
from pathlib import Path
from typing import Any

import pytest

from esync.runtime import mxnet_operators

from ..support import child

#: Counts what is compiled, uses operators, and describes all functions of them.
PROGRAM = """
import builtins, hashlib, inspect, json, sys, types
from pathlib import Path
from esync.runtime import mxnet_operators
mxnet_operators.cache_file = lambda: Path(sys.argv[1])
compiled, compile_ = [], builtins.compile
def counting(source, name, *more, **named):
    compiled.append(name)
    return compile_(source, name, *more, **named)
builtins.compile = counting
from esync.runtime.mxnet_import import mx
x = mx.nd.array([[1, 2], [3, 4]])
same = mx.sym.Variable("x")
bound = mx.sym.dot(same, same).bind(mx.cpu(), {"x": x})
functions = {
    f"{space.__name__}.{name}": (each.__doc__, str(inspect.signature(each)), each.__code__.co_code.hex())
    for space in (mx.nd.op, mx.nd._internal, mx.nd.contrib, mx.sym.op, mx.sym.contrib, mx.nd.np._op, mx.sym.np._op)
    for name, each in vars(space).items()
    if isinstance(each, types.FunctionType)
}
print(json.dumps({
    "compiled": compiled.count("<string>"),
    "dot": [mx.nd.dot(x, x).asnumpy().tolist(), bound.forward()[0].asnumpy().tolist()],
    "numpy": mx.np.cumsum(mx.np.ones(3)).asnumpy().tolist(),
    "count": len(functions),
    "functions": hashlib.sha256(json.dumps(functions, sort_keys=True).encode()).hexdigest(),
}))
"""


def described(path: Path, dont_write: str = "") -> dict[str, Any]:
    """What the program says in a process whose compiled code is kept in this file."""
    result = child.run("-c", PROGRAM, str(path), PYTHONDONTWRITEBYTECODE=dont_write)
    assert result.returncode == 0, result.stderr
    assert "Error" not in result.stderr
    output: dict[str, Any] = json.loads(result.stdout)
    product = [[7, 10], [15, 22]]
    assert (output["dot"], output["numpy"]) == ([product, product], [1, 2, 3])
    return output


def test_kept_code_is_written_once_and_defines_the_same_functions(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "operators"
    unkept = described(path, dont_write="1")
    assert not path.parent.exists()
    first = described(path)
    assert min(unkept["compiled"], first["compiled"]) > 2000
    content = path.read_bytes()
    second = described(path)
    assert second["compiled"] < 500
    assert path.read_bytes() == content
    assert unkept["count"] > 500
    assert first["functions"] == second["functions"] == unkept["functions"]
    path.write_bytes(content[:-1000])  # damaged: written anew
    assert described(path)["compiled"] > 2000
    assert path.stat().st_size == len(content)


@pytest.mark.parametrize("content", [b"", b"no code", marshal.dumps([1])])
def test_kept_code_of_another_kind_is_ignored(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "operators"
    path.write_bytes(content)
    assert mxnet_operators._read(path) == {}


def test_code_without_assertions_is_not_kept_for_processes_with_them() -> None:
    program = "from esync.runtime.mxnet_operators import cache_file; print(cache_file())"
    results = [child.run(*flags, "-c", program) for flags in ([], ["-O"])]
    assert len({result.stdout for result in results}) == 2, results[0].stderr


def test_kept_code_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert described(tmp_path / "file" / "operators")["compiled"] > 2000
