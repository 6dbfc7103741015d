"""What happened in a run: replacements, losses, failures, and the checkpoint it went on from.

Launch leaves how a job went in the run's folder, `processes/outcome.json`, with the content of its
`--json`. Everything in it is outside input: what is not as expected is left out.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runtime.output import printable
from ..runtime.terminal import clock

if TYPE_CHECKING:
    from .runs import LoggedRun

#: Where launch leaves how a job went, and its report, below the run's folder.
OUTCOME_FILE = Path("processes", "outcome.json")
REPORT_FILE = "report.html"

#: Pairs of when, as minutes and seconds since the start of the job, and what happened.
EventList = list[tuple[str, str]]


def events_of(run: "LoggedRun") -> EventList:
    """Return what is known of a run's course, in order."""
    resumed = run.facts.get("resumed")
    found = [("0:00", f"went on from the checkpoint of round {resumed}")] if isinstance(resumed, int) else []
    try:
        outcome = json.loads((run.folder / OUTCOME_FILE).read_bytes())
    except (OSError, ValueError, RecursionError):
        return found
    return found + (_events(outcome) if isinstance(outcome, dict) else [])


def _events(outcome: dict[str, Any]) -> EventList:
    end = _clock(outcome.get("seconds"))
    found = [(_clock(each.get("at")), _replacement(each)) for each in _objects(outcome, "replacements")]
    found += [("", f"{name} was lost; the others went on") for name in _texts(outcome, "lost")]
    found += [
        ("", f"the host {name} no longer answered; the job went on without it")
        for name in _texts(outcome, "lost_hosts")
    ]
    found += [
        (end, f"{_text(each.get('name'))} on {_text(each.get('where'))} {_text(each.get('how'))}")
        for each in _objects(outcome, "failures")
    ]
    if interrupted := outcome.get("interrupted"):
        found.append((end, f"the job was ended by {_text(interrupted)}"))
    return found


def _replacement(each: dict[str, Any]) -> str:
    joined = _clock(each.get("joined"))
    return f"{_text(each.get('name'))} {_text(each.get('how'))} and was replaced" + (
        f"; the new one had the model at {joined}" if joined else ""
    )


def _objects(outcome: dict[str, Any], key: str) -> list[dict[str, Any]]:
    listed = outcome.get(key)
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []


def _texts(outcome: dict[str, Any], key: str) -> list[str]:
    listed = outcome.get(key)
    return [printable(each) for each in listed if isinstance(each, str)] if isinstance(listed, list) else []


def _text(value: Any) -> str:
    return printable(str(value))


def _clock(seconds: Any) -> str:
    return clock(seconds) if isinstance(seconds, int | float) and 0 <= seconds < 1e9 else ""
