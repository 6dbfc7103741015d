"""Commands in README.md and docs/ are right: each is parsed, or its block says why it is not run.

A block of shell commands is fenced with bash, sh or console, or indented and begins with a command.
Each command line in it is one of

* `esync …`, `python -m esync.…` or a script that starts one of these: the words are given to the
  program's own parser;
* another program of this repository, which must exist, or `pip install` with an extra, which must;
* a command of the shell that needs nothing.

Any other block has a comment directly before it: `<!-- not run: why -->`. One that has `<!-- run -->`
before it is run by a test, after those that stand before it on its page.
"""

import argparse
import contextlib
import io
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from esync.__main__ import SUBCOMMANDS
from esync.completion import parser_of

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MODULES = {module: name for name, (module, _) in SUBCOMMANDS.items()}
#: Scripts and programs outside the package → the subcommand that they start.
STARTERS = {
    "scripts/start_worker.sh": "worker",
    "scripts/start_server.sh": "server",
    "scripts/start_scheduler.sh": "scheduler",
    "scripts/start_state_server.sh": "state-server",
    "logs_tools/summarize.py": "summarize",
    "logs_tools/plot.py": "plot",
    "logs_tools.sync_switch_report": "sync-switch-report",
}
#: Commands whose words need no check.
HARMLESS = {"cd", "export", "git", "pytest", "mkdocs"}
#: The users' own files, as they are called in examples.
OWN = {"train.py", "manage.py"}
FENCED = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:(?<=\n\n)|\A)(?P<text>(?: {4}[^\n]*\n|\n(?= {4}))+)")
COMMAND = re.compile(
    r"(?:\w+=\S+ )*(?:esync|python|pip|docker|curl|mpiexec|export|git|cd|pytest|mkdocs|(?:\. )?scripts/\S+)\b ?"
)
MARK = re.compile(r"<!-- not run: \S[^>]* -->\n+\Z")
RUN = re.compile(r"<!-- run -->\n+\Z")
#: Pages whose marked blocks are run one after the other, in one folder; a later page uses what an earlier one made.
SESSIONS = [
    ("docs/start/index.md", "docs/how-to/logs.md"),
    ("docs/how-to/doctor.md",),
    ("docs/how-to/plan.md",),
    ("docs/how-to/simulate.md", "docs/how-to/overlap.md"),
]
#: What the sessions run in the place of what takes longer.
SHORTER = (
    (r"^(esync launch :quick) +#", r"\1 --max-time 5 #"),
    (r"^(esync launch :quick --mode sync)", r"\1 --dry-run"),  # tests/launch trains in this mode, too
    (r"^(esync launch cluster\.yaml)$", r"\1 --dry-run"),  # tests/test_init.py launches such a project
    (r"--rounds 50\b", "--rounds 10"),
    (r"--overlap$", "--overlap --rounds 10"),
    (r"=100Mbit,1Gbit,10Gbit", "=1Gbit,10Gbit"),
    (r"^(esync plan) clusters/paper\.yaml (.*) --modes esync,sync", r"\1 :quick \2 --modes sync"),
    (r" --what-if servers=2$", ""),
)
#: Seconds that a session may take on a busy machine.
PATIENCE = 400


class WrongCommandError(Exception):
    """A command line that cannot be run."""


@dataclass(frozen=True)
class Block:
    """A block of shell commands: where it begins, its text, and its mark: whether it is not run, or run by a test."""

    page: Path
    line: int
    text: str
    marked: bool
    run: bool = False

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path, text: str) -> Iterator[Block]:
    """Yield the blocks of shell commands of a page."""

    def block(match: re.Match[str], commands: str) -> Block:
        line = text.count("\n", 0, match.start("text")) + 1
        return Block(page, line, commands, *(mark.search(text[: match.start()]) is not None for mark in (MARK, RUN)))

    for match in FENCED.finditer(text):
        if match["language"] in ("bash", "sh", "console"):
            yield block(match, match["text"])
    without = FENCED.sub(lambda match: "\n" * match[0].count("\n"), text)
    for match in INDENTED.finditer(without):
        commands = re.sub(r"^ {4}", "", match["text"], flags=re.MULTILINE)
        if COMMAND.match(commands):
            line = without.count("\n", 0, match.start("text")) + 1
            before = without[: match.start()]
            yield Block(page, line, commands, *(mark.search(before) is not None for mark in (MARK, RUN)))


def command_lines(text: str) -> Iterator[list[str]]:
    """Yield the words of each command in a block, without comments, variables and redirections."""
    for line in re.sub(r"\\\n *", " ", text).splitlines():
        line = re.sub(r"\$\(.*?'\)", "VALUE", line.removeprefix("$ "))
        with_operators = shlex.shlex(line, posix=True, punctuation_chars="&|;>")
        with_operators.whitespace_split = True
        words: list[str] = []
        for word in [*with_operators, ";"]:
            if not re.fullmatch(r"[&|;]+", word):
                words.append(word)
                continue
            if ">" in words:
                words = words[: words.index(">")]
            while words and re.match(r"[A-Z_]+=", words[0]):
                del words[0]
            if words:
                yield words
            words = []


@cache
def extras() -> set[str]:
    """The extras of this package."""
    section = (ROOT / "pyproject.toml").read_text("utf-8").partition("[project.optional-dependencies]\n")[2]
    return set(re.findall(r"^(\w+) = \[", section.partition("\n[")[0], re.MULTILINE))


def check(words: list[str]) -> None:
    """Check a command line.

    Raises:
        WrongCommandError: it cannot be run, or this test cannot tell.
    """
    program, *arguments = words
    if program == "python" and arguments[:1] == ["-m"]:
        program, arguments = arguments[1], arguments[2:]
        program = f"esync {MODULES[program]}" if program in MODULES else program
    elif program in ("python", ".") and arguments:
        program, *arguments = arguments
    elif program == "esync" and arguments:
        if arguments[0] not in SUBCOMMANDS:
            raise WrongCommandError(f"esync has no subcommand {arguments[0]!r}")
        program, arguments = f"esync {arguments[0]}", arguments[1:]
    if program in STARTERS:
        program = f"esync {STARTERS[program]}"
    kind, _, subcommand = program.partition(" ")
    if kind == "esync" and subcommand:
        parse(subcommand, arguments)
    elif program == "pip":
        named = {
            extra for word in arguments for group in re.findall(r"\[([\w,]+)\]", word) for extra in group.split(",")
        }
        if named - extras():
            raise WrongCommandError(f"pip: no such extras: {', '.join(sorted(named - extras()))}")
    elif program in HARMLESS or program in OWN or (ROOT / program).is_file():
        return
    elif not any((ROOT / program.replace(".", "/")).with_suffix(end).exists() for end in ("", ".py")):
        raise WrongCommandError(f"{program} is no program that this test knows: mark the block as not run")


@cache
def parsers() -> dict[str, argparse.ArgumentParser | None]:
    """The parsers of all subcommands, in the default mode."""
    return {name: parser_of(name) for name in SUBCOMMANDS}


def parse(subcommand: str, words: list[str]) -> None:
    """Give the words behind a subcommand to its parser."""
    words = [word for word in words if word != "…" and not re.fullmatch(r"\[|\]", word)]
    if "--" in words:
        words = words[: words.index("--")]
    mode = [words[at + offset] for at, word in enumerate(words) if word in ("-m", "--mode") for offset in (0, 1)]
    if mode and "/" not in mode[-1] and ":" in mode[-1]:
        return  # of a file of the user's
    moded = mode and subcommand in ("worker", "server", "launch", "simulate")
    parser = parser_of(subcommand, mode) if moded else parsers()[subcommand]
    if parser is None:
        raise WrongCommandError(f"esync {subcommand}: no parser for {' '.join(mode)}")
    stderr = io.StringIO()
    try:
        with contextlib.redirect_stderr(stderr), contextlib.redirect_stdout(io.StringIO()):
            _, unknown = parser.parse_known_args(words)
    except SystemExit as end:
        if end.code:
            raise WrongCommandError(f"esync {subcommand}: {stderr.getvalue().strip().splitlines()[-1]}") from None
        return
    if unknown:
        raise WrongCommandError(f"esync {subcommand}: unknown words {unknown}")


def wrong(block: Block) -> list[str]:
    """What is wrong with the commands of a block."""
    problems = []
    for words in command_lines(block.text):
        try:
            check(words)
        except WrongCommandError as error:
            problems.append(f"{block}: {error}")
    return problems


def name(block: Block) -> str:
    """The page of a block."""
    return str(block.page.relative_to(ROOT))


ALL = [block for page in PAGES for block in blocks(page, page.read_text(encoding="utf-8"))]


def test_documented_commands_are_found() -> None:
    assert len(ALL) > 50
    assert {name(block) for block in ALL if block.run} == {page for session in SESSIONS for page in session}


@pytest.mark.timeout(PATIENCE + 20)
@pytest.mark.parametrize("session", SESSIONS, ids=lambda session: Path(session[0]).parent.name + Path(session[0]).stem)
def test_documented_commands_that_are_marked_so_run(session: tuple[str, ...], tmp_path: Path) -> None:
    for entry in ROOT.iterdir():  # as in a checkout, but nothing is written into this one
        if entry.name not in ("logs", "runs") and not entry.name.startswith("."):
            (tmp_path / entry.name).symlink_to(entry)
    script = "\n".join(block.text for page in session for block in ALL if block.run and name(block) == page)
    for longer, shorter in SHORTER:
        script = re.sub(longer, shorter, script, flags=re.MULTILINE)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with subprocess.Popen(
        ["bash", "-euxc", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=PATIENCE)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)  # what it has started, where the test fails
    assert process.returncode == 0, output


@pytest.mark.parametrize("block", [block for block in ALL if not block.marked], ids=str)
def test_documented_commands_are_accepted_by_their_programs(block: Block) -> None:
    assert wrong(block) == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("esync launch :quick --no-such-flag 3\n", "--no-such-flag"),
        ("python -m esync.worker -m esync --no-such-flag\n", "--no-such-flag"),
        ("scripts/start_worker.sh -c 7\n", "-c/--cpu"),
        ("python benchmarks/no_such.py\n", "no_such"),
        ('pip install -e ".[nothing]"\n', "nothing"),
        ("cd project && esync lanch\n", "lanch"),
        ("docker build .\n", "docker"),
    ],
)
def test_documented_command_that_is_wrong_is_named(text: str, complaint: str) -> None:
    assert complaint in "".join(wrong(Block(PAGES[0], 1, text, marked=False)))


def test_documented_block_with_mark_is_marked_and_without_is_not() -> None:
    text = "# Page\n\n<!-- not run: needs docker -->\n```bash\ndocker build .\n```\n\nText\n\n    docker build .\n"
    assert [block.marked for block in blocks(PAGES[0], text)] == [True, False]
