"""Code in the pages of docs/how-to, as it stands there behind a marker such as `<!-- diff: loop -->`."""

import re
from pathlib import Path

PAGES = Path(__file__).parents[2] / "docs/how-to"


def block(page: str, marker: str) -> str:
    """The block of code behind a marker."""
    path = PAGES / page
    match = re.search(rf"<!-- {re.escape(marker)} -->\n```\w+\n(.*?)```\n", path.read_text("utf-8"), re.DOTALL)
    assert match, f"{path} has no {marker!r}"
    return match[1]


def example(name: str) -> str:
    """An example of docs/how-to/adding_an_algorithm.md."""
    return block("adding_an_algorithm.md", f"example: {name}")


def apply(difference: str, text: str, reverse: bool = False) -> str:
    """The text after a difference, or before it; each of its parts, split by @@, must fit in one place only."""
    removed, added = ("+", "-") if reverse else ("-", "+")
    for hunk in re.split(r"^@@\n", difference, flags=re.MULTILINE):
        lines = hunk.splitlines(keepends=True)
        before, after = ("".join(line[1:] or "\n" for line in lines if line[0] != sign) for sign in (added, removed))
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    return text
