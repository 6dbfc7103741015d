"""The command `esync` and its subcommands."""

import json
import re
import sys

import pytest

from esync import __version__
from esync.__main__ import SUBCOMMANDS, main, usage

from .support import child

NAMES = ", ".join(SUBCOMMANDS)

#: Run every program with --help, without MXNet; what was printed, by subcommand.
HELP = """
import contextlib, io, json, sys
from esync import __main__ as command
from esync.runtime import output
output.install = lambda: None  # the output is read here
texts = {}
sys.modules["mxnet"] = None
for name in command.SUBCOMMANDS:
    sys.argv = ["esync", name, "--help"]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            command.main()
        except SystemExit as end:
            texts[name] = [end.code, printed.getvalue()]
print(json.dumps(texts))
"""


def test_esync_help_lists_every_subcommand_and_imports_none():
    program = (
        "import runpy, sys; sys.argv = ['esync', '--help']\n"
        "try: runpy.run_module('esync', run_name='__main__')\n"
        "finally: print('imported:', *{'mxnet', 'django', 'matplotlib', 'pydantic'} & sys.modules.keys())"
    )
    result = child.run("-c", program)
    for name, (_, about) in SUBCOMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(about)}$", result.stdout, re.MULTILINE)
    assert result.stdout.endswith("imported:\n")


@pytest.mark.parametrize(
    ("typed", "code", "out", "error"),
    [
        (["--version"], 0, f"esync {__version__}\n", ""),
        ([], 2, "", f"{usage()}\n"),
        *(
            (
                [typed, "--help"],
                2,
                "",
                f"esync: error: there is no subcommand {typed!r}{meant}; choose one of {NAMES}\n",
            )
            for typed, meant in {
                "lauch": " (did you mean launch?)",
                "state_server": " (did you mean state-server?)",
                "xyz": "",
            }.items()
        ),
    ],
)
def test_esync_without_known_subcommand(monkeypatch, capsys, typed, code, out, error):
    monkeypatch.setattr(sys, "argv", ["esync", *typed])
    assert main() == code
    assert capsys.readouterr() == (out, error)


def test_esync_subcommand_help_needs_no_mxnet():
    texts = json.loads(child.run("-c", HELP).stdout)
    assert texts.keys() == SUBCOMMANDS.keys()
    for name, (code, text) in texts.items():
        assert code == 0
        assert text.startswith(f"usage: esync {name} ")


def test_module_started_by_itself_shows_its_module_name_in_usage():
    assert child.run("-m", "esync.launch", "--help").stdout.startswith("usage: python -m esync.launch ")


def test_esync_exits_with_the_code_of_the_subcommand(tmp_path):
    failed = child.run("-m", "esync", "summarize", "-b", str(tmp_path / "nothing"))
    assert failed.returncode == 1
    misused = child.run("-m", "esync", "summarize", "--no-such-flag")
    assert misused.returncode == 2
    assert "esync summarize: error: unrecognized arguments: --no-such-flag" in misused.stderr


def test_log_tools_without_docstrings_and_assertions_show_their_help():
    program = """
import runpy, sys
for tool in ("summarize", "plot", "sync_switch_report"):
    sys.argv = [tool, "--help"]
    try: runpy.run_module(f"logs_tools.{tool}", run_name="__main__")
    except SystemExit as end: end.code and sys.exit(end.code)
"""
    done = child.run("-c", program, PYTHONOPTIMIZE="2")
    assert (done.returncode, done.stdout.count("usage: ")) == (0, 3), done.stderr
