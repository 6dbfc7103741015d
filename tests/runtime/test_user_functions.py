"""Functions that a user names: found without running anything, imported, and called."""

import sys
from pathlib import Path

import pytest

from esync.runtime.user_code import MissingUserCodeError, UserCodeError
from esync.runtime.user_functions import call, check, digest, load, short_name


@pytest.fixture(autouse=True)
def folder(code_folder: Path) -> Path:
    return code_folder


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def refused(text: str) -> str:
    with pytest.raises(UserCodeError) as caught:
        check(text)
    return str(caught.value)


def test_check_and_digest_run_nothing(folder):
    write(folder / "pack" / "__init__.py", "raise RuntimeError('imported')\n")
    write(folder / "pack" / "nets.py", "raise RuntimeError('imported')\ndef build(): pass\n")
    for text in ("pack/nets.py:build", "pack.nets:build"):
        check(text)
        assert len(digest(text)) == 12
    assert digest("pack/nets.py:build") == digest("pack.nets:build")
    assert "pack" not in sys.modules


@pytest.mark.parametrize(
    "line",
    [
        "def build(): pass",
        "class build: pass",
        "build = print",
        "from os import path as build",
        "import os as build",
        "if True:\n    def build(): pass",
        "try:\n    build = 1\nexcept ImportError:\n    pass",
        "from os.path import *",
        "def __getattr__(name): return print",
    ],
)
def test_check_finds_function_however_it_is_defined(folder, line):
    write(folder / "nets.py", line + "\n")
    check("nets.py:build")


def test_check_of_missing_function_names_what_is_there(folder):
    write(folder / "nets.py", "def build(): pass\nclass Net: pass\ndef _own(): pass\n")
    write(folder / "broken.py", "\n\ndef build(:\n")
    write(folder / "empty.py", "def f():\n    build = 1\n")
    assert "there is no function bild (did you mean build?); there are build, Net" in refused("nets.py:bild")
    assert "broken.py:build cannot be imported: broken.py, line 3: SyntaxError" in refused("broken.py:build")
    assert "there is no function build; there are f" in refused("empty.py:build")
    assert f"the file {folder}/net.py is not there; did you mean nets.py?" in refused("net.py:build")
    assert "did you mean ./nets.py:build?" in refused("./nets:build")
    assert "there is no module 'net'" in refused("net:build")
    assert "there is no module 'nets.deeper'" in refused("nets.deeper:build")
    assert "there is no module 'json.no'" in refused("json.no.deeper:build")
    assert "package.module:function or file.py:function" in refused("nets.py:")
    with pytest.raises(MissingUserCodeError):
        check("net.py:build")


def test_check_of_compiled_module_leaves_it_to_the_import():
    check("math:sqrt")
    assert digest("math:sqrt") == ""
    with pytest.raises(UserCodeError, match="there is no function sqrd"):
        load("math:sqrd")


def test_digest_is_of_what_was_loaded(folder):
    file = write(folder / "nets.py", "def build(): return 1\n")
    assert call("nets.py:build", {}) == 1
    before = digest("nets.py:build")
    file.write_text("def build(): return 2\n")
    assert digest("nets.py:build") == before
    assert digest(str(write(folder / "other.py", "def build(): return 2\n")) + ":build") != before


@pytest.mark.parametrize(
    ("signature", "expected"),
    [
        ("", {}),
        ("classes", {"classes": 3}),
        ("shape, *, classes=7", {"classes": 3, "shape": (1, 2, 2)}),
        ("classes=5, depth=2, **more", {"classes": 3, "depth": 2, "more": {}}),
        ("**more", {"more": {"classes": 3}}),  # as the functions of Gluon's model zoo
    ],
)
def test_call_gives_functions_what_they_take(folder, signature, expected):
    write(folder / "nets.py", f"def build({signature}):\n    return dict(locals())\n")
    assert call("nets.py:build", {"classes": 3, "shape": (1, 2, 2)}, needed=("classes",)) == expected


def test_call_of_unusable_function_names_the_fault(folder):
    lines = ["def asks(classes, width, height): pass", "def fails():", "    raise ValueError('too', 'small')"]
    lines += ["def leaves():", "    import sys; sys.exit(3)", "value = 3", "def alone(classes, /): pass"]
    write(folder / "nets.py", "\n".join([*lines, ""]))
    expected = {
        "asks": "asks for the arguments width, height, but is given classes, as far as it takes them by these names",
        "alone": "asks for the argument classes, but",
        "fails": "nets.py:fails has failed: nets.py, line 3: ValueError: ('too', 'small')",
        "leaves": "nets.py:leaves has failed: nets.py, line 5: SystemExit: 3",
        "value": "it is an object of class int; name a function that makes it",
        "asks.deeper": "there is no function asks.deeper",
    }
    for name, message in expected.items():
        with pytest.raises(UserCodeError) as caught:
            call(f"nets.py:{name}", {"classes": 3})
        assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("nets.py:build", "nets.build"),
        ("/home/me/my nets.py:build", "my_nets.build"),
        ("package.deeper.nets:Nets.small", "nets.Nets.small"),
        (".hidden.py:build", "hidden.build"),
        ("resnet18-v1", "resnet18-v1"),
    ],
)
def test_short_name_can_name_a_folder(text, name):
    assert short_name(text) == name
