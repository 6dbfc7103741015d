"""Events of a run: replacements, losses, failures, and the checkpoint with which it resumed.

Launch writes the content of its `--json` to `processes/outcome.json` in the run's folder. It is
untrusted input: an invalid file is ignored.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, BaseModel, Field, ValidationError

from ..runtime.output import printable
from ..runtime.terminal import clock

if TYPE_CHECKING:
    from .runs import LoggedRun

#: Files that launch writes to the run's folder: how the job went, and its report.
OUTCOME_FILE = Path("processes", "outcome.json")
REPORT_FILE = "report.html"

#: Pairs of time, in minutes and seconds since the start of the job, and event.
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
    """The part of outcome.json that a page shows."""

    seconds: Seconds
    replacements: list[_Replacement] = []
    lost: list[Text] = []
    lost_hosts: list[Text] = []
    failures: list[_Failure] = []
    interrupted: Text | None = None
    preempted: Text | None = None


def events_of(run: "LoggedRun") -> EventList:
    """Return the known events of a run, in order."""
    resumed = run.facts.get("resumed")
    events = [("0:00", f"went on from the checkpoint of round {resumed}")] if isinstance(resumed, int) else []
    try:
        outcome = _Outcome.model_validate_json((run.folder / OUTCOME_FILE).read_bytes())
    except (OSError, ValidationError):
        return events
    end = clock(outcome.seconds)
    for replacement in outcome.replacements:
        joined = f"; the new one had the model at {clock(replacement.joined)}" if replacement.joined is not None else ""
        events.append((clock(replacement.at), f"{replacement.name} {replacement.how} and was replaced{joined}"))
    events += [("", f"{name} was lost; the others went on") for name in outcome.lost]
    events += [("", f"the host {name} no longer answered; the job went on without it") for name in outcome.lost_hosts]
    events += [(end, f"{failure.name} on {failure.where} {failure.how}") for failure in outcome.failures]
    if outcome.preempted:
        events.append((end, f"the job was preempted by {outcome.preempted}"))
    elif outcome.interrupted:
        events.append((end, f"the job was ended by {outcome.interrupted}"))
    return events
