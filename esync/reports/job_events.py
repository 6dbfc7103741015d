"""Events of a run: replacements, losses, failures, and the checkpoint with which it resumed.

Launch writes the content of its `--json` to `processes/outcome.json` in the run's folder. It is
untrusted input: an invalid file is ignored.
"""

from dataclasses import dataclass
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


@dataclass(frozen=True)
class JobEvent:
    """What happened in a job.

    Attributes:
        text: in words.
        seconds: since the start of the job; None if unknown.
        at: the same in seconds since 1970, by the clock of the launching host; None if unknown.
    """

    text: str
    seconds: float | None = None
    at: float | None = None


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

    began: float | None = Field(default=None, ge=0, lt=1e12)  # since 1970
    seconds: Seconds
    replacements: list[_Replacement] = []
    lost: list[Text] = []
    lost_hosts: list[Text] = []
    failures: list[_Failure] = []
    interrupted: Text | None = None
    preempted: Text | None = None


def job_events(run: "LoggedRun") -> list[JobEvent]:
    """Return the known events of a run, in order."""
    resumed = run.facts.get("resumed")
    events = [JobEvent(f"went on from the checkpoint of round {resumed}", 0.0)] if isinstance(resumed, int) else []
    try:
        outcome = _Outcome.model_validate_json((run.folder / OUTCOME_FILE).read_bytes())
    except (OSError, ValidationError):
        return events

    def event(text: str, seconds: float) -> JobEvent:
        return JobEvent(text, seconds, None if outcome.began is None else outcome.began + seconds)

    for replacement in outcome.replacements:
        joined = f"; the new one had the model at {clock(replacement.joined)}" if replacement.joined is not None else ""
        events.append(event(f"{replacement.name} {replacement.how} and was replaced{joined}", replacement.at))
    events += [JobEvent(f"{name} was lost; the others went on") for name in outcome.lost]
    events += [
        JobEvent(f"the host {name} no longer answered; the job went on without it") for name in outcome.lost_hosts
    ]
    events += [event(f"{failed.name} on {failed.where} {failed.how}", outcome.seconds) for failed in outcome.failures]
    if outcome.preempted:
        events.append(event(f"the job was preempted by {outcome.preempted}", outcome.seconds))
    elif outcome.interrupted:
        events.append(event(f"the job was ended by {outcome.interrupted}", outcome.seconds))
    return events


def events_of(run: "LoggedRun") -> EventList:
    """Return the known events of a run with their times in words, in order."""
    return [("" if event.seconds is None else clock(event.seconds), event.text) for event in job_events(run)]
