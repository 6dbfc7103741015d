"""Registration of an algorithm: its name, label, style and options."""

import pytest

from esync.algorithms import ASGD, LocalSGD
from esync.algorithms.options import Options, option
from esync.algorithms.registry import ALGORITHMS, is_stem, register, stem_of


class Mine(ASGD):
    """Nothing of its own."""


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"name": "Mine"}, "name is 'Mine'"),
        ({"name": "../mine"}, "name is '../mine'"),
        ({"name": "m" * 65}, "name is 'mmm"),
        ({"name": "mine-niid"}, "nor be 'figures'"),
        ({"name": "figures"}, "name is 'figures'"),
        ({"label": ""}, "label of 'mine' is ''"),
        ({"label": "two\nlines"}, r"label of 'mine' is 'two\\nlines'"),
        ({"label": "x" * 61}, "one line of up to 60 printable characters"),
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


def own_options(parent: type, annotations: dict, **defaults: object) -> type:
    return type("Options", (parent,), {"__annotations__": annotations, **defaults})


@pytest.mark.parametrize(
    ("options", "error", "problem"),
    [
        (
            own_options(object, {}),
            TypeError,
            r"Mine.Options lacks the options of LocalSGD: write class Options\(LocalSGD.Options\)",
        ),
        (own_options(Options, {}), TypeError, "Mine.Options lacks the options of LocalSGD"),
        (
            own_options(LocalSGD.Options, {"clip": float}),
            TypeError,
            "Mine.Options: clip has no default; give it one, as clip: … = option",
        ),
        *(
            (
                own_options(LocalSGD.Options, {"clip": kind}, clip=clip),
                ValueError,
                f"the defaults of Mine.Options cannot be used: {problem}",
            )
            for kind, clip, problem in (
                (float, option(1.5, lt=1), "clip is 1.5, but should be a number below 1"),
                (int, option("x"), "clip is 'x', but should be a whole number"),
            )
        ),
    ],
)
def test_register_with_unusable_options_is_refused(options: type, error: type[Exception], problem: str) -> None:
    with pytest.raises(error, match=problem):
        register("mine")(type("Mine", (LocalSGD,), {"Options": options}))
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
    options = own_options(LocalSGD.Options, {"other": int, name: int}, other=option(1), **{name: option(2, **settings)})
    with pytest.raises(ValueError, match=f"Mine.Options: .*{problem}"):
        register("mine")(type("Mine", (LocalSGD,), {"Options": options}))
    assert "mine" not in ALGORITHMS


@pytest.mark.parametrize("kind", [list[int], tuple[int, int], dict[str, int], list[int] | None])
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
