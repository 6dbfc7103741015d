"""Registration of an algorithm: its name, label, style and options."""

import pytest

from esync.algorithms import ASGD, LocalSGD
from esync.algorithms.options import Options, option
from esync.algorithms.registry import ALGORITHMS, is_stem, register, stem_of
from esync.runtime.output import is_label


class Mine(ASGD):
    """Nothing of its own."""


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"name": "Mine"}, "name is 'Mine'"),
        ({"name": "../mine"}, "name is '../mine'"),
        ({"name": ".mine"}, "name is '.mine'"),
        ({"name": "m" * 65}, "name is 'mmm"),
        ({"name": "mine-niid"}, "nor be 'figures'"),
        ({"name": "figures"}, "name is 'figures'"),
        ({"label": ""}, "label of 'mine' is ''"),
        ({"label": "two\nlines"}, r"label of 'mine' is 'two\\nlines'"),
        ({"label": "x" * 61}, "one line of up to 60 printable characters"),
        ({"summary": "../Mine"}, "summary of 'mine' is '../Mine'"),
        ({"summary": ".Mine"}, "summary of 'mine' is '.Mine'"),
        ({"summary": "Run"}, "none of run, speedup"),
    ],
)
def test_register_with_unusable_name_or_label_is_refused(settings: dict, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        register(**{"name": "mine"} | settings)
    assert "mine" not in ALGORITHMS


@pytest.mark.parametrize(
    ("texts", "stem"),
    [
        (("Local SGD", "x"), "Local-SGD"),
        (("Dr. Ä & B", "x"), "Dr.-B"),
        (("…", "mine"), "mine"),
        (("_x_", "y"), "x"),
        (("Run", "run"), "summary"),
        (("../../x",), "x"),
        (("x" * 300,), "x" * 64),
        (("…",), "summary"),
    ],
)
def test_stem_of_is_made_of_the_label_or_else_the_name(texts: tuple[str, ...], stem: str) -> None:
    assert stem_of(*texts) == stem
    assert is_stem(stem)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            type("Options", (), {}),
            r"Mine.Options lacks the options of LocalSGD: write class Options\(LocalSGD.Options\)",
        ),
        (type("Options", (Options,), {}), r"Mine.Options lacks the options of LocalSGD"),
        (
            type("Options", (LocalSGD.Options,), {"__annotations__": {"clip": float}}),
            "Mine.Options: clip has no default; give it one, as clip: … = option",
        ),
    ],
)
def test_register_with_options_not_derived_or_without_default_is_refused(options: type, problem: str) -> None:
    algorithm = type("Mine", (LocalSGD,), {"Options": options})
    with pytest.raises(TypeError, match=problem):
        register("mine")(algorithm)
    assert "mine" not in ALGORITHMS


@pytest.mark.filterwarnings("ignore:Field name")
@pytest.mark.parametrize(
    ("name", "settings", "problem"),
    [
        ("agreed", {}, "an option cannot be called 'agreed', as an attribute of all Options is"),
        ("fixed", {}, "an option cannot be called 'fixed'"),
        ("own", {"flag": "own"}, "is 'own', but should be a long one"),
        ("own", {"flag": "-o"}, "is '-o', but should be a long one"),
        ("own", {"flag": "--own_x"}, "is '--own_x', but should be a long one"),  # launch would pass --own-x on
        ("own", {"flag": ("-mx", "--own")}, "is '-mx', but should be like -x"),  # argparse: -m x
        ("own", {"flag": "--other"}, "other and own have the same flag --other"),
    ],
)
def test_register_with_options_that_flags_cannot_hold_is_refused(name: str, settings: dict, problem: str) -> None:
    space = {"__annotations__": {"other": int, name: int}, "other": option(1), name: option(2, **settings)}
    algorithm = type("Mine", (LocalSGD,), {"Options": type("Options", (LocalSGD.Options,), space)})
    with pytest.raises(ValueError, match=f"Mine.Options: .*{problem}"):
        register("mine")(algorithm)
    assert "mine" not in ALGORITHMS


@pytest.mark.parametrize(
    ("space", "problem"),
    [
        (
            {"__annotations__": {"clip": float}, "clip": option(1.5, lt=1)},
            "clip is 1.5, but should be a number below 1",
        ),
        ({"__annotations__": {"clip": int}, "clip": option("x")}, "clip is 'x', but should be a whole number"),
    ],
)
def test_register_with_unusable_default_is_refused(space: dict, problem: str) -> None:
    algorithm = type("Mine", (LocalSGD,), {"Options": type("Options", (LocalSGD.Options,), space)})
    with pytest.raises(ValueError, match=f"the defaults of Mine.Options cannot be used: {problem}"):
        register("mine")(algorithm)
    assert "mine" not in ALGORITHMS


def test_built_in_algorithms_have_valid_labels_and_summaries() -> None:
    for algorithm in ALGORITHMS.values():
        assert is_label(algorithm.label)
        assert is_stem(algorithm.summary)


@pytest.mark.parametrize("kind", [list[int], tuple[int, int], dict[str, int], set[str], list[int] | None])
def test_register_with_option_type_that_no_flag_can_set_is_refused(kind: object) -> None:
    class Own(ASGD):
        class Options(ASGD.Options):
            several: kind = option(None, help="several")

    with pytest.raises(
        ValueError, match=r"Own\.Options: no flag can give several its values; write tuple\[TYPE, \.\.\.\]"
    ):
        register("own")(Own)


def test_register_with_constructor_without_options_is_refused() -> None:
    class Own(ASGD):
        def __init__(self) -> None:
            super().__init__()

    with pytest.raises(TypeError, match=r"the constructor of .*Own cannot be given its options: write def __init__"):
        register("own")(Own)


def test_register_with_unknown_sends_is_refused() -> None:
    class Own(ASGD):
        sends = "weird"

    with pytest.raises(ValueError, match=r"Own\.sends is 'weird', but should be one of gradients, updates, nothing"):
        register("own")(Own)
