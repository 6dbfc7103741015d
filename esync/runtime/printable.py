"""Text that comes from others, for a terminal: control characters would command it."""

from typing import Any


def printable(text: str) -> str:
    r"""Return `text` with whatever a terminal would not print written as an escape, such as \x1b."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def all_printable(content: Any) -> Any:
    """Return content that was JSON with all of its texts printable."""
    if isinstance(content, str):
        return printable(content)
    if isinstance(content, list):
        return [all_printable(one) for one in content]
    if isinstance(content, dict):
        return {printable(name): all_printable(one) for name, one in content.items()}
    return content
