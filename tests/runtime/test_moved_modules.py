"""Modules of earlier versions: who imports one is told where it is now."""

import importlib
import importlib.util
import sys

import pytest

from esync.runtime.moved_modules import IMPORTS, MOVED

from ..support import child


@pytest.mark.parametrize(
    ("statement", "advice"),
    [
        ("import esync.engine", "esync.engine has moved: from esync import mx"),
        ("from esync import engine", "esync.engine has moved: from esync import mx"),
        ("from esync.engine import mx", "esync.engine has moved: from esync import mx"),
        ("from esync.files import expanded", "esync.files has moved: it is esync.runtime.files now"),
        ("import esync.checkpoint.store", "esync.checkpoint has moved: from esync import Checkpoints"),
        ("import logs_tools.load", "logs_tools.load has moved: it is esync.reports.load now"),
        ("import SimpleStateServer.server.models", "SimpleStateServer.server has moved: it is esync.state_server now"),
    ],
)
def test_importing_one_tells_where_it_is(statement, advice):
    result = child.run("-c", statement)
    assert result.stderr.splitlines()[-1] == f"ImportError: {advice}"


@pytest.mark.parametrize("name", ["esync.nothing", "logs_tools.nothing"])
def test_a_module_that_never_was_is_not_found(name):
    with pytest.raises(ModuleNotFoundError, match=f"No module named '{name}'"):
        importlib.import_module(name)


@pytest.mark.parametrize("old", MOVED)
def test_each_is_gone_and_its_new_place_is_there(old, monkeypatch):
    monkeypatch.delitem(sys.modules, old, raising=False)  # a name under which saved states are loaded
    with pytest.raises(ImportError, match=f"^{old} has moved: "):
        importlib.import_module(old)
    assert importlib.util.find_spec(MOVED[old])


@pytest.mark.parametrize("statement", IMPORTS.values())
def test_what_to_write_instead_works(statement):
    exec(statement, {})
