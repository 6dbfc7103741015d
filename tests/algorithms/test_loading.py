"""Algorithms from outside the package, loaded from real files, modules and entry points."""

import inspect
import logging
import pickle
import signal
import sys
import textwrap
from pathlib import Path
from types import FunctionType

import pytest

from esync import worker
from esync.algorithms import Algorithm, LocalSGD
from esync.algorithms.loading import (
    AlgorithmError,
    agreed_source,
    digest,
    entry_point_names,
    find,
    is_at_fault,
    load,
    source,
)
from esync.algorithms.registry import ALGORITHMS
from esync.launch.command import main as launch
from esync.runtime.errors import ExpectedError
from esync.simulate.__main__ import main as simulate

from ..support.child import run

ROOT = Path(__file__).parents[2]

#: A complete algorithm in a few lines; `{}` are its class's name and a line of its body.
ALGORITHM = """\
from esync.algorithms import Algorithm, options, register

class {}(Algorithm):
    {}

    class Options(options.Options):
        pass

    def step(self, batch_size):
        self._local_step(batch_size)
"""


def algorithm(name: str = "Mine", line: str = "sends = 'nothing'") -> str:
    return ALGORITHM.format(name, line)


@pytest.fixture(autouse=True)
def folder(code_folder: Path) -> Path:
    return code_folder


def write(file: str, text: str) -> Path:
    path = Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def entry_point(text: str, package: str = "plugin") -> None:
    """Install a package that consists of entry points in the folder `site`."""
    info = f"site/{package}-1.0.dist-info"
    write(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    site = str(write(f"{info}/entry_points.txt", text).parents[1].absolute())
    if site not in sys.path:
        sys.path.append(site)


def refused(text: str) -> str:
    """What the refusal of a text says."""
    with pytest.raises(AlgorithmError) as error:
        find(text)
    assert isinstance(error.value, ExpectedError)
    assert isinstance(error.value, ValueError)
    return str(error.value)


def python(program: str) -> str:
    """What a program, a file with one, or a module prints in a process of its own."""
    words = program.split() if program.endswith(".py") or program.startswith("-m ") else ["-c", program]
    done = run(*words, PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_load_from_file_returns_a_named_algorithm():
    write("mine.py", algorithm("FedProx"))
    algorithm_class = load("mine.py:FedProx")
    assert (algorithm_class.name, algorithm_class.label) == ("fed-prox", "FedProx")
    assert ALGORITHMS["fed-prox"] is algorithm_class
    assert source(algorithm_class) == "mine.py:FedProx"
    assert find("fed-prox") is algorithm_class
    assert sys.modules[algorithm_class.__module__].__name__ == "mine"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("ASGD2", "asgd2"), ("DGCAsyncOwn", "dgc-async-own"), ("Fed_Prox", "fed_prox"), ("_Private", "private")],
)
def test_load_makes_the_mode_name_from_the_class_name(name, expected):
    write("mine.py", algorithm(name))
    assert load(f"mine.py:{name}").name == expected


def test_load_uses_own_or_registered_name_but_not_an_inherited_one():
    decorated = algorithm("Two").replace("class Two", "@register('second', label='The second')\nclass Two")
    write("first.py", algorithm("One", "name = 'the-first'"))
    write("second.py", decorated)
    write("child.py", "from first import One\nclass Child(One):\n    pass\n")
    child = load("child.py:Child")
    assert (child.name, child.__mro__[1].name) == ("child", "the-first")
    assert load("first.py:One").name == "the-first"
    two = load("second.py:Two")
    assert (two.name, two.label) == ("second", "The second")
    assert load("second.py:Two") is two


def test_load_from_package_in_the_current_folder():
    write("mypackage/__init__.py", "")
    write("mypackage/core.py", "from .helper import LINE\n" + algorithm())
    write("mypackage/helper.py", "LINE = 1\n")
    algorithm_class = load("mypackage.core:Mine")
    assert algorithm_class.__module__ == "mypackage.core"
    assert source(algorithm_class) == "mypackage.core:Mine"


def test_load_prefers_installed_module_and_says_so(folder, caplog):
    write("site/mypackage/__init__.py", "")
    write("site/mypackage/core.py", algorithm())
    write("mypackage/core.py", algorithm("Mine", "sends = 'updates'"))
    sys.path.append(str(folder / "site"))
    assert load("mypackage.core:Mine").sends == "nothing"
    assert f"mypackage.core is {folder}/site/mypackage/core.py, not the one in {folder}" in caplog.text


def test_load_from_file_with_relative_import_suggests_module_form():
    write("mypackage/core.py", "from .helper import LINE\n" + algorithm())
    message = refused("mypackage/core.py:Mine")
    assert "mypackage/core.py, line 1" in message
    assert "package.module:NAME" in message


def test_load_finds_a_nested_class():
    head, body = algorithm("Inner").split("\n\n", 1)
    write("mine.py", f"{head}\nclass Outer:\n{textwrap.indent(body, '    ')}")
    algorithm_class = load("mine.py:Outer.Inner")
    assert (algorithm_class.name, algorithm_class.__qualname__) == ("inner", "Outer.Inner")


def test_load_imports_a_file_once(folder, monkeypatch):
    write("sub/mine.py", f"import builtins\nbuiltins.imports = getattr(builtins, 'imports', 0) + 1\n{algorithm()}")
    Path("link.py").symlink_to("sub/mine.py")
    monkeypatch.setenv("HOME", str(folder))
    texts = (
        "sub/mine.py:Mine",
        "./sub/../sub/mine.py:Mine",
        f"{folder}/sub/mine.py:Mine",
        "~/sub/mine.py:Mine",
        "link.py:Mine",
    )
    classes = {load(text) for text in texts}
    classes.add(load("mine:Mine"))  # its folder can be imported from, too
    import builtins

    assert len(classes) == 1
    assert vars(builtins).pop("imports") == 1


@pytest.mark.parametrize("stem", ["my algorithm", "2bit", "a.b", "lambda", "json", "esync", "wave"])
def test_load_from_file_named_like_another_module_or_none_leaves_that_module_alone(folder, stem):
    before = sys.modules.get(stem)
    write(f"{stem}.py", algorithm())
    algorithm_class = load(f"{stem}.py:Mine")
    assert sys.modules[algorithm_class.__module__].__file__ == str(folder / f"{stem}.py")
    if stem != "lambda":
        assert algorithm_class.__module__ != stem
        assert sys.modules.get(stem) is before
    assert digest(algorithm_class)
    assert pickle.loads(pickle.dumps(algorithm_class)) is algorithm_class


def test_load_from_folder_with_files_named_like_modules_breaks_no_import(folder):
    """This includes modules of the standard library that are imported later."""
    write("algorithms/json.py", algorithm())
    write("algorithms/wave.py", "raise ValueError('not this one')\n")
    program = (
        "from esync.algorithms.loading import load\nload('algorithms/json.py:Mine')\nimport wave\nprint(wave.__file__)"
    )
    assert not python(program).startswith(str(folder))


def test_current_folder_replaces_no_module():
    """`python -m` searches the current folder first."""
    for name in ("random", "copy", "json", "queue", "typing", "numpy", "pydantic", "yaml"):
        write(f"{name}.py", "raise ValueError('not this one')\n")
    python("-m esync.simulate --help")


def test_load_from_file_finds_helpers_beside_it():
    write("mine/helper_of_mine.py", "NAME = 'helped'\n")
    write("mine/main.py", "from helper_of_mine import NAME\n" + algorithm("Mine", "name = NAME"))
    assert load("mine/main.py:Mine").name == "helped"


def test_load_supports_dataclasses_and_postponed_annotations():
    text = algorithm().replace("pass", "mu: Strength = 0.1")
    late = "from __future__ import annotations\nfrom dataclasses import dataclass, KW_ONLY\nStrength = float\n"
    write("my-own.py", f"{late}@dataclass\nclass Data:\n    _: KW_ONLY\n    a: Strength = 1.0\n{text}")
    algorithm_class = load("my-own.py:Mine")
    assert algorithm_class.Options.of(mu=0.5).mu == 0.5


def test_load_from_module_that_registers_two_algorithms():
    both = algorithm("One") + algorithm("Two")
    both = both.replace("class One", "@register('uno')\nclass One").replace("class Two", "@register('due')\nclass Two")
    write("both.py", both)
    one = load("both.py:One")
    assert one.name == "uno"
    two = find("due")
    assert source(one) == "both.py:One"
    assert source(two) == "both:Two"  # it was registered beside the one that was named


def test_load_with_taken_name_is_refused():
    write("one.py", algorithm())
    write("two.py", algorithm())
    load("one.py:Mine")
    message = refused("two.py:Mine")
    assert "two.Mine cannot be called 'mine', as one.Mine is" in message
    assert "give it another name" in message
    write("ssp.py", algorithm("SSP"))
    assert "ssp.SSP cannot be called 'ssp', as esync.algorithms.ssp.SSP is: give it another name" in refused(
        "ssp.py:SSP"
    )
    write("three.py", algorithm("Three", "name = 'No Folder'"))
    assert "'No Folder'" in refused("three.py:Three")
    write("four.py", algorithm("Four", "name = 4"))
    assert "'four'" in refused("four.py:Four")


def test_load_of_object_that_is_no_algorithm_is_refused():
    write(
        "wrong.py",
        f"{algorithm()}\nclass Other:\n    pass\ndef function():\n    pass\n"
        "class Half(Algorithm):\n    class Options(options.Options):\n        pass\nmine = Mine.__new__(Mine)\n",
    )
    assert "should be a subclass of esync.algorithms.Algorithm" in refused("wrong.py:Other")
    assert "should be a subclass of esync.algorithms.Algorithm" in refused("wrong.py:function")
    assert "does not define step" in refused("wrong.py:Half")
    assert "name its class Mine" in refused("wrong.py:mine")
    assert "there is no class Mein; the algorithms there are: Mine, Half" in refused("wrong.py:Mein")
    assert "there is no class Mine.Inner" in refused("wrong.py:Mine.Inner")
    write("empty.py", "")
    assert "there is no algorithm there" in refused("empty.py:Mine")


def test_load_of_missing_name_is_refused_with_the_nearest(folder):
    write("fedprox.py", algorithm("FedProx"))
    for text in (":Mine", "mine.py:", "mine.py:1", "mine.py:a b"):
        assert "package.module:Class or file.py:Class" in refused(text)
    assert f"the file {folder}/fedprx.py is not there; did you mean fedprox.py?" in refused("fedprx.py:FedProx")
    Path("folder.py").mkdir()
    assert "is a folder" in refused("folder.py:Mine")
    assert "there is no module 'fedprx'" in refused("fedprx:FedProx")
    assert "there is no module 'fedprx'" in refused("fedprx.core:FedProx")
    assert "'fedprox.core'" in refused("fedprox.core:FedProx")
    assert "did you mean ./fedprox.py:FedProx?" in refused("./fedprox:FedProx")
    assert "names a file, but no class in it: fedprox.py:CLASS" in refused("fedprox.py")
    assert "no home directory ~nobody-here" in refused("~nobody-here/mine.py:Mine")
    load("fedprox.py:FedProx")
    message = refused("fed-prax")
    assert "unknown algorithm 'fed-prax' (did you mean 'fed-prox'?)" in message
    assert "file.py:Class" in message


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("raise ValueError('too small')", "wrong.py, line 3: ValueError: too small"),
        ("import no_such_module", "wrong.py, line 3: ModuleNotFoundError: No module named 'no_such_module'"),
        ("def f(:", "wrong.py, line 3: SyntaxError"),
        ("  x = 1", "wrong.py, line 3: IndentationError"),
        ("import sys; sys.exit(3)", "wrong.py, line 3: SystemExit: 3 (it calls sys.exit while it is imported)"),
        ("import json; json.loads('{')", "wrong.py, line 3: json.decoder.JSONDecodeError"),
        ("import numpy; numpy.zeros(-1)", "wrong.py, line 3: ValueError"),
        ("def f(): f()\nf()", "line 3: RecursionError"),
        ("import helper", "helper.py, line 2: ZeroDivisionError: division by zero"),
        ("import broken", "broken.py, line 1: SyntaxError"),
        ("eval('1 +')", "wrong.py, line 3: SyntaxError"),
        ("register('Not a name')(Algorithm)", "wrong.py, line 3: ValueError: an algorithm's name is 'Not a name'"),
        ("import mxnet", "wrong.py, line 3: ModuleNotFoundError"),
        (
            "from esync.runtime.mxnet_import import mx",
            "wrong.py, line 3: esync.runtime.mxnet_import.EngineMissingError",
        ),
    ],
)
def test_load_of_file_that_fails_to_import_names_the_line(monkeypatch, line, expected):
    monkeypatch.setitem(sys.modules, "mxnet", None)
    monkeypatch.delitem(sys.modules, "esync.runtime.mxnet_import", raising=False)
    head = "from esync.algorithms import Algorithm\nfrom esync.algorithms.registry import register\n"
    write("helper.py", "\n1 / 0\n")
    write("broken.py", "class\n")
    write("wrong.py", f"{head}{line}\n{algorithm()}")
    for form in ("wrong:Mine", "wrong.py:Mine"):
        message = refused(form)
        assert message.startswith(f"{form} cannot be imported: ")
        assert expected in message
    assert ("importable without MXNet: import it inside the methods" in message) == ("mx" in line)
    assert "wrong" not in sys.modules


def test_load_of_corrected_file_succeeds():
    text = algorithm().replace("class Mine", "@register('mine')\nclass Mine")
    write("mine.py", f"{text}\n1 / 0\n")
    assert "line 13: ZeroDivisionError" in refused("mine.py:Mine")
    assert "mine" not in ALGORITHMS
    write("mine.py", f"{text}\n")
    assert load("mine.py:Mine").name == "mine"


@pytest.fixture
def loaded():
    """Digest and source of an algorithm as a process of its own says them."""
    program = (
        "from esync.algorithms.loading import digest, load, source\nfound = load({!r})\n"
        "print(digest(found), source(found))"
    )
    return lambda text: python(program.format(text)).split(maxsplit=1)


def test_digest_depends_on_the_source_only(loaded):
    write("one/mine.py", algorithm())
    write("two/same algorithm.py", algorithm())
    one, same = (loaded(f"{file}:Mine") for file in ("one/mine.py", "two/same algorithm.py"))
    assert len(one[0]) == 12
    assert one[0] == same[0]
    assert same[1] == "two/same algorithm.py:Mine"


def test_digest_covers_inherited_files(loaded):
    write("child.py", "from base import Base\nclass Child(Base):\n    pass\n")
    digests = set()
    for line in ("sends = 'nothing'", "sends = 'updates'"):
        write("base.py", algorithm("Base", line))
        digests.add(loaded("child.py:Child")[0])
    assert len(digests) == 2


def test_digest_is_of_the_imported_source(loaded):
    file = write("mine.py", algorithm())
    mine = load("mine.py:Mine")
    file.write_text(algorithm("Mine", "sends = 'updates'"))
    assert load("mine.py:Mine") is mine
    write("same.py", algorithm())
    assert loaded("same.py:Mine")[0] == digest(mine)


def test_digest_of_built_in_algorithms_and_of_classes_without_a_file_is_empty():
    assert (digest(LocalSGD), source(LocalSGD)) == ("", "")
    space: dict[str, object] = {"__name__": "notebook"}
    exec(algorithm(), space)
    assert (digest(space["Mine"]), source(space["Mine"])) == ("", "notebook:Mine")


def test_load_of_class_in_the_running_program_does_not_run_it_again():
    lines = "from esync.algorithms.loading import *\nmine = load('program.py:Mine')\n"
    write("program.py", f"{algorithm()}{lines}print(mine is Mine, len(digest(mine)), agreed_source(mine))\n")
    assert python("program.py") == "True 12 {}"  # programs may differ from machine to machine
    write("program.py", algorithm())
    mine = load("program.py:Mine")
    assert agreed_source(mine) == {"digest of mine's source": digest(mine)}
    assert agreed_source(LocalSGD) == {}


def test_load_from_entry_point_of_an_installed_package():
    write("site/plugin/__init__.py", "")
    write("site/plugin/core.py", algorithm("FedDyn"))
    entry_point("[esync.algorithms]\nfeddyn = plugin.core:FedDyn [extra]\n[other]\nx = y:z\n")
    assert entry_point_names() == ("feddyn",)
    assert "plugin" not in sys.modules
    algorithm_class = find("feddyn")
    assert (algorithm_class.name, algorithm_class.label) == ("feddyn", "FedDyn")
    assert source(algorithm_class) == "feddyn"
    assert digest(algorithm_class)
    assert entry_point_names() == ()
    assert find("feddyn") is algorithm_class


def test_broken_entry_point_leaves_others_usable():
    write("site/plugin.py", algorithm("Good"))
    write("site/failing.py", "1 / 0\n")
    points = "good = plugin:Good\ngone = no_such_plugin:Gone\nfailing = failing:X\nwhole = plugin\nodd = ???\n"
    entry_point(f"[esync.algorithms]\n{points}other-name = plugin:Named\n")
    write("site/plugin.py", algorithm("Good") + algorithm("Named", "name = 'named'"))
    entry_point("[esync.algorithms]\nno equals sign\n", "nonsense")
    assert entry_point_names() == ("failing", "gone", "good", "odd", "other-name", "whole")
    assert find("good").name == "good"
    assert "entry point gone = no_such_plugin:Gone of plugin: " in refused("gone")
    assert "there is no module 'no_such_plugin'" in refused("gone")
    assert "failing.py, line 1: ZeroDivisionError" in refused("failing")
    assert "package.module:Class" in refused("whole")
    assert "entry point odd = ??? of plugin: " in refused("odd")
    assert "that class calls itself 'named'" in refused("other-name")


def test_entry_point_of_two_packages_is_refused():
    write("site/one.py", algorithm())
    for package in ("one", "two"):
        entry_point(f"[esync.algorithms]\nmine = {package}:Mine\n", package)
    message = refused("mine")
    assert "entry point mine = one:Mine of one" in message
    assert "entry point mine = two:Mine of two" in message
    assert load("one:Mine").name == "mine"


def test_entry_point_does_not_replace_a_built_in_algorithm(caplog):
    write("site/plugin.py", "1 / 0\n")
    entry_point("[esync.algorithms]\nlocal-sgd = plugin:Mine\n")
    with caplog.at_level(logging.WARNING):
        assert find("local-sgd") is LocalSGD
    assert "local-sgd is this package's own algorithm; not used: entry point local-sgd = plugin:Mine" in caplog.text
    assert entry_point_names() == ()


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("raise RuntimeError('mine')", True),
        ("return [][1]", True),
        ("import json; json.loads('{')", True),  # called in vain, but by this code
        ("raise MemoryError", False),
        ("open('/no/such/file')", False),
        ("raise KeyboardInterrupt", False),
        ("super().heed()", False),  # the base class has failed, not what calls it
    ],
)
def test_is_at_fault_is_true_for_errors_in_the_algorithms_code(monkeypatch, line, fault):
    def heed(self):
        raise RuntimeError("not mine")

    # As if it stood in this package's file.
    monkeypatch.setattr(
        Algorithm,
        "heed",
        FunctionType(heed.__code__.replace(co_filename=inspect.getfile(Algorithm)), {}),
        raising=False,
    )
    write("mine.py", algorithm() + f"\n    def heed(self):\n        {line}\n")
    algorithm_class = load("mine.py:Mine")
    with pytest.raises(BaseException) as error:  # noqa: PT011 - of several kinds
        algorithm_class().heed()
    assert is_at_fault(algorithm_class, error.value) is fault
    assert not is_at_fault(LocalSGD, error.value)


@pytest.mark.parametrize(
    ("name", "main", "program"),
    [
        ("network", worker.main, "worker"),
        ("jobs", simulate, "simulate"),
        ("no_restart", launch, "launch"),  # a flag whose value is called max_restarts
        ("file", launch, "launch"),  # no flag: where the description is
    ],
)
def test_option_named_like_a_flag_of_the_program_is_refused(monkeypatch, capsys, name, main, program):
    text = Path(__file__).with_name("halfway.py").read_text()
    write("halfway.py", text.replace("pull:", f"{name}:"))
    write(
        "cluster.yaml",
        "scheduler: {host: localhost}\nservers: [{host: localhost}]\nworkers: [{host: localhost, device: cpu}]\n"
        f"train: {{mode: 'halfway.py:Halfway', {name}: 0.25}}\n",
    )
    words = [*(["cluster.yaml"] if program != "worker" else []), "-m", "halfway.py:Halfway"]
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # launch has handlers of its own
    with pytest.raises(SystemExit) as end:
        sys.exit(main(words))
    assert end.value.code == 2
    stderr = capsys.readouterr().err
    assert f"has a flag that python -m esync.{program} has itself: argument " in stderr
    assert "give it another flag" in stderr
