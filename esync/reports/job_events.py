"""What happened in a run: replacements, losses, failures, and the checkpoint it went on from.

Launch leaves how a job went in the run's folder, `processes/outcome.json`, with the content of its
`--json`. It is outside input: a file with anything else in it shows nothing.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, BaseModel, Field, ValidationError

from ..runtime.output import printable
from ..runtime.terminal import clock

if TYPE_CHECKING:
    from .runs import LoggedRun

#: Where launch leaves how a job went, and its report, below the run's folder.
OUTCOME_FILE = Path("processes", "outcome.json")
REPORT_FILE = "report.html"

#: Pairs of when, as minutes and seconds since the start of the job, and what happened.
EventList = list[tuple[str, str]]

Text = Annotated[str, AfterValidator(printable)]
Seconds = Annotated[float, Field(ge=0, lt=1e9)]


class _Replacement(BaseModel):
    name: Text
    how: Text
    at: Seconds
    joined: Seconds | None = None


class _Failure(BaseModel):
    name: Text
    where: Text
    how: Text


class _Outcome(BaseModel):
    """What the page shows of an outcome.json."""

    seconds: Seconds
    replacements: list[_Replacement] = []
    lost: list[Text] = []
    lost_hosts: list[Text] = []
    failures: list[_Failure] = []
    interrupted: Text | None = None


def events_of(run: "LoggedRun") -> EventList:
    """Return what is known of a run's course, in order."""
    resumed = run.facts.get("resumed")
    found = [("0:00", f"went on from the checkpoint of round {resumed}")] if isinstance(resumed, int) else []
    try:
        outcome = _Outcome.model_validate_json((run.folder / OUTCOME_FILE).read_bytes())
    except (OSError, ValidationError):
        return found
    end = clock(outcome.seconds)
    for replacement in outcome.replacements:
        joined = f"; the new one had the model at {clock(replacement.joined)}" if replacement.joined is not None else ""
        found.append((clock(replacement.at), f"{replacement.name} {replacement.how} and was replaced{joined}"))
    found += [("", f"{name} was lost; the others went on") for name in outcome.lost]
    found += [("", f"the host {name} no longer answered; the job went on without it") for name in outcome.lost_hosts]
    found += [(end, f"{failure.name} on {failure.where} {failure.how}") for failure in outcome.failures]
    if outcome.interrupted:
        found.append((end, f"the job was ended by {outcome.interrupted}"))
    return found
