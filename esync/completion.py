"""Print what completes `esync` in a shell: `esync completion bash`, `zsh` or `fish`.

    esync completion bash > ~/.local/share/bash-completion/completions/esync
    esync completion zsh > ~/.zfunc/_esync         # in a folder of fpath
    esync completion fish > ~/.config/fish/completions/esync.fish

The script is generated from the parsers of all subcommands, so that the shell completes without starting
Python. Generate it again after an update.
"""

import argparse
import contextlib
import io
import runpy
import sys
from collections.abc import Iterator, Sequence
from typing import IO

import shtab

from .__main__ import SUBCOMMANDS
from .algorithms.registry import ALGORITHMS
from .data import REGISTRY
from .models.names import NETWORKS
from .runtime import program
from .runtime.files import expanded
from .version import __version__

SHELLS = ("bash", "zsh", "fish")
#: Metavars or destinations of arguments that are folders, and of those that are files.
FOLDERS, FILES = ("DIR", "data_dir", "log_dir", "folder"), ("FILE", "file", "OUT")
#: Destination of a flag → the names that it accepts, in addition to the user's files and functions.
NAMES = {"mode": ALGORITHMS, "network": NETWORKS, "dataset": REGISTRY}


class _HelpRequestedError(BaseException):
    """Raised instead of printing a help text, with the parser that would print it.

    It is not a subclass of Exception, because programs report those as failures.
    """

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser


@contextlib.contextmanager
def _help_raises() -> Iterator[None]:
    """Let every parser raise _HelpRequestedError instead of printing its help."""

    def raise_itself(parser: argparse.ArgumentParser, file: IO[str] | None = None) -> None:
        raise _HelpRequestedError(parser)

    printed = argparse.ArgumentParser.print_help
    argparse.ArgumentParser.print_help = raise_itself  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        argparse.ArgumentParser.print_help = printed  # type: ignore[method-assign]


def parser_of(name: str, words: Sequence[str] = ()) -> argparse.ArgumentParser | None:
    """Return the parser of a subcommand; None if the subcommand cannot be started here.

    The subcommand is started with --help, and stopped before it prints.

    Args:
        name: the subcommand.
        words: arguments before --help, for instance a mode, whose flags the parser then has.
    """
    arguments, streams = sys.argv, (sys.stdout, sys.stderr)
    sys.argv = [f"{program.COMMAND} {name}", *words, "--help"]
    try:
        with _help_raises(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            runpy.run_module(SUBCOMMANDS[name][0], run_name="__main__")
    except _HelpRequestedError as request:
        return request.parser
    except (SystemExit, ImportError):
        return None
    finally:
        sys.argv = arguments
        sys.stdout, sys.stderr = streams
    return None


def whole_parser() -> argparse.ArgumentParser:
    """Return one parser of the command with all its subcommands and their flags."""
    command_parser = argparse.ArgumentParser(prog=program.COMMAND)
    command_parser.add_argument("--version", action="version", version=f"{program.COMMAND} {__version__}")
    subcommands = command_parser.add_subparsers()
    for name, (_, about) in SUBCOMMANDS.items():
        subparser = parser() if name == "completion" else parser_of(name)
        if subparser is None:
            print(f"esync completion: the flags of {name} are left out: it cannot be started here", file=sys.stderr)
            subcommands.add_parser(name, help=about)
            continue
        _name_values(subparser)
        subcommands.add_parser(name, help=about, parents=[subparser], add_help=False)
    return command_parser


def _name_values(parser: argparse.ArgumentParser) -> None:
    """Mark the arguments of a parser and its subparsers that are names, files or folders."""
    for action in parser._actions:
        names = (action.dest, action.metavar)
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                _name_values(below)
        elif action.choices is None and action.dest in NAMES:
            action.choices = sorted(NAMES[action.dest])
        elif action.choices is None and any(name in FOLDERS for name in names):
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif action.choices is None and (action.type is expanded or any(name in FILES for name in names)):
            action.complete = shtab.FILE  # type: ignore[attr-defined]


def parser() -> argparse.ArgumentParser:
    """Return the parser of this subcommand."""
    command_parser = argparse.ArgumentParser(
        prog=program.name("python -m esync.completion"),
        description="Print what completes commands and flags; save it where the shell looks for completions.",
        epilog="bash: ~/.local/share/bash-completion/completions/esync; zsh: _esync in a folder of fpath; "
        "fish: ~/.config/fish/completions/esync.fish. It takes a few seconds; the shell then needs no Python.",
        allow_abbrev=False,
    )
    command_parser.add_argument("shell", choices=SHELLS)
    return command_parser


def main(words: Sequence[str] | None = None) -> int:
    """Print the completion and return the exit code: 0 done, 2 bad usage."""
    options = parser().parse_args(words)
    print(shtab.complete(whole_parser(), options.shell))
    return 0


if __name__ == "__main__":
    sys.exit(main())
