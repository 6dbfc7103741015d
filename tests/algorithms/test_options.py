import argparse
import enum
from pathlib import Path
from typing import Annotated, Literal, get_args
from unittest import mock

import pytest
from pydantic import AfterValidator, Field, ValidationError

from esync import config
from esync.algorithms import (
    ALGORITHMS,
    ASGD,
    DCASGD,
    SCAFFOLD,
    SSGD,
    SSP,
    DiLoCo,
    DyLU,
    ESync,
    FedProx,
    LocalSGD,
    SyncSwitch,
    make,
)
from esync.algorithms.exchange_options import AsynchronousOptions
from esync.algorithms.options import Options, inherited, option
from esync.algorithms.registry import options_of, register
from esync.algorithms.styles import Style
from esync.algorithms.switch_schedule import MOMENTUM_AT_SWITCH
from esync.arguments import choose_algorithm, effective, read


def shouted(text: str) -> str:
    if text.islower():
        raise ValueError(f"{text!r} should be shouted")
    return text


class Many(Options):
    """One of each kind."""

    count: int = option(3, ge=1, help="how many")
    rate: float = option(0.5, gt=0, lt=1, flag=("-r", "--rate-of-it"), help="how fast")
    kind: Literal["one", "two"] = option("one", help="which")
    wait: Annotated[float, Field(ge=0)] | Literal["auto"] = option("auto", help="how long")
    on: bool = option(False, help="whether")
    steps: tuple[Annotated[int, Field(ge=1)], ...] = option((), metavar="STEP", help="when")
    word: Annotated[str, AfterValidator(shouted)] = option("A", help="what")
    limit: int | None = option(None, ge=0, help="at most")
    inner: int = option(7, flag=None)
    batch: int = option(1, shared="batch_size")
    own: float = option(1.0, per_device=True, help="mine")
    kept: float = option(2.0, fixed=True, agreed_as="what is kept", help="kept")


def parser(options: type[Options] = Many) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("program", allow_abbrev=False)
    for info in options.info():
        if info.flags:
            info.add_to(parser.add_argument)
    return parser


def test_options_of_every_kind_become_flags_with_defaults():
    args = vars(parser().parse_args([]))
    assert args == {
        **{"count": 3, "rate_of_it": 0.5, "kind": "one", "wait": "auto", "on": False, "steps": (), "word": "A"},
        **{"limit": None, "own": 1.0, "kept": 2.0},
    }


def test_flags_convert_to_the_types_of_the_options():
    words = ["--count", "2", "-r", "0.25", "--kind", "two", "--wait", "1.5", "--on"]
    words += ["--steps", "1", "20", "--word", "B", "--limit", "0"]
    args = parser().parse_args(words)
    values = (args.count, args.rate_of_it, args.kind, args.wait, args.on, args.steps, args.word, args.limit)
    assert values == (2, 0.25, "two", 1.5, True, [1, 20], "B", 0)
    assert Many(steps=args.steps).steps == (1, 20)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--count 0", "argument --count: '0' should be a whole number of 1 or more"),
        ("--count 1.5", "'1.5' should be a whole number of 1 or more"),
        ("-r 1", "argument -r/--rate-of-it: '1' should be a number above 0, below 1"),
        ("-r nan", "'nan' should be a number above 0, below 1"),
        ("-r inf", "'inf' should be a number above 0, below 1"),
        ("--kind three", "'three' should be one of one, two"),
        ("--wait soon", "'soon' should be a number of 0 or more, or auto"),
        ("--wait -1", "'-1' should be a number of 0 or more, or auto"),
        ("--steps 3 0", "argument --steps: '0' should be a whole number of 1 or more"),
        ("--word quiet", "argument --word: 'quiet' should be shouted"),
        ("--limit none", "'none' should be a whole number of 0 or more"),
        ("--inner 3", "unrecognized arguments"),
        ("--batch 3", "unrecognized arguments"),
    ],
)
def test_flag_with_bad_value_names_it_and_what_was_expected(words, message, capsys):
    with pytest.raises(SystemExit):
        parser().parse_args(words.split())
    assert message in capsys.readouterr().err


def test_help_shows_defaults_of_0():
    class Quiet(Options):
        level: float = option(0.0, help="100% loud")

    assert "100% loud (default: 0.0)" in parser(Quiet).format_help()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"count": "many"}, "count is 'many', but should be a whole number of 1 or more"),
        ({"rate": float("nan")}, "rate is nan, but should be a number above 0, below 1"),
        ({"steps": (1, 0)}, "steps is 0, but should be a whole number of 1 or more"),
        ({"steps": 3}, "steps is 3, but should be a list of values, each a whole number of 1 or more"),
        ({"word": "quiet"}, "'quiet' should be shouted"),
        ({"count": 0, "kind": 3}, "count is 0.*; kind is 3"),
    ],
)
def test_options_in_python_with_bad_value_name_it(settings, message):
    with pytest.raises(ValueError, match=message) as error:
        Many.of(**settings)
    assert not isinstance(error.value, ValidationError)


def test_options_in_python_with_unknown_name_are_refused():
    with pytest.raises(TypeError, match="SSP has no option 'stale'; it has lr_decay, statistics, staleness"):
        SSP(stale=3)
    with pytest.raises(TypeError, match=r"SSP was given 3; give it options by name, or one SSP\.Options"):
        SSP(3)


def test_options_may_be_given_as_an_object():
    options = SSP.Options(staleness=5)
    assert SSP(options).options is options


def test_options_object_of_another_class_is_refused():
    """A subclass's options are refused, too: ASGD would ignore the staleness, but run.json would
    list it.
    """
    with pytest.raises(
        TypeError, match=r"ASGD was given Options\(.*staleness=9\); give it options by name, or one ASGD\.Options"
    ):
        ASGD(SSP.Options(staleness=9))
    with pytest.raises(TypeError, match=r"SSP was given Options\(.*\); give it options by name, or one SSP\.Options"):
        SSP(ASGD.Options())


@pytest.mark.parametrize("mode", ALGORITHMS)
def test_option_that_is_set_on_an_algorithm_is_refused(mode):
    algorithm = ALGORITHMS[mode]()
    options, kind = algorithm.options.model_copy(), type(algorithm).__name__
    for name in type(options).model_fields:
        with pytest.raises(AttributeError, match=rf"{kind}\.{name} is an option .* {kind}\({name}=5\)"):
            setattr(algorithm, name, 5)
    with pytest.raises(AttributeError, match=rf"{kind}\.options cannot be changed"):
        algorithm.options = options
    assert algorithm.options == options


@pytest.mark.parametrize("name", ["iterations", "result", "context", "step"])
def test_option_with_the_name_of_an_attribute_is_refused(name):
    class Options(LocalSGD.Options):
        __annotations__ = {name: int}

    with pytest.raises(TypeError, match=rf"Own\.{name} is an attribute: no option in Own\.Options can have its name"):
        type("Own", (LocalSGD,), {"Options": Options})


def test_attribute_of_a_class_with_the_name_of_an_option_is_refused():
    with pytest.raises(TypeError, match=r"Own\.local_iterations is an attribute: no option"):

        class Own(LocalSGD):
            local_iterations = 2


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (SSP, "staleness", -1),
        (DiLoCo, "outer_momentum", 1.0),
        (DiLoCo, "weighting", "fair"),
        (ESync, "epsilon", "some"),
        (ESync, "local_iterations", 0),
        (DyLU, "statistics", "rank1"),
        (FedProx, "prox_mu", -1),
        (DCASGD, "on", "median"),
        (SCAFFOLD, "weighting", "samples"),
        (SCAFFOLD, "overlap", True),
    ],
)
def test_algorithm_option_with_unusable_value_is_refused(kind, name, value):
    with pytest.raises(ValueError, match=f"{name} is {value!r}, but should be"):
        kind(**{name: value})


def test_make_with_algorithm_class_instead_of_object_is_refused():
    with pytest.raises(TypeError, match=r"ASGD.*should be a name or an object, such as ASGD\(\)"):
        make(ASGD)


def test_run_ahead_is_enough_for_overlap():
    assert ESync(run_ahead=3).options.overlap


def test_options_agreed_and_fixed_list_what_workers_and_checkpoints_compare():
    options = Many()
    assert options.agreed == {
        **{"--count": 3, "--rate-of-it": 0.5, "--kind": "one", "--wait": "auto", "--on": False, "--steps": []},
        **{"--word": "A", "--limit": None, "inner": 7, "batch": 1, "what is kept": 2.0},
    }
    assert options.fixed == {"what is kept": 2.0}


# --- the registry ---------------------------------------------------------------------------------


@pytest.fixture
def registry():
    with mock.patch.dict(ALGORITHMS):
        yield ALGORITHMS


def test_register_gives_a_style_and_a_name(registry):
    @register("my-own.1", label="My own (α)")
    class Own(SSGD):
        pass

    assert registry["my-own.1"] is Own
    assert (Own.name, Own.label, Own.summary) == ("my-own.1", "My own (α)", "My-own")
    assert isinstance(Own.style, Style)
    assert SSGD.name == "sync"


@pytest.mark.parametrize(
    "changed",
    [
        lambda: option(3, ge=0, agreed_as="staleness", help="something else"),
        lambda: option(3, ge=1, help="iterations that a worker may be ahead of the slowest"),
    ],
)
def test_register_with_shared_flag_of_another_meaning_is_refused(registry, changed):
    class Own(SSGD):
        class Options(SSGD.Options):
            staleness: int = changed()

    with pytest.raises(ValueError, match="Own has a flag --staleness of another type or meaning than SSP"):
        register("own")(Own)
    assert "own" not in registry


def test_register_with_shared_flag_of_another_default_is_accepted(registry):
    @register("own")
    class Own(SSGD):
        class Options(SSGD.Options):
            staleness: int = inherited(SSP.Options, "staleness", 9)

    assert read("worker", "", ["-m", "own"]).staleness == 9
    assert read("worker", "", ["-m", "ssp"]).staleness == config.STALENESS


def test_register_makes_a_mode_with_its_flags(registry, capsys):
    @register("own", label="Own")
    class Own(SSGD):
        class Options(SSGD.Options):
            gain: float = option(0.5, ge=0, help="of it")
            batch: int = option(1, shared="batch_size")
            twice: bool = option(False, help="do it twice")

    options = read("worker", "", ["-m", "own", "--gain", "2", "-b", "16", "--twice"])
    algorithm = choose_algorithm(options)
    assert isinstance(algorithm, Own)
    inherited = SSGD().options.model_dump()
    assert algorithm.options.model_dump() == {**inherited, "gain": 2.0, "batch": 16, "twice": True}
    assert effective(options)["gain"] == 2.0
    assert "--gain makes no sense with --mode sync; it is for own" in refusal(capsys, "-m", "sync", "--gain", "2")


def refusal(capsys, *words: str) -> str:
    """What the worker's parser says of a command line that it refuses."""
    with pytest.raises(SystemExit) as end:
        read("worker", "", words)
    assert end.value.code == 2
    return capsys.readouterr().err


class Colour(enum.Enum):
    RED = "red"


def test_effective_options_are_serializable_as_json(registry):
    @register("own")
    class Own(SSGD):
        class Options(SSGD.Options):
            colour: Colour = option(Colour.RED, help="of it")
            place: Path = option(Path("/tmp"), help="of it")
            several: tuple[Path, ...] = option((), help="of it")

    options = effective(read("worker", "", ["-m", "own", "--place", "/x", "--several", "/y"]))
    assert (options["colour"], options["place"], options["several"]) == ("red", "/x", ["/y"])
    expected = {"colour": "red", "place": "/tmp", "several": []}
    assert Own().effective_options == {**SSGD().effective_options, **expected}


def test_option_switch_on_by_default_can_be_turned_off(registry):
    @register("own")
    class Own(SSGD):
        class Options(SSGD.Options):
            nesterov: bool = option(True, help="look ahead")

    def nesterov_of(*words):
        return choose_algorithm(read("worker", "", ["-m", "own", *words])).options.nesterov

    assert nesterov_of()
    assert nesterov_of("--nesterov")
    assert not nesterov_of("--no-nesterov")


@pytest.mark.parametrize(
    ("seed", "expected_message"),
    [
        (option(0, help="mine"), "--seed"),
        (option(0, flag=None), "Own has an option 'seed' for Python alone, and there is a flag of all modes"),
    ],
)
def test_option_with_name_of_a_flag_of_all_modes_is_refused(registry, capsys, seed, expected_message):
    """Both would be called seed in run.json."""
    fields = {"__annotations__": {"seed": int}, "seed": seed}
    register("own")(type("Own", (SSGD,), {"Options": type("Options", (SSGD.Options,), fields)}))
    message = refusal(capsys, "-m", "own")
    assert "Own" in message
    assert expected_message in message


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_options_of_built_in_algorithms_have_help_and_the_same_defaults_in_python(name):
    kind = ALGORITHMS[name]
    needed = ["--epochs", "1"] if name == "sync-switch" else []
    defaults = choose_algorithm(read("worker", "", ["--mode", name, *needed])).options.model_dump()
    assert {**defaults, "batch_size": 1} == {**kind().options.model_dump(), "batch_size": 1}
    assert all(info.help or not info.flags for info in options_of(kind))
    asynchronous = kind.switches_synchrony or not kind.synchronous
    assert asynchronous == issubclass(kind.Options, AsynchronousOptions)


def test_sync_switch_options_name_every_momentum_at_the_switch():
    kinds = get_args(SyncSwitch.Options.model_fields["switch_momentum"].annotation)
    assert kinds == tuple(MOMENTUM_AT_SWITCH)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--switch-momentum", "half"], "one of keep, reset, zero, scale, linear, doubling"),
        (["--switch-momentum", "zero", "--switch-order", "01"], "switch order 01 has none"),
        (["--switch-momentum", "zero", "--momentum-ramp", "0.1"], "--momentum-ramp needs --switch-momentum linear or"),
        (["--switch-momentum", "linear", "--momentum-ramp", "0"], "above 0"),
    ],
)
def test_sync_switch_momentum_flags_that_do_not_fit_are_refused(words, message, capsys):
    assert message in refusal(capsys, "--mode", "sync-switch", "--epochs", "1", *words)
