"""The command `esync` and its subcommands."""

import json
import re

import pytest

from esync.__main__ import SUBCOMMANDS

from .support import child

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


def esync(*words: str, **variables: str):
    return child.run("-m", "esync", *words, **variables)


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


def test_esync_version_prints_the_version():
    from esync import __version__

    result = esync("--version")
    assert (result.returncode, result.stdout) == (0, f"esync {__version__}\n")


def test_esync_without_subcommand_lists_them_and_exits_with_2():
    result = esync()
    assert result.returncode == 2
    assert result.stderr == esync("--help").stdout


@pytest.mark.parametrize(("typed", "meant"), [("lauch", "launch"), ("state_server", "state-server"), ("xyz", None)])
def test_esync_with_unknown_subcommand_is_refused_with_the_nearest(typed, meant):
    result = esync(typed, "--help")
    assert (result.returncode, result.stdout) == (2, "")
    did_you_mean = f" (did you mean {meant}?)" if meant else ""
    names = ", ".join(SUBCOMMANDS)
    assert result.stderr == f"esync: error: there is no subcommand {typed!r}{did_you_mean}; choose one of {names}\n"


def test_esync_subcommand_help_needs_no_mxnet():
    texts = json.loads(child.run("-c", HELP).stdout)
    assert texts.keys() == SUBCOMMANDS.keys()
    for name, (code, text) in texts.items():
        assert code == 0
        assert text.startswith(f"usage: esync {name} ")


@pytest.mark.parametrize("module", ["esync.launch", "esync.state_server"])
def test_module_started_by_itself_shows_its_module_name_in_usage(module):
    assert child.run("-m", module, "--help").stdout.startswith(f"usage: python -m {module} ")


def test_esync_exits_with_the_code_of_the_subcommand(tmp_path):
    failed = esync("summarize", "-b", str(tmp_path / "nothing"))
    assert failed.returncode == 1
    misused = esync("summarize", "--no-such-flag")
    assert misused.returncode == 2
    assert "esync summarize: error: unrecognized arguments: --no-such-flag" in misused.stderr


@pytest.mark.parametrize("tool", ["summarize", "plot", "sync_switch_report"])
def test_log_tool_without_docstrings_and_assertions_shows_its_help(tool):
    done = child.run("-m", f"logs_tools.{tool}", "--help", PYTHONOPTIMIZE="2")
    assert done.returncode == 0, done.stderr
    assert "usage: " in done.stdout
