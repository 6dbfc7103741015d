"""Write the tables of modes, options and flags into docs/**/*.md, from what the code says about itself.

    python docs/generate.py            # after a change of an algorithm, an option, a flag or a default
    python docs/generate.py --check    # exits with 1, and names the files, where that has been forgotten

A page has markers around each generated block; what stands between them is replaced:

    <!-- generated: modes -->
    <!-- end generated -->

Needs neither MXNet nor a cluster. Algorithms of other packages are left out, installed or not.
"""

import argparse
import ast
import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import django

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import esync  # noqa: E402 - of this checkout, whatever is installed
from esync import arguments, config  # noqa: E402
from esync.algorithms import Algorithm, ModelView  # noqa: E402
from esync.algorithms.options import OptionInfo, expected_values, option  # noqa: E402
from esync.algorithms.registry import ALGORITHMS, flags_of, options_of, register  # noqa: E402
from esync.arguments.presets import PRESETS  # noqa: E402
from esync.gluon.optimizer_to_rule import OPTIMIZER_RULES, RULES_OF_RMSPROP, options_of_rule  # noqa: E402
from esync.rules import RULES, STATE_VECTORS, make_rule  # noqa: E402

BLOCK = re.compile(r"(<!-- generated: (?P<name>[^>]+?) -->\n)(?P<text>.*?)(<!-- end generated -->)", re.DOTALL)
NONE = "–"


class UnknownBlockError(Exception):
    """A page asks for a block that there is not."""


def built_in() -> dict[str, type[Algorithm]]:
    """Return the algorithms of this package by their names."""
    return {name: each for name, each in ALGORITHMS.items() if each.__module__.startswith("esync.algorithms.")}


# --- cells ----------------------------------------------------------------------------------------


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def prose(text: str, page: Path) -> str:
    """Return a text of the code as Markdown: flags as code, pages of the documentation as links."""
    text = re.sub(r"`[^`]*`|[|*<]", lambda found: found[0] if found[0][1:] else f"\\{found[0]}", " ".join(text.split()))
    text = re.sub(r"(?<![\w`-])--?[a-z][a-z0-9-]*(?: 1(?=[),]))?", lambda flag: f"`{flag[0]}`", text)
    return re.sub(
        r"\bdocs/([\w-]+/\w+\.md)", lambda link: f"[{link[0]}]({os.path.relpath(ROOT / link[0], page.parent)})", text
    )


def code(words: Iterable[Any]) -> str:
    """Return words as code, separated by commas."""
    return ", ".join(code_each(words))


def code_each(words: Iterable[Any]) -> list[str]:
    """Return each word as code."""
    return [f"`{word}`" for word in words]


def grouped(rows: Iterable[Sequence[str]]) -> list[list[str]]:
    """Return the rows of a table, with one row for those that differ in nothing but the first cell."""
    found: dict[tuple[str, ...], list[str]] = {}
    for name, *cells in rows:
        found.setdefault(tuple(cells), []).append(name)
    return [[", ".join(names), *cells] for cells, names in found.items()]


def those(names: Iterable[str]) -> str:
    """Name some modes: by what they have in common, if that needs fewer words than their names."""
    kinds = {
        "all": set(built_in()),
        "that send updates": {name for name, each in built_in().items() if each.sends == "updates"},
        "that send gradients": {name for name, each in built_in().items() if each.sends == "gradients"},
        "synchronous": {name for name, each in built_in().items() if rounds(each) == "synchronous"},
        "asynchronous": {name for name, each in built_in().items() if rounds(each) == "asynchronous"},
    }
    names = list(names)
    texts = [code(names)]
    for kind, members in kinds.items():
        if len(members & set(names)) < 2:
            continue
        missing = [name for name in built_in() if name in members - set(names)]
        further = [name for name in names if name not in members]
        texts.append(", ".join([f"{kind} but {code(missing)}" if missing else kind, *code_each(further)]))
    return min(texts, key=lambda text: len(text.split()))


def yes(condition: Any) -> str:
    """Return "yes" or a dash."""
    return "yes" if condition else NONE


def first_sentence(algorithm: type[Algorithm]) -> str:
    """Return the first line of the file of an algorithm, which says what it is."""
    module = inspect.getdoc(sys.modules[algorithm.__module__]) or ""
    return module.partition("\n")[0].rstrip(".")


# --- modes ----------------------------------------------------------------------------------------


def rounds(algorithm: type[Algorithm]) -> str:
    """Whether all workers exchange together."""
    if algorithm.sends == "nothing":
        return NONE
    return "both" if algorithm.switches_synchrony else "synchronous" if algorithm.synchronous else "asynchronous"


SEVERAL = "several, on the servers"


def optimizer(algorithm: type[Algorithm]) -> str:
    """Say where the optimizer runs, and which it may be."""
    if algorithm.sends != "gradients":
        return "plain SGD, on the workers" if algorithm.plain_sgd else "any, on the workers"
    if algorithm.optimizer_chooses_rule:
        return SEVERAL
    return "SGD, on the workers" if algorithm.float32_only else "SGD, on the servers"


def linked(place: str, page: Path) -> str:
    """Return what `optimizer` says, with a link to the page that lists several."""
    link = os.path.relpath(ROOT / "docs/reference/modes.md", page.parent)
    return place.replace("several", f"[several]({link}#optimizers-on-the-servers)")


def modes(page: Path) -> str:
    """Return the table of what the modes are."""
    return table(
        ["`--mode`", "class in `esync.algorithms`", "what it is"],
        ([f"`{name}`", f"`{each.__name__}`", prose(first_sentence(each), page)] for name, each in built_in().items()),
    )


def exchanges(page: Path) -> str:
    """Return the table of what the workers compute, send and must have in common."""
    return table(
        ["`--mode`", "workers send", "rounds", "optimizer", "momentum", "rates", "statistics"],
        grouped(
            [
                f"`{name}`",
                each.sends,
                rounds(each),
                linked(optimizer(each), page),
                yes(each.has_momentum),
                "own" if each.per_worker_rates else "common",
                _statistics(each),
            ]
            for name, each in built_in().items()
        ),
    )


def _statistics(algorithm: type[Algorithm]) -> str:
    if algorithm.switches_synchrony:
        return "both"
    together = algorithm.synchronous and algorithm.sends != "nothing"
    return "mean" if together else "own"


def combinations(page: Path) -> str:
    """Return the table of what the modes can be combined with."""
    return table(
        [
            *("`--mode`", "state server", "`--elastic`", "`--collective`"),
            "simulated without gradients",
        ],
        grouped(
            [
                f"`{name}`",
                _state_server(each),
                yes(each.elastic),
                yes(each.serverless),
                yes(not each.needs_gradients),
            ]
            for name, each in built_in().items()
        ),
    )


def presets(page: Path) -> str:
    """Return the table of the presets."""
    return table(
        ["`--preset`", "for", "flags"],
        ([f"`{name}`", each.purpose, f"`{' '.join(each.words)}`"] for name, each in PRESETS.items()),
    )


def _state_server(algorithm: type[Algorithm]) -> str:
    if not any(each.shared == "state_server" for each in options_of(algorithm)):
        return NONE
    return "optional" if algorithm.without_state_server else "needed"


def _has(algorithm: type[Algorithm], dest: str) -> bool:
    return dest in flags_of(algorithm)


def precision(page: Path) -> str:
    """Return the table of what the modes make of float16 weights."""
    words = {
        SEVERAL: "allowed; `multi_precision` adds nothing and is refused",
        "SGD, on the servers": "allowed; `multi_precision` adds nothing and is refused",
        "any, on the workers": "allowed, best with `multi_precision`",
        "plain SGD, on the workers": "allowed, best with `multi_precision`",
        "SGD, on the workers": "refused by name: both sides add the same numbers to the weights",
    }
    rows = {place: [name for name, each in built_in().items() if optimizer(each) == place] for place in words}
    return table(
        ["`--mode`", "optimizer", "float16 weights"],
        ([code(found), linked(place, page), words[place]] for place, found in rows.items()),
    )


def modes_where(text: str) -> str:
    """Name the modes with a flag ("--overlap") or an attribute ("serverless")."""
    if text.startswith("--"):
        found = [name for name, each in built_in().items() if _has(each, text[2:].replace("-", "_"))]
    else:
        found = [name for name, each in built_in().items() if getattr(each, text, False)]
    if not found:
        raise UnknownBlockError(f"modes with {text}: no mode has that")
    return f"Modes: {code(found)}.\n"


# --- options and flags ----------------------------------------------------------------------------


#: Mark of an option that may differ from device to device.
PER_DEVICE = "†"
#: Words of `expected_values` → shorter ones for a table.
SHORTER = (
    (r"^one of (.*)$", lambda found: code(found[1].split(", "))),
    (r", or (\w+)$", r" or `\1`"),
    (r"^a (whole )?number", lambda found: "integer" if found[1] else "number"),
    (r"from (\S+) to (\S+)", r"from \1 to \2"),
    (r"of (\S+) or more", r"≥ \1"),
    (r"above ", "> "),
    (r"at most ", "≤ "),
    (r"below ", "< "),
)


def options(page: Path) -> str:
    """Return the table of the options of all modes; one that several share has one row.

    What only Python has is left out, and what is the value of a flag of all modes in every mode.
    """
    merged: dict[str, dict[str, OptionInfo]] = {}
    for name, algorithm in built_in().items():
        for each in options_of(algorithm):
            if each.flags:
                merged.setdefault(each.flag, {})[name] = each
    rows = []
    for users in merged.values():
        first = next(iter(users.values()))
        meaning, default = without_default(first.help)
        rows.append(
            [
                f"{code(first.flags)}{f' {PER_DEVICE}' if first.per_device else ''}"
                f"{'' if first.name == first.dest else f' (`{first.name}`)'}",
                those(users),
                f"{default or _defaults(users)}{_values(first)}",
                prose(meaning, page),
            ]
        )
    text = table(["flag", "modes", "default (other values)", "meaning"], rows)
    note = "may differ between workers; a run whose workers differ in another option does not begin."
    return f"{text}\n{PER_DEVICE} {note}\n"


def _defaults(users: dict[str, OptionInfo]) -> str:
    """Return the default, or those of each mode, the most common one first."""
    by_text: dict[str, list[str]] = {}
    for name, each in users.items():
        by_text.setdefault(f"`{each.default_text}`" if each.default_text else NONE, []).append(name)
    (common, _), *others = sorted(by_text.items(), key=lambda item: -len(item[1]))
    return "; ".join([common, *(f"{those(modes)}: {text}" for text, modes in others)])


def _values(each: OptionInfo) -> str:
    """Return the values of an option other than the default, in brackets."""
    text = "" if each.switch else expected_values(each.kind)
    if text in ("", "a text"):
        return ""
    if each.several:
        return " (several)"
    for pattern, shorter in SHORTER:
        text = re.sub(pattern, shorter, text)
    text = text.removeprefix(f"`{each.default_text}`, ").replace(f" or `{each.default_text}`", "")
    return f" ({text})"


def _groups() -> dict[str, list[argparse.Action]]:
    """Return the flags that all modes have, by the titles of their groups without what stands in brackets."""
    parser = argparse.ArgumentParser()
    for group in arguments.GROUPS:
        group.add_to(parser)
    found = {(group.title or "").partition(" (")[0]: group._group_actions for group in parser._action_groups}
    return {title: actions for title, actions in found.items() if title not in ("positional arguments", "options")}


def _meaning(action: argparse.Action) -> tuple[str, str]:
    """Return the help of a flag without its default, and the default."""
    meaning, default = without_default(" ".join(((action.help or "") % {"default": action.default}).split()))
    return meaning, default or (str(action.default) if action.default else "")


def without_default(text: str) -> tuple[str, str]:
    """Return a line of help without its default, and the default, "" where it says none."""
    found = re.fullmatch(r"(.*)\((?:[^()]*; )?default: (.*)\)", text)
    return (found[1].strip(), found[2]) if found else (text.strip(), "")


def flags(page: Path, title: str) -> str:
    """Return the table of a group of flags."""
    groups = _groups()
    if title not in groups:
        raise UnknownBlockError(f"there is no group of flags {title!r}, but {', '.join(groups)}")
    rows = []
    for action in groups[title]:
        meaning, default = _meaning(action)
        values = f"one of {code(action.choices)}" if action.choices and 0 not in action.choices else ""
        suiting = arguments.modes_of(action.dest)
        modes = "" if suiting is None else f"modes {those(name for name in built_in() if name in suiting)}"
        modes = modes.replace("modes all but", "not in")
        rows.append(
            [
                code(action.option_strings),
                default or NONE,
                "; ".join(filter(None, [prose(meaning, page), values, modes])),
            ]
        )
    return table(["flag", "default", "meaning"], rows)


# --- what an algorithm consists of ----------------------------------------------------------------


def described(thing: Any, section: str) -> list[tuple[str, str]]:
    """Return names and texts of a section, such as "Args", of a docstring."""
    return entries(thing.__name__, inspect.getdoc(thing) or "", section)


def entries(name: str, text: str, section: str) -> list[tuple[str, str]]:
    """Return names and texts of a section of the docstring `text` of `name`."""
    found = re.search(rf"^{section}:\n((?: .*\n|\n)+)", f"{text}\n", re.MULTILINE)
    if found is None:
        raise UnknownBlockError(f"{name} has no section {section} in its docstring")
    entries = re.split(r"^ {4}(?! )", found[1], flags=re.MULTILINE)[1:]
    return [(name, text) for name, _, text in (entry.partition(": ") for entry in entries)]


def section(thing: Any, name: str, head: str) -> Callable[[Path], str]:
    """Return what makes a table of a section of a docstring."""

    def make(page: Path) -> str:
        rows = ([code(names.split(", ")), prose(text, page)] for names, text in described(thing, name))
        return table([head, "meaning"], rows)

    return make


def public_arguments(page: Path) -> str:
    """Return the table of the arguments of esync's public classes, each with its first sentence.

    They are read from the sources, because importing most of these needs MXNet.
    """
    rows = []
    for name, module in esync._MODULES.items():
        source = Path(esync.__file__).parent / f"{module.replace('.', '/')}.py"
        tree = ast.parse(source.read_text(encoding="utf-8"))
        for thing in (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name):
            text, defaults = ast.get_docstring(thing) or "", _defaults_of(thing)
            fields = bool(thing.decorator_list)  # a dataclass
            if fields or "\nArgs:\n" in text:
                rows.append([f"**esync.{name}**", ""])
                rows += [
                    [f"`{argument}{defaults.get(argument, '')}`", prose(re.split(r"\.\s", meaning)[0], page)]
                    for argument, meaning in entries(name, text, "Attributes" if fields else "Args")
                ]
    return table(["argument", "meaning"], rows)


def _defaults_of(thing: ast.ClassDef) -> dict[str, str]:
    """Return "=VALUE" for each argument of a constructor, or field of a dataclass, that has a default."""
    values = {ast.unparse(node.target): node.value for node in thing.body if isinstance(node, ast.AnnAssign)}
    for node in thing.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            given = [*node.args.posonlyargs, *node.args.args][::-1]
            values = {arg.arg: value for arg, value in zip(given, node.args.defaults[::-1], strict=False)}
            values |= {arg.arg: value for arg, value in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)}
    texts = {name: ast.unparse(value).replace("'", '"') for name, value in values.items() if value is not None}
    return {
        name: f"={getattr(config, text[7:]) if text.startswith('config.') else text}" for name, text in texts.items()
    }


def model(page: Path) -> str:
    """Return the table of what a hook sees."""
    rows = []
    for kind in reversed(ModelView.__mro__):
        for name, each in vars(kind).items():
            if not isinstance(each, property):
                continue
            rows.append([f"`model.{name}`", prose((inspect.getdoc(each) or "").partition("\n")[0], page)])
    rows += [[f"`model.{name}`", prose(text, page)] for name, text in described(ModelView, "Attributes")]
    methods = {
        "blocks()": ModelView.blocks,
        "common(name)": ModelView.common,
        "contribution(name)": ModelView.contribution,
        "of(array)": ModelView.of,
    }
    for call, method in methods.items():
        rows.append([f"`model.{call}`", prose((inspect.getdoc(method) or "").partition("\n")[0], page)])
    return table(["", "meaning"], rows)


def rules(page: Path) -> str:
    """Return the table of the servers' rules."""
    rows = []
    for name in RULES:
        rule = make_rule(name, {})
        text = inspect.getdoc(rule if inspect.isfunction(rule) else type(rule)) or ""
        rows.append([f"`{name}`", prose(text.partition("\n")[0], page)])
    return table(["`rule`", "what the servers do"], rows)


def optimizers(page: Path) -> str:
    """Return the table of the optimizers whose steps servers can take."""
    rows = []
    for kind, rule in OPTIMIZER_RULES.items():
        for name in RULES_OF_RMSPROP if rule in RULES_OF_RMSPROP else [rule]:
            given = [f"`{each}`" for each in options_of_rule(name)]
            with_it = " with `centered`" if name == "centered_rmsprop" else ""
            rows.append([f"`{kind.lower()}`{with_it}", ", ".join(given), str(STATE_VECTORS[name])])
    return table(["optimizer", "options beside the rates", "state vectors"], rows)


# --- the state server's API -----------------------------------------------------------------------


@cache
def _api() -> dict[str, Any]:
    """Return the OpenAPI description of the state server's calls."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "esync.state_server.settings"
    django.setup()
    from esync.state_server.api import api  # needs Django's settings

    return api.get_openapi_schema(path_prefix="/api/v1/")


@cache
def _bodies() -> frozenset[str]:
    """Return the names of the schemas that requests are made of, and of the answers to POST."""
    found: set[str] = set()

    def add(part: Any) -> None:
        if isinstance(part, dict):
            name = str(part.get("$ref", "")).rpartition("/")[2]
            if name and name not in found:
                found.add(name)
                add(_api()["components"]["schemas"][name])
            for inner in part.values():
                add(inner)
        elif isinstance(part, list):
            for inner in part:
                add(inner)

    for methods in _api()["paths"].values():
        add([call.get("requestBody") for call in methods.values()])
    return frozenset(found | {"Decision", "Directive"})


#: Bounds from here on only keep nonsense out, and are in openapi.json.
LARGE = 10_000
#: Statuses with which every call can be refused.
ALWAYS = (400, 401)


def _kind(schema: dict[str, Any]) -> str:
    """Say what values a JSON schema allows, in a table's cell."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})" if name in _bodies() else name
    if "anyOf" in schema:
        return " or ".join(_kind(each) for each in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        return code(json.dumps(each) for each in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return f"list of {_kind(schema['items'])}"
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    bounds = [f"{sign} {schema[key]:,}" for key, sign in signs.items() if key in schema and schema[key] < LARGE]
    if "maxLength" in schema:
        bounds.append(f"≤ {schema['maxLength']} characters")
    return " ".join(filter(None, [schema.get("type", "any"), ", ".join(bounds)]))


def calls(page: Path) -> str:
    """Return the table of the state server's JSON calls."""
    rows = []
    for path, methods in _api()["paths"].items():
        for method, call in methods.items():
            body = call.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
            query = [each["name"] for each in call["parameters"] if each["in"] == "query"]
            rows.append(
                [
                    f"`{method.upper()} {path}`",
                    prose(call["description"].rstrip("."), page),
                    _kind(body) if body else code(query) or NONE,
                    ", ".join(str(status) for status in call["responses"] if status not in (200, *ALWAYS)) or NONE,
                ]
            )
    return table(["call", "what it does", "body or query", "errors"], rows)


def queries(page: Path) -> str:
    """Return the table of the query parameters of the state server's calls."""
    found = {
        each["name"]: each
        for path in _api()["paths"].values()
        for call in path.values()
        for each in call.get("parameters", [])
        if each["in"] == "query"
    }
    return table(
        ["parameter", "type", "meaning"],
        ([f"`{name}`", _kind(each["schema"]), prose(each["description"], page)] for name, each in found.items()),
    )


def schemas(page: Path) -> str:
    """Return a section with a table of fields for each body of the state server's calls, and what workers are told."""
    parts = []
    for name in sorted(_bodies()):
        schema = _api()["components"]["schemas"][name]
        rows = []
        for field, each in schema.get("properties", {}).items():
            kind = _kind(each)
            if field not in schema.get("required", ()):
                default = each.get("default")  # Ninja leaves null out
                kind += ", optional" if default is None else f", default `{json.dumps(default)}`"
            rows.append([f"`{field}`", kind.replace(" or null", ""), prose(each.get("description", ""), page)])
        fields = table(["field", "type", "meaning"], grouped(rows)) if rows else "No fields.\n"
        paragraphs = "\n\n".join(prose(text, page) for text in schema.get("description", "").split("\n\n"))
        parts.append(f"### {name}\n\n{paragraphs}\n\n{fields}")
    return "\n" + "\n".join(parts) + "\n"


# --- pages ----------------------------------------------------------------------------------------

#: Name of a block → what makes it.
BLOCKS: dict[str, Callable[[Path], str]] = {
    "modes": modes,
    "exchanges": exchanges,
    "combinations": combinations,
    "presets": presets,
    "options": options,
    "precision": precision,
    "register": section(register, "Args", "argument"),
    "option": section(option, "Args", "argument"),
    "model": model,
    "public arguments": public_arguments,
    "rules": rules,
    "optimizers": optimizers,
    "calls": calls,
    "queries": queries,
    "schemas": schemas,
}


def block(name: str, page: Path) -> str:
    """Return what stands in a block: a name of BLOCKS, `flags: GROUP` or `modes with …`."""
    if name in BLOCKS:
        return BLOCKS[name](page)
    kind, _, rest = re.sub(r"(flags:|modes with) ", r"\1\n", name, count=1).partition("\n")
    if kind == "flags:":
        return flags(page, rest)
    if kind == "modes with":
        return modes_where(rest)
    raise UnknownBlockError(f"there is no block {name!r}")


def generated(text: str, page: Path) -> str:
    """Return the text of a page with all its blocks as they should be."""
    return BLOCK.sub(lambda found: f"{found[1]}{block(found['name'], page)}{found[4]}", text)


def missing(text: str) -> list[str]:
    """Return the blocks that belong into some page, but are in none; `text` is that of all pages."""
    expected = [*BLOCKS, *(f"flags: {title}" for title in _groups())]
    return [name for name in expected if f"<!-- generated: {name} -->" not in text]


def main() -> int:
    """Write the blocks, or check them; return the exit code."""
    parser = argparse.ArgumentParser(prog="python docs/generate.py", description="Write the generated tables.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 where a page is stale")
    check = parser.parse_args().check
    texts = {page: page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs").rglob("*.md"))}
    wrong = []
    for page, text in texts.items():
        name = page.relative_to(ROOT)
        try:
            fresh = generated(text, page)
        except UnknownBlockError as error:
            wrong.append(f"{name}: {error}")
            continue
        if fresh == text:
            continue
        if check:
            wrong.append(f"{name} is stale: run python docs/generate.py, and commit what it has changed")
        else:
            page.write_text(fresh, encoding="utf-8")
            print(f"{name}: written")
    wrong += [
        f"no page has a block {name!r}: add it, to docs/reference/flags.md for instance"
        for name in missing("".join(texts.values()))
    ]
    print("\n".join(wrong), end="\n" if wrong else "", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
