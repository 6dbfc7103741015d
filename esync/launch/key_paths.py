"""Replace a value in a description by its key path, such as workers.0.simulate.jitter."""

from typing import Any

from .yaml_text import DescriptionError


def put(content: Any, key_path: str, value: Any) -> Any:
    """Return a copy of the content with another value at a key path.

    Keys may be missing; whether they are valid is checked with the whole description. Entries of a list
    have to be there.

    Raises:
        DescriptionError: the path leads to no entry of a list, or into a single value.
    """
    if not key_path:
        return value
    if isinstance(content, list):
        index, _, rest = key_path.partition(".")
        if not index.isdecimal() or int(index) >= len(content):
            raise DescriptionError(f"{key_path}: there are the entries 0 to {len(content) - 1}, and no {index!r}")
        return [put(entry, rest, value) if number == int(index) else entry for number, entry in enumerate(content)]
    if not isinstance(content, dict | None):
        raise DescriptionError(f"{key_path}: there is a single value, {content!r}")
    mapping = content or {}
    names = [name for name in mapping if f"{key_path}.".startswith(f"{name}.")]  # a host's name may have dots
    name = max(names, key=len, default=key_path.partition(".")[0])
    return {**mapping, name: put(mapping.get(name), key_path[len(name) + 1 :], value)}
