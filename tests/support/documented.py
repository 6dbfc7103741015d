"""The examples in docs/how-to/adding_an_algorithm.md, as they stand there."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/how-to/adding_an_algorithm.md"


def example(name: str) -> str:
    """The block of code behind the marker of that name."""
    match = re.search(rf"<!-- example: {re.escape(name)} -->\n```\w+\n(.*?)```\n", PAGE.read_text("utf-8"), re.DOTALL)
    assert match, f"{PAGE} has no example {name!r}"
    return match[1]
