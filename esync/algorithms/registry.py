"""The algorithms by name: the built-in ones, and those of other packages once they have been loaded.

Whatever is derived from the algorithms starts from here: the choices of `--mode` and its flags, folders, labels and
styles of the figures, the tables in the documentation.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from .options import Described

if TYPE_CHECKING:
    from .base import Algorithm

_AlgorithmT = TypeVar("_AlgorithmT", bound="type[Algorithm]")

#: What an algorithm may be called: its name is a folder's, too.
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
#: Behind a folder's name where the workers' shares of the data differ in their distribution.
NON_IID = "-niid"


@dataclass(frozen=True)
class Style:
    """How an algorithm looks in every figure.

    Attributes:
        color: as Matplotlib knows it, "#0072B2" for instance.
        line: Matplotlib's line style: "-", "--", or (offset, (on, off, …)) in points.
        marker: Matplotlib's marker.
    """

    color: str
    line: str | tuple[int, tuple[int, ...]] = "-"
    marker: str = "o"


#: Styles of algorithms that bring none, chosen by their names (the colours of Tol's scheme "bright", and more).
SPARE_STYLES = tuple(
    Style(color, line, marker)
    for color, line, marker in (
        ("#4477AA", (0, (7, 1, 1, 1)), "H"),
        ("#EE6677", (0, (3, 1)), "8"),
        ("#228833", (0, (5, 2, 2, 2)), "x"),
        ("#AA3377", (0, (9, 1)), "+"),
        ("#66CCEE", (0, (1, 2)), "1"),
        ("#BBBB44", (0, (6, 2, 1, 2)), "2"),
    )
)

#: Name → class, in the order of tables and figures.
REGISTRY: "dict[str, type[Algorithm]]" = {}


def register(
    name: str, *, label: str | None = None, style: Style | None = None, summary: str | None = None
) -> Callable[[_AlgorithmT], _AlgorithmT]:
    """Make a class known under a name, as a decorator.

    Args:
        name: the value of `--mode`, and the name of the folder of its logs: lower-case letters, digits, ".", "_", "-".
        label: what figures and tables call it; the name, where not given.
        style: how it looks in figures; chosen by the name, where not given.
        summary: stem of the file that summarize writes; the label with hyphens, where not given.

    Raises:
        ValueError: the name cannot be used or is another class's, or an option has the flag of another algorithm's
            option with another meaning.
    """
    if not NAME.fullmatch(name) or name.endswith(NON_IID):
        raise ValueError(
            f"an algorithm's name is {name!r}, but should be of lower-case letters, digits, '.', '_' and '-', and not "
            f"end in {NON_IID!r}: it names a folder, too"
        )

    def enter(algorithm: _AlgorithmT) -> _AlgorithmT:
        known = REGISTRY.get(name)
        if known is not None:
            raise ValueError(
                f"{algorithm.__module__}.{algorithm.__qualname__} cannot be called {name!r}, as "
                f"{known.__module__}.{known.__qualname__} is: give it another name"
            )
        algorithm.name = name
        algorithm.label = label or name
        algorithm.style = style or SPARE_STYLES[sum(name.encode()) % len(SPARE_STYLES)]
        algorithm.summary = summary or re.sub(r"[^A-Za-z0-9._-]+", "-", algorithm.label).strip("-.") or name
        _check_flags(algorithm)
        REGISTRY[name] = algorithm
        return algorithm

    return enter


def find(text: str) -> "type[Algorithm]":
    """Return the class of that name.

    Raises:
        ValueError: there is none; the message names those that there are.
    """
    if text not in REGISTRY:
        raise ValueError(f"unknown algorithm {text!r}; known: {', '.join(sorted(REGISTRY))}")
    return REGISTRY[text]


def _check_flags(algorithm: "type[Algorithm]") -> None:
    """Two algorithms may share a flag only with equal type and meaning."""
    known = {flag: (other, each) for other in REGISTRY.values() for each in options_of(other) for flag in each.flags}
    for each in options_of(algorithm):
        for flag in each.flags:
            other, theirs = known.get(flag, (algorithm, each))
            if theirs.meaning != each.meaning:
                raise ValueError(
                    f"{algorithm.__qualname__} has a flag {flag} of another type or meaning than {other.__qualname__}: "
                    f"{_shown(each)} against {_shown(theirs)}; give it another flag, or make the two alike"
                )


def _shown(option: Described) -> str:
    return f"“{option.help}” ({str(option.meaning[1]).removeprefix('typing.')})"


def options_of(algorithm: "type[Algorithm]") -> list[Described]:
    """The options of an algorithm, described."""
    return list(algorithm.Options.described())


def names(suits: "Callable[[type[Algorithm]], Any]" = lambda algorithm: True) -> tuple[str, ...]:
    """The names of the algorithms for which a condition is true, in their order."""
    return tuple(name for name, algorithm in REGISTRY.items() if suits(algorithm))


def all_flags() -> dict[str, list["type[Algorithm]"]]:
    """Every flag's destination → the algorithms that have it."""
    found: dict[str, list[type[Algorithm]]] = {}
    for algorithm in REGISTRY.values():
        for each in options_of(algorithm):
            if each.flags:
                found.setdefault(each.dest, []).append(algorithm)
    return found
