"""`esync completion`: what it prints completes commands, flags and values in a real bash."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from esync.__main__ import SUBCOMMANDS

from .support import child

#: Load a completion file, and print what bash completes each line of standard input to.
COMPLETE = """
source "$1"
definition=$(complete -p esync)
function=${definition##*-F }
function=${function%% *}
while IFS= read -r line; do
    read -r -a COMP_WORDS <<<"$line"
    [[ "$line" == *" " ]] && COMP_WORDS+=("")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMP_LINE=$line COMP_POINT=${#line} COMPREPLY=()
    "$function" esync "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
    echo "${COMPREPLY[*]}"
done
"""


def completion(shell: str) -> str:
    """What is printed for a shell, in a process that cannot import MXNet."""
    program = (
        "import runpy, sys; sys.modules['mxnet'] = None; sys.argv = ['esync', 'completion', %r]\n"
        "runpy.run_module('esync', run_name='__main__')"
    )
    result = child.run("-c", program % shell)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


@pytest.fixture(scope="module")
def bash_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("completion") / "esync"
    file.write_text(completion("bash"))
    return file


def completed(file: Path, *lines: str) -> list[set[str]]:
    script = ["bash", "--norc", "-c", COMPLETE, "bash", str(file)]
    result = subprocess.run(
        script,
        input="".join(f"{line}\n" for line in lines),
        cwd=file.parent,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
    return [set(line.split()) for line in result.stdout.splitlines()]


def test_bash_completes_subcommands_flags_values_and_files(bash_file):
    (bash_file.parent / "my-cluster.yaml").write_text("")
    words = {
        "esync do": {"doctor"},
        "esync launch --dry": {"--dry-run"},
        "esync launch --mode sy": {"sync", "sync-switch"},
        "esync worker --collective b": {"butterfly", "binary-blocks"},
        "esync data fe": {"fetch"},
        "esync data fetch --dataset f": {"fashion-mnist"},
        "esync evaluate --checkpoint-d": {"--checkpoint-dir"},
        "esync completion z": {"zsh"},
        "esync doctor my-": {"my-cluster.yaml"},
    }
    flags = [f"esync {name} --h" for name in SUBCOMMANDS]
    names, *candidates = completed(bash_file, "esync ", *words, *flags)
    assert names >= SUBCOMMANDS.keys()
    assert candidates[: len(words)] == [*words.values()]
    for line, options in zip(flags, candidates[len(words) :], strict=True):
        assert "--help" in options, line


@pytest.mark.parametrize(("shell", "check"), [("zsh", ["zsh", "-n"]), ("fish", ["fish", "--no-execute"])])
def test_completion_of_other_shells_names_every_subcommand(shell, check, tmp_path):
    text = completion(shell)
    assert all(name in text for name in SUBCOMMANDS)
    assert "--dry-run" in text if shell == "zsh" else "dry-run" in text
    if shutil.which(shell):  # its syntax
        file = tmp_path / "esync"
        file.write_text(text)
        subprocess.run([*check, str(file)], check=True, timeout=60)


def test_completion_for_an_unknown_shell_is_refused():
    result = child.run("-m", "esync", "completion", "tcsh")
    assert result.returncode == 2
    assert json.dumps("bash")[1:-1] in result.stderr
