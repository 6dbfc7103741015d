"""Descriptions of clusters in this package, by name: `:quick` is clusters/quick.yaml."""

import argparse
import textwrap
from pathlib import Path
from typing import Any

from .errors import ExpectedError, suggestion
from .files import NoHomeError, expanded

#: Prefix of a name; without a name, it requests the list of names.
MARK = ":"
WIDTH = 100  # characters per line of the list
FOLDER = Path(__file__).parents[1] / "clusters"


class NoDescriptionError(ExpectedError):
    """Raised when this package has no description of that name."""


def path_of(word: str) -> Path:
    """Return the path of `:NAME` (a description of this package) or `FILE`.

    Write `./:NAME` for a file with that name.

    Raises:
        NoDescriptionError: this package has no description of that name.
        NoHomeError: FILE begins with a home directory that does not exist here.
    """
    if not word.startswith(MARK):
        return expanded(word)
    paths = {path.stem: path for path in FOLDER.glob("*.yaml")}
    name = word.removeprefix(MARK)
    if name not in paths:
        hint = suggestion(name, paths, limit=1, shown=MARK.__add__)
        names = ", ".join(f"{MARK}{name}" for name in sorted(paths))
        raise NoDescriptionError(f"no description {word} comes with this package{hint}; choose one of {names}")
    return paths[name]


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

    `:` prints the list of names.
    """

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, word: Any, flag: str | None = None
    ) -> None:
        """Set the path, and `typed_file`, the word itself; an omitted optional FILE is None."""
        if word is None:
            return
        if word == MARK:
            print(listing())
            parser.exit()
        try:
            setattr(namespace, self.dest, path_of(word))
            namespace.typed_file = word
        except (NoDescriptionError, NoHomeError) as error:
            parser.error(str(error))


def add_file(parser: argparse.ArgumentParser, optional: bool = False) -> None:
    """Add the argument FILE to a parser; with `optional`, it may be omitted and is then None."""
    parser.add_argument(
        "file",
        nargs="?" if optional else None,
        action=DescriptionAction,
        metavar="FILE",
        help=f"description of the cluster; {MARK}NAME for one that comes with this package, {MARK}quick for instance; "
        f"{MARK} lists them",
    )
