"""What a type checker finds in a user's program, with the package as installed."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import esync
from esync.gluon import trainer_interface
from esync.gradient_sgd import GradientSGD
from esync.runtime.mxnet_import import mx

from .support import child
from .support.documented import example
from .support.small_net import make_net

ROOT = Path(__file__).parents[1]

WRONG = """\
import esync
from esync import mx
from esync.gradient_sgd import GradientSGD

net = mx.gluon.nn.Dense(1)
trainer = esync.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, algorithm="local")
trainer.stepp(3)  # "Trainer" has no attribute "stepp"
trainer.step("three")  # Argument 1 to "step" of "Trainer" has incompatible type "str"; expected "float"
trainer.set_learning_rate("high")  # Argument 1 to "set_learning_rate" of "GluonTrainer" has incompatible type "str"
trainer.learning_rate = 0.1  # Property "learning_rate" defined in "GluonTrainer" is read-only
trainer.algorithm.rounds  # "Algorithm" has no attribute "rounds"
esync.Trainer(net.collect_params(), "sgd", algoritm="local")  # Unexpected keyword argument "algoritm" for "Trainer"
esync.Trainer(net.collect_params(), "sgd", limits=3)  # Argument "limits" to "Trainer" has incompatible type "int"
esync.Trainerr  # Module has no attribute "Trainerr"
esync.Limits(round=3)  # Unexpected keyword argument "round" for "Limits"
esync.Checkpoints("kept", evry=3)  # Unexpected keyword argument "evry" for "Checkpoints"
esync.Checkpoints("kept").save_if_do()  # "Checkpoints" has no attribute "save_if_do"
esync.reseed(trainer)  # Missing positional argument "seed" in call to "reseed"
esync.algorithms.ESyncc  # Module has no attribute "ESyncc"
esync.data.loadd  # Module has no attribute "loadd"
esync.world.RealWorld(collectiv="ring")  # Unexpected keyword argument "collectiv" for "RealWorld"
published = GradientSGD(net.collect_params(), lr=0.1, limit=3)  # Unexpected keyword argument "limit" for "GradientSGD"
published.stepp(3)  # "GradientSGD" has no attribute "stepp"
"""

RIGHT = """\
import esync
from esync import mx
from typing_extensions import assert_type

trainer = esync.Trainer(mx.gluon.nn.Dense(1).collect_params(), "sgd")
assert_type(trainer.learning_rate, float)
assert_type(trainer.rank, int)
assert_type(trainer.members, tuple[int, ...])
assert_type(trainer.step(64, ignore_stale_grad=True), None)
assert_type(trainer.checkpoints, esync.Checkpoints | None)
assert_type(trainer.algorithm, esync.algorithms.Algorithm)
assert_type(esync.__version__, str)
with trainer.trial() as nothing, trainer.mean_statistics():
    assert_type(nothing, None)
trainer.set_learning_rate(trainer.learning_rate / 2)
trainer.save_states("states")
"""

CLEAN = {"right": RIGHT, "documented": example("growing.py")} | {
    name: (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8") for name in ("own_model", "dgs_training")
}


def expected(source: str) -> list[tuple[int, str]]:
    """The comment of every line that has one, with the line's number."""
    lines = enumerate(source.splitlines(), start=1)
    return [(number, line.split("  # ")[1]) for number, line in lines if "  # " in line]


def test_mypy_finds_the_mistakes_in_users_files_and_no_others(tmp_path):
    """mypy takes what is in PYTHONPATH for installed: without py.typed it would not look at this package's hints."""
    pytest.importorskip("setuptools", reason="it builds this package")
    folders = ["--build-lib", str(tmp_path / "lib"), "--build-base", str(tmp_path / "base")]
    build = ["-c", "import setuptools; setuptools.setup()", "-q", "build", *folders]
    subprocess.run([sys.executable, *build], cwd=ROOT, check=True, capture_output=True)
    for name, source in {"wrong": WRONG, **CLEAN}.items():
        (tmp_path / f"user_{name}.py").write_text(source, encoding="utf-8")
    files = [f"user_{name}.py" for name in ("wrong", *CLEAN)]
    result = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={tmp_path / 'cache'}", *files],
        cwd=tmp_path,
        env=child.environment(PYTHONPATH=str(tmp_path / "lib")),
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert not result.stderr
    *errors, summary = [line for line in result.stdout.splitlines() if ": note: " not in line]
    for error, (line, message) in zip(errors, expected(WRONG), strict=True):
        assert error.startswith(f"user_wrong.py:{line}: error: {message}")
    assert summary == f"Found {len(errors)} errors in 1 file (checked {len(files)} source files)"


def test_declared_trainer_interface_is_that_of_gluon():
    tree = ast.parse(inspect.getsource(trainer_interface))
    declared = next(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    methods = {node.name: node.args for node in declared.body if isinstance(node, ast.FunctionDef)}
    gluon = mx.gluon.Trainer
    assert {name for name in vars(gluon) if not name.startswith("_")} == set(methods) - {"__init__", "_init_optimizer"}
    for name, arguments in methods.items():
        real = getattr(gluon, name)
        if not isinstance(real, property):
            parameters = inspect.signature(real).parameters
            assert [argument.arg for argument in arguments.args] == list(parameters)
            defaults = [
                parameter.default
                for parameter in parameters.values()
                if parameter.default is not inspect.Parameter.empty
            ]
            assert [ast.literal_eval(default) for default in arguments.defaults] == defaults
    attributes = {node.target.id for node in declared.body if isinstance(node, ast.AnnAssign)}
    assert attributes <= set(vars(gluon(make_net().collect_params(), "sgd")))


def test_gradient_sgd_takes_the_keywords_of_the_trainer():
    def keywords(cls: type) -> dict[str, inspect.Parameter]:
        parameters = inspect.signature(cls).parameters.items()
        return {name: parameter for name, parameter in parameters if parameter.kind is inspect.Parameter.KEYWORD_ONLY}

    assert keywords(GradientSGD) == {
        name: keyword for name, keyword in keywords(esync.Trainer).items() if name != "algorithm"
    }


def test_dir_of_the_package_lists_what_is_public():
    assert dir(esync) == sorted(esync.__all__)
    assert {"Trainer", "Checkpoints", "Limits", "reseed", "algorithms"} <= set(dir(esync))
    for name in dir(esync):
        assert getattr(esync, name) is not None


def test_misspelled_attribute_of_the_package_suggests_the_right_one():
    result = child.run("-c", "import esync\nesync.Trainerr")
    assert result.stderr.splitlines()[-1] == (
        "AttributeError: module 'esync' has no attribute 'Trainerr'. Did you mean: 'Trainer'?"
    )
