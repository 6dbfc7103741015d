"""Do the tests see faults that are put into the code?

    python benchmarks/mutations.py draw --seed 43 --number 40 --output FAULTS.json
    python benchmarks/mutations.py run FAULTS.json --checkout FOLDER --output SEEN.json

`draw` chooses small changes (a comparison, an operator, a constant, a call left out) of the code that a job depends on,
as often from each of its parts. `run` puts them one by one into another checkout, whose files it changes and restores,
and runs the tests that are nearest to the changed module by their imports, until one fails. It goes on where it was
interrupted. A change whose text is not in its function any more is looked for in the whole package, and is "gone"
where it is not there, or not once.
"""

import argparse
import ast
import copy
import json
import os
import random
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

PARTS = {
    "decision": ["esync/coordination/decision.py", "esync/coordination/coordinator.py"],
    "rules": ["esync/rules.py"],
    "wire": ["esync/exchange/protocol/wire.py", "esync/exchange/protocol/layout.py"],
    "round state": ["esync/exchange/protocol/round_state.py"],
    "client": [
        "esync/exchange/protocol/client.py",
        "esync/exchange/protocol/status_reader.py",
        "esync/exchange/protocol/transfer.py",
    ],
    "server": [
        "esync/exchange/protocol/parameter_server.py",
        "esync/exchange/protocol/server_model.py",
        "esync/exchange/protocol/pending.py",
    ],
    "checkpoints": ["esync/checkpoints"],
    "launcher": ["esync/launch"],
    "state server": ["esync/state_server"],
}
#: What can be changed.
Node = ast.expr | ast.stmt
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
}
FILES_AT_A_TIME = 8
SECONDS_A_TEST = 90


@dataclass(frozen=True)
class Mutation:
    """A change of one expression or statement, `old` and `new` as `ast.unparse` writes them."""

    part: str
    path: str
    function: str
    line: int
    old: str
    new: str


def mutant(node: Node) -> Node | None:
    """Return a changed copy of a node, or None where this kind of node is not changed."""
    changed = copy.deepcopy(node)
    if isinstance(changed, ast.Compare) and len(changed.ops) == 1:
        changed.ops = [COMPARISONS[type(changed.ops[0])]()]
    elif isinstance(changed, ast.BoolOp):
        changed.op = ast.Or() if isinstance(changed.op, ast.And) else ast.And()
    elif isinstance(changed, ast.BinOp) and type(changed.op) in OPERATORS and not _is_text(changed):
        changed.op = OPERATORS[type(changed.op)]()
    elif isinstance(changed, ast.UnaryOp) and isinstance(changed.op, ast.Not):
        return changed.operand
    elif isinstance(changed, ast.Constant) and isinstance(changed.value, bool):
        changed.value = not changed.value
    elif isinstance(changed, ast.Constant) and type(changed.value) is int:
        changed.value += 1
    elif isinstance(changed, ast.Constant) and type(changed.value) is float:
        changed.value += 1.0
    elif isinstance(changed, ast.Expr) and isinstance(changed.value, ast.Call):
        return ast.Pass()
    else:
        return None
    return changed


def _is_text(node: ast.BinOp) -> bool:
    return any(
        isinstance(inner, ast.JoinedStr) or isinstance(getattr(inner, "value", None), str) for inner in ast.walk(node)
    )


def nodes_of_functions(tree: ast.Module) -> Iterator[tuple[str, Node]]:
    """Yield the nodes in functions' bodies that can be changed, with the functions' qualified names.

    Texts, annotations, default values and what raises an error are left out: their changes are of no consequence.
    """

    def visit(node: ast.AST, name: str, inside: bool) -> Iterator[tuple[str, Node]]:
        if isinstance(node, (ast.JoinedStr, ast.Raise, ast.arguments, ast.Assert)):
            return
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            inside = inside or not isinstance(node, ast.ClassDef)
            name = f"{name}.{node.name}".strip(".")
            children: list[ast.AST] = list(node.body)
        else:
            if inside and isinstance(node, (ast.expr, ast.stmt)):
                yield name, node
            children = [child for field, child in _children(node) if field not in ("annotation", "returns")]
        for child in children:
            yield from visit(child, name, inside)

    yield from visit(tree, "", False)


def _children(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield field, child


def draw(seed: int, number: int) -> list[Mutation]:
    """Choose mutations of the checkout in the current folder, in turn from each part."""
    chance = random.Random(seed)
    drawn: list[Mutation] = []
    places = {part: list(_candidates(part)) for part in PARTS}
    while len(drawn) < number:
        part = list(PARTS)[len(drawn) % len(PARTS)]
        candidate = chance.choice(places[part])
        if candidate not in drawn:
            drawn.append(candidate)
    return drawn


def _candidates(part: str) -> Iterator[Mutation]:
    for place in map(Path, PARTS[part]):
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            for function, node in nodes_of_functions(ast.parse(path.read_text())):
                changed = mutant(node)
                if changed is not None:
                    yield Mutation(part, str(path), function, node.lineno, ast.unparse(node), ast.unparse(changed))


def mutated(source: str, mutation: Mutation, *, anywhere: bool = False) -> str | None:
    """Return a module's text with a mutation; None if the changed text is not in its function exactly once.

    Of several equal texts in the original function, the one nearest to the original line counts.
    """
    matches = [
        node
        for function, node in nodes_of_functions(ast.parse(source))
        if (anywhere or function == mutation.function)
        and mutant(node) is not None
        and ast.unparse(node) == mutation.old
    ]
    if not matches or (anywhere and len(matches) > 1):
        return None
    node = min(matches, key=lambda match: abs(match.lineno - mutation.line))
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    lines = source.encode().splitlines(keepends=True)
    before = b"".join(lines[: node.lineno - 1]) + lines[node.lineno - 1][: node.col_offset]
    after = lines[node.end_lineno - 1][node.end_col_offset :] + b"".join(lines[node.end_lineno :])
    new = mutation.new if isinstance(node, ast.stmt) else f"({mutation.new})"
    return (before + new.encode() + after).decode()


def find(checkout: Path, mutation: Mutation) -> tuple[Path, str] | None:
    """Return the file that a mutation changes in a checkout, and its text with it; None where it is gone."""
    path = checkout / mutation.path
    if path.exists() and (text := mutated(path.read_text(), mutation)) is not None:
        return path, text
    texts = {other: mutated(other.read_text(), mutation, anywhere=True) for other in (checkout / "esync").rglob("*.py")}
    matches = [(other, text) for other, text in texts.items() if text is not None]
    return matches[0] if len(matches) == 1 else None


def imports(checkout: Path) -> dict[str, set[str]]:
    """Return which files of the package and the tests each of them imports."""
    files = {str(path.relative_to(checkout)) for top in ("esync", "tests") for path in (checkout / top).rglob("*.py")}

    def file_of(module: str) -> str | None:
        base = module.replace(".", "/")
        return next((name for name in (f"{base}.py", f"{base}/__init__.py") if name in files), None)

    edges: dict[str, set[str]] = {}
    for name in files:
        package = name.removesuffix(".py").removesuffix("/__init__").split("/")
        package = package if name.endswith("__init__.py") else package[:-1]
        modules: set[str] = set()
        for node in ast.walk(ast.parse((checkout / name).read_text())):
            if isinstance(node, ast.Import):
                modules |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                start = package[: len(package) - node.level + 1] if node.level else []
                module = ".".join([*start, *([node.module] if node.module else [])])
                modules |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
        edges[name] = {file for module in modules if (file := file_of(module))}
    return edges


def nearest_tests(checkout: Path, path: str) -> list[str]:
    """Return the test files that import a module, directly or not, those with the shortest way first."""
    importers: dict[str, set[str]] = {}
    for name, targets in imports(checkout).items():
        for target in targets:
            importers.setdefault(target, set()).add(name)
    distance = {path: 0}
    queue = deque([path])
    while queue:
        name = queue.popleft()
        for importer in importers.get(name, ()):
            if importer not in distance:
                distance[importer] = distance[name] + 1
                queue.append(importer)
    package = Path(path).parent.name
    tests = [name for name in distance if Path(name).name.startswith("test_")]
    # Of tests that are equally near, those in the package's own folder first.
    return sorted(
        tests, key=lambda name: (distance[name], f"tests/{package}/" not in name and package not in name, name)
    )


def seen_by(checkout: Path, tests: list[str]) -> str | None:
    """Run test files, a few at a time, and return the first test that fails."""
    python = checkout / ".venv/bin/python"
    for start in range(0, len(tests), FILES_AT_A_TIME):
        some = tests[start : start + FILES_AT_A_TIME]
        command = [
            python if python.exists() else sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "-n",
            "0",
            "-p",
            "no:cacheprovider",
        ]
        command += [f"--timeout={SECONDS_A_TEST}", *some]
        run = subprocess.run(
            list(map(str, command)), cwd=checkout, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        if run.returncode not in (0, 5):
            lines = [line for line in run.stdout.splitlines() if line.startswith(("FAILED tests/", "ERROR tests/"))]
            return lines[0].split(" - ")[0] if lines else run.stdout.strip().splitlines()[-1]
    return None


def run(mutations: list[Mutation], checkout: Path, output: Path, most_files: int) -> None:
    """Put the mutations into a checkout one by one, and write down which test sees each."""
    results = json.loads(output.read_text()) if output.exists() else {}
    for number, mutation in enumerate(mutations):
        if str(number) in results:
            continue
        begin = time.time()
        target = find(checkout, mutation)
        if target is None:
            seen: str | None = "gone"
        else:
            path, text = target
            original = path.read_text()
            try:
                path.write_text(text)
                seen = seen_by(checkout, nearest_tests(checkout, str(path.relative_to(checkout)))[:most_files])
            finally:
                path.write_text(original)
        results[str(number)] = {**asdict(mutation), "seen_by": seen}
        output.write_text(json.dumps(results, indent=1) + "\n")
        change = f"{mutation.path}:{mutation.line} {mutation.old!r} → {mutation.new!r}"
        print(f"{number:3} {time.time() - begin:5.0f} s {change}: {seen}", flush=True)


def main() -> None:
    """Draw or run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    drawing = commands.add_parser("draw")
    drawing.add_argument("--seed", type=int, default=43)
    drawing.add_argument("--number", type=int, default=40)
    drawing.add_argument("--output", type=Path, required=True)
    running = commands.add_parser("run")
    running.add_argument("faults", type=Path)
    running.add_argument("--checkout", type=Path, required=True)
    running.add_argument("--output", type=Path, required=True)
    running.add_argument("--files", type=int, default=32, help="test files that are run at most for each")
    args = parser.parse_args()
    if args.command == "draw":
        args.output.write_text(
            json.dumps([asdict(mutation) for mutation in draw(args.seed, args.number)], indent=1) + "\n"
        )
    else:
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        run(
            [Mutation(**fields) for fields in json.loads(args.faults.read_text())],
            args.checkout,
            args.output,
            args.files,
        )


if __name__ == "__main__":
    main()
