"""Imports of modules of earlier versions, which name the new place."""

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
        ("import logs_tools.load", "logs_tools.load has moved: it is esync.reports.runs now"),
        ("import SimpleStateServer.server.models", "SimpleStateServer.server has moved: it is esync.state_server now"),
    ],
)
def test_import_of_moved_module_says_where_it_is(statement, advice):
    result = child.run("-c", statement)
    assert result.stderr.splitlines()[-1] == f"ImportError: {advice}"


@pytest.mark.parametrize("name", ["esync.nothing", "logs_tools.nothing"])
def test_import_of_module_that_never_existed_is_not_found(name):
    with pytest.raises(ModuleNotFoundError, match=f"No module named '{name}'"):
        importlib.import_module(name)


@pytest.mark.parametrize("old", MOVED)
def test_moved_modules_are_gone_and_their_new_places_exist(old, monkeypatch):
    monkeypatch.delitem(sys.modules, old, raising=False)  # a name under which saved states are loaded
    with pytest.raises(ImportError, match=f"^{old} has moved: "):
        importlib.import_module(old)
    assert importlib.util.find_spec(MOVED[old])


@pytest.mark.parametrize("statement", IMPORTS.values())
def test_import_advised_for_moved_module_works(statement):
    exec(statement, {})
