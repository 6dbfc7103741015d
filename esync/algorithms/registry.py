"""The algorithms by name: the built-in ones, and those that have been loaded from outside.

Whatever is derived from the algorithms starts from here: the choices of `--mode` and its flags,
folders, labels and styles of the figures, the tables in the documentation.
"""

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar, get_args

from ..exchange import STATISTICS, WEIGHTS
from ..rules import RULES
from ..runtime.output import LABEL_LENGTH, is_label
from .base import Algorithm, Sends
from .options import OptionInfo, Options
from .styles import Style, spare_style

_AlgorithmT = TypeVar("_AlgorithmT", bound=type[Algorithm])

#: Valid names of algorithms, which are names of folders, too.
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
#: Suffix of a folder's name where the workers' shares of the data differ in their distribution.
NON_IID = "-niid"
#: Values of --partition, up to a colon, with which they do.
_SKEWED = ("class", "class-sorted", "dirichlet")
#: Valid stems of a summary's file, which is visible and not in another folder.
_STEM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
#: A long flag, whose words become a name with underscores, …
_LONG_FLAG = re.compile(r"--[^\W_](?:[^\W_]|-)*")
#: … and a short one; -m is the mode's, and argparse would take -mu for -m u.
_SHORT_FLAG = re.compile(r"-(?!m)[^\W\d_][^\W_]*")
#: Folder of the figures, beside those of the algorithms' logs.
FIGURES = "figures"
#: Stems of other files that workers and log tools write.
_OTHER_FILES = ("run", "speedup")


def suffix_of(partition: str) -> str:
    """Return NON_IID if shares made by that --partition differ in their distribution, else ""."""
    return NON_IID if partition.partition(":")[0] in _SKEWED else ""


def is_stem(text: str) -> bool:
    """Return whether a text can be the stem of a summary's file."""
    return bool(_STEM.fullmatch(text)) and text.lower() not in _OTHER_FILES


def stem_of(*texts: str) -> str:
    """Return a stem for a summary's file, made of the first text with enough usable characters."""
    stems = (re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:64].strip("-._") for text in texts)
    return next(filter(is_stem, stems), "summary")


#: Name → class, in the order of tables and figures.
ALGORITHMS: dict[str, type[Algorithm]] = {}


def register(
    name: str, *, label: str | None = None, style: Style | None = None, summary: str | None = None
) -> Callable[[_AlgorithmT], _AlgorithmT]:
    """Make a class known under a name, as a decorator.

    Args:
        name: the value of `--mode`, and the name of the folder of its logs: lower-case letters,
            digits, ".", "_", "-".
        label: the name in figures and tables, of up to 60 characters; the name, where not given.
        style: its look in figures; chosen by the name, where not given.
        summary: stem of the file that summarize writes; the label with hyphens, where not given.

    Raises:
        ValueError: the name, the label or the summary cannot be used, the name is another class's,
            or an option has the flag of another algorithm's option with another meaning, or a name
            or flag that cannot be used.
        TypeError: the class's `Options` lacks those of a base class, or an option has no default.
    """
    if not NAME.fullmatch(name) or name.endswith(NON_IID) or name == FIGURES:
        raise ValueError(
            f"an algorithm's name is {name!r}, but should be of lower-case letters, digits, '.', '_' and '-', neither "
            f"end in {NON_IID!r} nor be {FIGURES!r}: it names a folder, too"
        )
    if label is not None and not is_label(label):
        raise ValueError(
            f"the label of {name!r} is {label!r}, but should be one line of up to {LABEL_LENGTH} printable characters"
        )
    if summary is not None and not is_stem(summary):
        raise ValueError(
            f"the summary of {name!r} is {summary!r}, but should be a file's name without its ending: up to 64 "
            f"letters, digits, '.', '_' and '-', and none of {', '.join(_OTHER_FILES)}"
        )

    def enter(algorithm: _AlgorithmT) -> _AlgorithmT:
        existing = ALGORITHMS.get(name)
        if existing is not None:
            raise ValueError(
                f"{algorithm.__module__}.{algorithm.__qualname__} cannot be called {name!r}, as "
                f"{existing.__module__}.{existing.__qualname__} is: give it another name"
            )
        algorithm.name = name
        algorithm.label = label or name
        algorithm.style = style or spare_style(name)
        algorithm.summary = summary or stem_of(algorithm.label, name)
        _check_class(algorithm)
        _check_options(algorithm)
        _check_flags(algorithm)
        ALGORITHMS[name] = algorithm
        return algorithm

    return enter


def _check_class(algorithm: type[Algorithm]) -> None:
    """Refuse a class that cannot be made from options by name, or with unknown capabilities."""
    if algorithm.sends not in get_args(Sends):
        raise ValueError(
            f"{algorithm.__qualname__}.sends is {algorithm.sends!r}, but should be one of {', '.join(get_args(Sends))}"
        )
    for vector, rule in algorithm.vectors.items():
        if vector in (WEIGHTS, STATISTICS) or rule not in RULES:
            raise ValueError(
                f"{algorithm.__qualname__}.vectors has {vector!r}: {rule!r}, but should have names other than "
                f"{WEIGHTS!r} and {STATISTICS!r}, each with one of the rules {', '.join(RULES)}"
            )
    parameters = inspect.signature(algorithm.__init__).parameters.values()
    if not any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        raise TypeError(
            f"the constructor of {algorithm.__qualname__} cannot be given its options: write "
            "def __init__(self, *values, **settings), and pass both on to super().__init__"
        )


def _check_options(algorithm: type[Algorithm]) -> None:
    """Refuse options without a default or with unusable flags, and missing ones of base classes."""
    owner = f"{algorithm.__qualname__}.Options"
    for base in algorithm.__bases__:
        needed = getattr(base, "Options", Options)
        if not issubclass(algorithm.Options, Options) or needed.model_fields.keys() - algorithm.Options.model_fields:
            raise TypeError(
                f"{owner} lacks the options of {base.__qualname__}: write class Options({base.__qualname__}.Options)"
            )
    for name, field in algorithm.Options.model_fields.items():
        if field.is_required():
            raise TypeError(f"{owner}: {name} has no default; give it one, as {name}: … = option(1.0, help=…)")
        if name in vars(Options):
            raise ValueError(f"{owner}: an option cannot be called {name!r}, as an attribute of all Options is")
    by_flag: dict[str, str] = {}
    for option in options_of(algorithm):
        _check_form(owner, option)
        if option.flags and by_flag.setdefault(option.dest, option.name) != option.name:
            raise ValueError(f"{owner}: {by_flag[option.dest]} and {option.name} have the same flag {option.flag}")
    try:
        algorithm.Options.of()
    except ValueError as error:
        raise ValueError(f"the defaults of {owner} cannot be used: {error}") from None


def _check_form(owner: str, option: OptionInfo) -> None:
    """Refuse flags that do not look like flags."""
    if option.flags and option.collection and not option.several:
        raise ValueError(
            f"{owner}: no flag can give {option.name} its values; write tuple[TYPE, ...] for several of one type, or "
            "say flag=None for an option of Python alone"
        )
    *short, long = option.flags or ("",)
    if long and not _LONG_FLAG.fullmatch(long):
        raise ValueError(
            f"{owner}: the last flag of {option.name} is {long!r}, but should be a long one, of letters, digits and "
            "hyphens: --name-of-it"
        )
    for flag in short:
        if not _SHORT_FLAG.fullmatch(flag) and not _LONG_FLAG.fullmatch(flag):
            raise ValueError(
                f"{owner}: a flag of {option.name} is {flag!r}, but should be like -x; one that begins with -m would "
                "be taken for the mode"
            )


def _check_flags(algorithm: type[Algorithm]) -> None:
    """Refuse a flag that another algorithm has with another type or meaning."""
    registered = {
        flag: (other, option) for other in ALGORITHMS.values() for option in options_of(other) for flag in option.flags
    }
    for option in options_of(algorithm):
        for flag in option.flags:
            other, theirs = registered.get(flag, (algorithm, option))
            if theirs.meaning != option.meaning:
                raise ValueError(
                    f"{algorithm.__qualname__} has a flag {flag} of another type or meaning than {other.__qualname__}: "
                    f"{_shown(option)} against {_shown(theirs)}; give it another flag, or make the two alike"
                )


def _shown(option: OptionInfo) -> str:
    return f"“{option.help}” ({str(option.meaning[1]).removeprefix('typing.')})"


@functools.cache  # every flag of a command line asks every algorithm
def options_of(algorithm: type[Algorithm]) -> tuple[OptionInfo, ...]:
    """Return the facts about each option of an algorithm."""
    return tuple(algorithm.Options.info())


def flags_of(algorithm: type[Algorithm]) -> dict[str, OptionInfo]:
    """Return the options of an algorithm that have flags, by the names of the flags' values."""
    return {option.dest: option for option in options_of(algorithm) if option.flags}


def all_flags() -> dict[str, OptionInfo]:
    """Return the options with flags of all algorithms; shared ones appear once."""
    flags: dict[str, OptionInfo] = {}
    for algorithm in ALGORITHMS.values():
        for dest, option in flags_of(algorithm).items():
            flags.setdefault(dest, option)
    return flags


def names(condition: "Callable[[type[Algorithm]], Any]" = lambda algorithm: True) -> tuple[str, ...]:
    """Return the names of the algorithms for which a condition is true, in their order."""
    return tuple(name for name, algorithm in ALGORITHMS.items() if condition(algorithm))
