"""Descriptions of clusters in this package, by name: `:quick` is clusters/quick.yaml."""

import argparse
import textwrap
from pathlib import Path
from typing import Any

from .errors import ExpectedError, suggestion
from .files import NoHomeError, expanded

#: Mark in front of a name; alone, it asks for the list of names.
MARK = ":"
WIDTH = 100  # characters per line of the list
FOLDER = Path(__file__).parents[1] / "clusters"


class NoDescriptionError(ExpectedError):
    """Raised when this package has no description of that name."""


def path_of(word: str) -> Path:
    """Return the path of the file that `:NAME` or `FILE` means.

    Write `./:NAME` for a file that has that name.

    Raises:
        NoDescriptionError: this package has no description of that name.
        NoHomeError: FILE begins with a home directory that does not exist here.
    """
    if not word.startswith(MARK):
        return expanded(word)
    known = {path.stem: path for path in FOLDER.glob("*.yaml")}
    name = word.removeprefix(MARK)
    if name not in known:
        meant = suggestion(name, known, most=1, shown=MARK.__add__)
        names = ", ".join(f"{MARK}{each}" for each in sorted(known))
        raise NoDescriptionError(f"no description {word} comes with this package{meant}; choose one of {names}")
    return known[name]


def listing() -> str:
    """Return a line for each description in this package: its name, and its first comment."""
    comments = {path.stem: path.read_text(encoding="utf-8").partition("\n#\n")[0] for path in FOLDER.glob("*.yaml")}
    width = max(map(len, comments))
    return "\n".join(
        f"{MARK}{name:<{width}}  {textwrap.shorten(comment.replace('#', ''), WIDTH - width - 3, placeholder=' …')}"
        for name, comment in sorted(comments.items())
    )


class DescriptionAction(argparse.Action):
    """The argument FILE of a program that reads a description of a cluster.

    `:` prints the list of names instead.
    """

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, word: Any, flag: str | None = None
    ) -> None:
        """Set the path; an optional FILE that is left out is None."""
        if word is None:
            return
        if word == MARK:
            print(listing())
            parser.exit()
        try:
            setattr(namespace, self.dest, path_of(word))
        except (NoDescriptionError, NoHomeError) as error:
            parser.error(str(error))


def add_file(parser: argparse.ArgumentParser, optional: bool = False) -> None:
    """Add the argument FILE to a parser; with `optional`, it may be left out and is None then."""
    parser.add_argument(
        "file",
        nargs="?" if optional else None,
        action=DescriptionAction,
        metavar="FILE",
        help=f"description of the cluster; {MARK}NAME for one that comes with this package, {MARK}quick for instance; "
        f"{MARK} lists them",
    )
