"""The options of an algorithm: Pydantic fields that also define their flags, checks and help.

An algorithm has a nested class `Options`, whose fields are made with `option`:

    class Options(ASGD.Options):
        staleness: int = option(
            config.STALENESS, ge=0, help="iterations that a worker may be ahead of the slowest"
        )

From it come the flag `--staleness` with its check, default and help, the keyword
`SSP(staleness=2)`, the entry `staleness: 2` of a description, the agreement of all workers, and the
value in run.json.
"""

import argparse
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

#: Key under which `option` keeps what Pydantic does not know.
_KEY = "esync"
#: Settings that every mode has, whose values an option may take.
Shared = Literal["batch_size", "job", "momentum", "state_server"]
_OptionsT = TypeVar("_OptionsT", bound="Options")


def option(
    default: Any,
    *,
    help: str = "",
    flag: str | tuple[str, ...] | None = "",
    metavar: str | None = None,
    per_device: bool = False,
    shared: Shared | None = None,
    fixed: bool = False,
    agreed_as: str | None = None,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
) -> Any:
    """Declare an option of an algorithm, as the value of a field of its class `Options`.

    Args:
        default: the value where none is given.
        help: the flag's line of help, without the default.
        flag: the flag, or several ("-gl", "--global-lr") with the long one last; "": the field's
            name with hyphens; None: there is none, the option is for Python alone.
        metavar: stands for the value in the help.
        per_device: whether workers may have different values; else they are compared at the start.
        shared: the option takes the value of a setting that every mode has: "batch_size", "job",
            "momentum" or "state_server" (host:port, or None). It has no flag of its own then.
        fixed: whether a run that is resumed must have the value with which its checkpoint was
            written.
        agreed_as: name in the message about workers, or a checkpoint, whose values differ; the
            flag, where not given.
        ge: least allowed value.
        gt: value that it has to be above.
        le: largest allowed value.
        lt: value that it has to be below.

    Raises:
        ValueError: there is no such shared setting.
    """
    if shared is not None and shared not in get_args(Shared):
        raise ValueError(f"shared is {shared!r}, but should be one of {', '.join(get_args(Shared))}")
    bounds = tuple(
        (name, bound) for name, bound in (("ge", ge), ("gt", gt), ("le", le), ("lt", lt)) if bound is not None
    )
    flags = () if shared or flag is None else (flag,) if isinstance(flag, str) else tuple(flag)
    return _field(default, OptionInfo(help, flags, metavar, per_device, shared, fixed, agreed_as or "", bounds))


def inherited(options: "type[Options]", name: str, default: Any) -> Any:
    """Declare an option of another class anew, with the same meaning and another default."""
    return _field(default, _declared(options.model_fields[name]))


@dataclass(frozen=True)
class OptionInfo:
    """The facts about one option of an algorithm; the last three are known once its class is.

    Attributes:
        help: the help, without the default.
        flags: as typed, the long one last; empty where the option has none.
        metavar: stands for the value in the help; None: argparse's own.
        per_device: whether workers may have different values.
        shared: the setting of all modes whose value it takes; None: it is an option of its own.
        fixed: whether it must stay as it was when a run is resumed.
        agreed_as: name in messages about differences.
        bounds: name of each bound that `option` was given, and its value.
        name: of the field.
        default: the value where none is given.
        kind: the type, and the conditions on its values.
    """

    help: str = ""
    flags: tuple[str, ...] = ("",)
    metavar: str | None = None
    per_device: bool = False
    shared: str | None = None
    fixed: bool = False
    agreed_as: str = ""
    bounds: tuple[tuple[str, float], ...] = ()
    name: str = ""
    default: Any = None
    kind: Any = None

    @property
    def flag(self) -> str:
        """The long flag; "" where there is none."""
        return self.flags[-1] if self.flags else ""

    @property
    def dest(self) -> str:
        """Name of the flag's value among the parsed ones, and in a description."""
        return self.flag.removeprefix("--").replace("-", "_")

    @property
    def meaning(self) -> tuple[Any, ...]:
        """Facts that must be equal where two algorithms share a flag.

        Types that differ in `| None` only are equal.
        """
        kind, *bounds = get_args(self.kind)
        return self.flags, str(_without_none(kind)), str(bounds), self.metavar, self.help

    @property
    def default_text(self) -> str:
        """The default as it stands in the help; "" where it need not be mentioned."""
        if self.default is None or self.default is False:
            return ""
        return " ".join(map(str, self.default)) if isinstance(self.default, tuple) else str(self.default)

    @property
    def several(self) -> bool:
        """Whether the flag takes a list of values."""
        kind = _without_none(get_args(self.kind)[0])
        return get_origin(kind) is tuple and bool(get_args(kind)[1:]) and get_args(kind)[1] is Ellipsis

    @property
    def collection(self) -> bool:
        """Whether its value consists of several values, in whatever form."""
        kind = _without_none(get_args(self.kind)[0])
        return (get_origin(kind) or kind) in (tuple, list, set, frozenset, dict)

    @property
    def item(self) -> Any:
        """The type of one value of a list; of the value itself where the flag takes one."""
        if not self.several:
            return self.kind
        kind, *bounds = get_args(self.kind)
        return annotated(get_args(_without_none(kind))[0], bounds)

    @property
    def switch(self) -> bool:
        """Whether the flag stands alone, without a value; `--no-…` turns it off."""
        return get_args(self.kind)[0] is bool

    def read(self, text: str) -> Any:
        """Return the value that a text stands for; for a list, one of its values.

        Raises:
            argparse.ArgumentTypeError: it stands for none; the message says what was expected.
        """
        kind = self.item
        try:
            return TypeAdapter(kind, config=ConfigDict(allow_inf_nan=False)).validate_python(text)
        except ValidationError as error:
            raise argparse.ArgumentTypeError(_problem(error, kind, text)) from None

    def add_to(self, add: Callable[..., Any], remark: str | None = None) -> None:
        """Add the flag to a parser or a group of it.

        Args:
            add: its `add_argument`.
            remark: stands behind the help instead of the default, for a parser of several modes:
                there a flag that is not given has no value.
        """
        words = (f"default: {self.default_text}" if self.default_text else "") if remark is None else remark
        text = (f"{self.help} ({words})" if words else self.help).replace("%", "%%")
        default = self.default if remark is None else argparse.SUPPRESS
        common: dict[str, Any] = {"dest": self.dest, "default": default, "help": text}
        if self.switch:
            add(*self.flags, action=_OnOrOff, **common)
            return
        if self.several:
            common["nargs"] = "+"
        metavar = self.metavar or _metavar(_choices(_without_none(get_args(self.kind)[0])))
        add(*self.flags, type=self.read, metavar=metavar, **common)


class _OnOrOff(argparse.Action):
    """A switch: `--name`, and `--no-name`, which turns off what a default or a preset has turned on."""

    def __init__(self, option_strings: Sequence[str], dest: str, **settings: Any) -> None:
        self._off = [f"--no-{flag.removeprefix('--')}" for flag in option_strings if flag.startswith("--")]
        super().__init__([*option_strings, *self._off], dest, nargs=0, **settings)

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, flag: str | None = None) -> None:
        """Set the value."""
        setattr(namespace, self.dest, flag not in self._off)


class Options(BaseModel):
    """The options of one algorithm; subclassed as `Options` in the algorithm's class."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True)

    @classmethod
    def of(cls: type[_OptionsT], options: Any = None, /, **settings: Any) -> _OptionsT:
        """Make the options from values.

        Args:
            options: an object of this class, which is returned; None: there are `settings`.
            settings: values by name.

        Raises:
            TypeError: there is no such option, or the object is another class's.
            ValueError: a value cannot be used; the message names it and says what was expected.
        """
        owner = cls.__qualname__.rpartition(".")[0] or cls.__name__
        if options is not None:
            # Nor may it be a subclass, some of whose options would have no effect.
            if type(options) is not cls or settings:
                raise TypeError(f"{owner} was given {options!r}; give it options by name, or one {cls.__qualname__}")
            return options
        for name in settings:
            if name not in cls.model_fields:
                raise TypeError(f"{owner} has no option {name!r}; it has {', '.join(cls.model_fields) or 'none'}")
        try:
            return cls(**settings)
        except ValidationError as error:
            raise ValueError(_all_problems(cls, error)) from None

    @classmethod
    def info(cls) -> Iterator[OptionInfo]:
        """Yield the facts about each option, in the order of their declaration."""
        for name, field in cls.model_fields.items():
            yield _describe(name, field)

    @property
    def agreed(self) -> dict[str, Any]:
        """Options that all workers must have in common: name in messages → value, for JSON."""
        return self._values_where(lambda info: not info.per_device)

    @property
    def fixed(self) -> dict[str, Any]:
        """Options that a resumed run must take from its checkpoint: name in messages → value."""
        return self._values_where(lambda info: info.fixed)

    def _values_where(self, chosen: Callable[[OptionInfo], bool]) -> dict[str, Any]:
        values = self.model_dump(mode="json")
        return {info.agreed_as: values[info.name] for info in self.info() if chosen(info)}


def _field(default: Any, info: OptionInfo) -> Any:
    return Field(default, json_schema_extra={_KEY: info}, **dict(info.bounds))  # type: ignore[call-overload]


def _declared(field: FieldInfo) -> OptionInfo:
    """Return what `option` has said about a field."""
    extra: Any = field.json_schema_extra
    return extra[_KEY] if isinstance(extra, dict) and _KEY in extra else OptionInfo()


def _describe(name: str, field: FieldInfo) -> OptionInfo:
    info = _declared(field)
    flags = tuple(flag or f"--{name.replace('_', '-')}" for flag in info.flags)
    return replace(
        info,
        flags=flags,
        agreed_as=info.agreed_as or (flags[-1] if flags else name),
        name=name,
        default=None if field.default is PydanticUndefined else field.default,
        kind=annotated(field.annotation, field.metadata),
    )


def annotated(kind: Any, bounds: Iterable[Any]) -> Any:
    """Return `Annotated[kind, *bounds, None]`; None, because there has to be something."""
    return operator.getitem(Annotated, (kind, *bounds, None))


def _without_none(kind: Any) -> Any:
    """Return a type without None as its alternative."""
    if get_origin(kind) in (Union, UnionType):
        rest = tuple(argument for argument in get_args(kind) if argument is not type(None))
        return Union[rest] if rest else kind  # noqa: UP007 - of as many types as there are
    return kind


def _choices(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) is Literal else ()


def _metavar(choices: tuple[Any, ...]) -> str | None:
    return "{" + ",".join(map(str, choices)) + "}" if choices else None


def expected_values(kind: Any) -> str:
    """Return a description of the values of an annotated type that completes "should be"."""
    base, *bounds = get_args(kind) if get_origin(kind) is Annotated else (kind,)
    base = _without_none(base)
    if get_origin(base) in (Union, UnionType):
        *first, last = (expected_values(annotated(argument, bounds)) for argument in get_args(base))
        return f"{', '.join(first)}, or {last}"
    if choices := _choices(base):
        return f"one of {', '.join(map(str, choices))}" if len(choices) > 1 else str(choices[0])
    if base is bool:
        return "true or false"
    if get_origin(base) is tuple:
        return f"a list of values, each {expected_values(get_args(base)[0])}"
    if base not in (int, float):
        return "a text" if base is str else f"a {getattr(base, '__name__', str(base))}"
    noun = "a whole number" if base is int else "a number"
    limit = limits(bounds)
    words = []
    if "ge" in limit:
        words.append(f"from {limit['ge']:g}" if "le" in limit else f"of {limit['ge']:g} or more")
    if "gt" in limit:
        words.append(f"above {limit['gt']:g}")
    if "le" in limit:
        words.append(f"to {limit['le']:g}" if "ge" in limit else f"at most {limit['le']:g}")
    if "lt" in limit:
        words.append(f"below {limit['lt']:g}")
    joined = " ".join(words) if "ge" in limit and "le" in limit else ", ".join(words)
    return f"{noun} {joined}".strip()


def limits(bounds: Iterable[Any]) -> dict[str, float]:
    """Return the bounds of an annotated number: ge, gt, le, lt → the value."""
    limit: dict[str, float] = {}
    for bound in [inner for outer in bounds for inner in (outer.metadata if isinstance(outer, FieldInfo) else [outer])]:
        for name in ("ge", "gt", "le", "lt"):
            if getattr(bound, name, None) is not None:
                limit[name] = getattr(bound, name)
    return limit


def _problem(error: ValidationError, kind: Any, value: Any) -> str:
    """Return what is wrong with a value, with a check's own message where it has one."""
    for problem in error.errors(include_url=False):
        if problem["type"] == "value_error":
            return str(problem["ctx"]["error"])
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value!r} should be a finite number"
    return f"{value!r} should be {expected_values(kind)}"


def _all_problems(cls: type[Options], error: ValidationError) -> str:
    """Return what is wrong with several options, by their names."""
    fields = {info.name: info for info in cls.info()}
    texts: dict[str, str] = {}
    for problem in error.errors(include_url=False):
        name = str(problem["loc"][0]) if problem["loc"] else ""
        if problem["type"] == "value_error" or name not in fields:
            texts[name] = str(problem["ctx"]["error"]) if "error" in problem.get("ctx", {}) else problem["msg"]
        elif name not in texts:
            kind = fields[name].item if fields[name].several and len(problem["loc"]) > 1 else fields[name].kind
            texts[name] = f"{name} is {problem['input']!r}, but should be {expected_values(kind)}"
    return "; ".join(texts.values())
