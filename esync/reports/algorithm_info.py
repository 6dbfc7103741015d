"""Check the description of a run's algorithm: the content of "algorithm" in run.json.

The algorithm may be unknown here, so its description is untrusted input: nothing that it names is
imported.
"""

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..algorithms.registry import is_stem
from ..runtime.output import LABEL_LENGTH, is_label
from .discovery import RUN_FILE
from .summary_file import Summary


@dataclass(frozen=True)
class AlgorithmInfo:
    """Label, summary name and style of an algorithm, as its runs give them, or None.

    Attributes:
        label: its name in figures and tables.
        summary: stem of the summary file.
        style: color, line and marker, to be checked by `esync.reports.style`.
    """

    label: str | None = None
    summary: str | None = None
    style: Mapping[str, Any] = field(default_factory=dict)


def algorithm_info_of(summary: Summary) -> tuple[AlgorithmInfo, list[str]]:
    """Return the description of the first device that has one, and problems.

    A problem is an invalid value, or one that differs on other devices.
    """
    contents = {
        f"{host}/{name}/{RUN_FILE}": device.run.model_extra["algorithm"]
        for host, devices in summary.items()
        for name, device in devices.items()
        if device.run and device.run.model_extra and "algorithm" in device.run.model_extra
    }
    if not contents:
        return AlgorithmInfo(), []
    first, content = next(iter(contents.items()))
    facts, problems = _checked(content)
    problems = [f"{first}: algorithm{problem}" for problem in problems]
    differing = [device for device, other in contents.items() if _essence(other) != _essence(content)]
    if differing:
        more = f" and {len(differing) - 1} more" if len(differing) > 1 else ""
        problems.append(f"{differing[0]}{more}: differs about the algorithm from {first}, which is used")
    return facts, problems


def _essence(content: Any) -> Any:
    """Return the part that the tools use."""
    if not isinstance(content, dict):
        return content
    return [content.get(key) for key in ("label", "summary", "style")]


def _checked(content: Any) -> tuple[AlgorithmInfo, list[str]]:
    if not isinstance(content, dict):
        return AlgorithmInfo(), [f" is {reprlib.repr(content)}, but should be an object; it is left out"]
    problems = []
    label, stem, style = (content.get(key) for key in ("label", "summary", "style"))
    if label is not None and not (isinstance(label, str) and is_label(label)):
        problems.append(_left_out("label", label, f"one line of up to {LABEL_LENGTH} printable characters"))
        label = None
    if stem is not None and not (isinstance(stem, str) and is_stem(stem)):
        problems.append(
            _left_out("summary", stem, "a file's name of up to 64 letters, digits, '.', '_' and '-', without .json")
        )
        stem = None
    if style is not None and not isinstance(style, dict):
        problems.append(_left_out("style", style, "an object with color, line and marker"))
        style = None
    return AlgorithmInfo(label, stem, style or {}), problems


def _left_out(key: str, value: Any, expected: str) -> str:
    return f" → {key} is {reprlib.repr(value)}, but should be {expected}; it is left out"
