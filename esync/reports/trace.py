"""Write what the devices of a run did as a trace, which Perfetto and chrome://tracing show.

The format is the JSON one of "Trace Event Format" (Google, 2016): a process for each host, a thread for
each device, times in microseconds since the first worker began. The phases of a round are those of
`phases`, as in report.html. Time zero of a device's log is when it began; `started` in run.json, by its
host's clock, says by how much later than the first one. A difference of more than `LATEST_START` is not
used: that host's clock is wrong, or the worker has replaced another, and its log counts from the start
of the job.
"""

import gzip
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path
from typing import Any

from ..runtime.errors import ExpectedError
from ..runtime.files import atomic_path
from ..runtime.metric import finite
from ..runtime.output import printable
from .job_events import job_events
from .phases import Block, blocks_of, round_ends
from .runs import LoggedRun
from .summary_file import DeviceSummary

#: Seconds by which workers of a job may begin after the first one.
LATEST_START = 1.0

Event = dict[str, Any]


class TraceError(ExpectedError):
    """Raised when runs cannot be shown in one trace; the message says why."""

    exit_code = 2


@dataclass(frozen=True)
class _Track:
    """A device: its log, its numbers in the trace, and when it began after the first one, in seconds.

    The thread of its evaluations is `evaluation_tid`.
    """

    name: str
    device: DeviceSummary
    pid: int
    tid: int
    evaluation_tid: int
    offset: float
    blocks: Sequence[Block]

    def at(self, seconds: float) -> int:
        """Return a time of the log in microseconds of the trace; whole ones, so that slices nest exactly."""
        return round(1e6 * (self.offset + seconds))

    def event(self, ph: str, name: str, at: int, **more: Any) -> Event:
        """Return an event of this device."""
        return {"ph": ph, "name": name, "pid": self.pid, "tid": self.tid, "ts": at, **more}


def write_trace(runs: Sequence[LoggedRun], path: Path) -> int:
    """Write the trace of a run, finished or not, and return the number of its events.

    Args:
        runs: the run.
        path: the file to write; it is compressed if its name ends with .gz.

    Raises:
        TraceError: there are several runs.
        OSError: the file cannot be written.
    """
    if len(runs) > 1:
        names = ", ".join(str(run.folder) for run in runs[:3])
        raise TraceError(f"a trace shows one run, and these are {len(runs)}: {names}{', …' * (len(runs) > 3)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with (
        atomic_path(path) as temporary,
        gzip.open(temporary, "wt") if path.suffix == ".gz" else open(temporary, "w", encoding="ascii") as file,
    ):
        file.write('{"displayTimeUnit": "ms", "traceEvents": [')
        for event in trace_events(runs[0]):
            file.write(("," if written else "") + "\n" + json.dumps(event, separators=(",", ":"), allow_nan=False))
            written += 1
        file.write("\n]}\n")
    return written


def trace_events(run: LoggedRun) -> Iterator[Event]:
    """Yield the events of a run's trace: names, slices, counters, evaluations, arrows, and what happened to the job."""
    started = {name: _started(device) for name, device in run.devices.items()}
    first = min((when for when in started.values() if when is not None), default=None)
    tracks: list[_Track] = []
    numbers = count(len(run.summary) + 2)  # of threads; a thread with its process's number would be its main thread
    for pid, (host, devices) in enumerate(run.summary.items(), start=1):
        yield _named("process", host, pid)
        for name, device in devices.items():
            began = started[f"{host}/{name}"]
            late = 0.0 if began is None or first is None else began - first
            offset = late if late <= LATEST_START else 0.0
            tracks.append(_Track(name, device, pid, next(numbers), next(numbers), offset, blocks_of(device)))
            yield _named("thread", name, pid, tracks[-1].tid)
    for track in tracks:
        yield from _slices(track)
        yield from _counters(track)
        yield from _evaluations(track)
    yield from _arrows([track for track in tracks if track.device.wait_list and track.device.unit == "round"])
    yield from _job(run, tracks, first, next(numbers))


def _started(device: DeviceSummary) -> float | None:
    when = device.run.model_dump().get("started") if device.run else None
    return finite(when) if isinstance(when, int | float) else None


def _named(what: str, name: str, pid: int, tid: int = 0) -> Event:
    return {"ph": "M", "name": f"{what}_name", "pid": pid, "tid": tid, "args": {"name": printable(name)}}


def _slices(track: _Track) -> Iterator[Event]:
    """Yield a slice for each round, and in it those of its phases."""
    device = track.device
    names = "computing", "waiting", "transferring" if device.wait_list else "waiting and transferring"
    for index, block in enumerate(track.blocks):
        args = {"samples": device.num_samples_list[index]}
        if device.run_rounds_list:
            args["round of the run"] = device.run_rounds_list[index]
        begin, *edges = track.at(block.begin), *map(track.at, block.edges)
        yield track.event("X", f"{device.unit} {block.first}", begin, dur=edges[-1] - begin, args=args)
        for name, (since, until) in zip(names, pairwise(edges), strict=True):
            if until > since:
                yield track.event("X", name, since, dur=until - since)


def _counters(track: _Track) -> Iterator[Event]:
    """Yield samples and bytes per second of each round, and zeros where the log has no rounds."""
    device = track.device
    columns = {track.name: {"samples/s": device.num_samples_list}}
    if device.bytes_sent_list and not device.bytes_estimated:
        received = {"received": device.bytes_received_list} if device.bytes_received_list else {}
        columns[f"{track.name} bytes/s"] = {"sent": device.bytes_sent_list, **received}
    for name, amounts in columns.items():
        before = 0.0
        for index, block in enumerate(track.blocks):
            lasted = block.end - block.begin
            if block.begin > before:
                yield track.event("C", name, track.at(before), args=dict.fromkeys(amounts, 0))
            if lasted > 0:
                rates = {kind: round(column[index] / lasted, 1) for kind, column in amounts.items()}
                yield track.event("C", name, track.at(block.begin), args=rates)
            before = block.end
        yield track.event("C", name, track.at(before), args=dict.fromkeys(amounts, 0))


def _evaluations(track: _Track) -> Iterator[Event]:
    """Yield each evaluation from the time of its weights on; one whose duration is not known is a mark.

    The slices are those of a thread of their own, because evaluations go on while the device trains.
    """
    device, metric = track.device, track.device.metric
    begins = [track.at(seconds) for seconds in device.accuracy_time_list]
    spans = pairwise([*begins, sys.maxsize])  # one begins after the previous one has ended
    durations = device.evaluation_time_list or [None] * len(begins)
    if device.evaluation_time_list:
        yield _named("thread", f"{track.name} evaluation", track.pid, track.evaluation_tid)
    columns = zip(device.accuracy_rounds, spans, durations, device.accuracy_exact_list, strict=True)
    for number, (begin, end), duration, value in columns:
        text = printable(f"evaluation of {device.unit} {number}: {metric.name} {metric.text(value)}")
        if duration is None:
            yield track.event("i", text, begin, s="t")
        else:
            lasted = max(0, min(round(1e6 * duration), end - begin))
            yield {**track.event("X", text, begin, dur=lasted), "tid": track.evaluation_tid}
        yield track.event("C", "evaluated", begin, args={printable(metric.name): value})


def _arrows(tracks: Sequence[_Track]) -> Iterator[Event]:
    """Yield arrows from the device that committed last in a round to the exchanges of the others."""
    exchanges: dict[int, list[tuple[float, _Track, Block]]] = {}
    for track in tracks:
        for wait, block in zip(track.device.wait_list, track.blocks, strict=True):
            if wait is not None and block.exchange > 0:
                exchanges.setdefault(block.first, []).append((wait, track, block))
    numbers = count(1)
    for joined in exchanges.values():
        _, last, its = min(joined, key=lambda exchange: exchange[0])
        for _, track, block in joined:
            # Where the hosts' clocks do not quite agree, both ends stay within their slices.
            begin = min(last.at(its.edges[2]), track.at(block.end) - 1)
            end = max(begin, track.at(block.edges[2]))
            if track is not last and last.at(its.begin) <= begin and end < track.at(block.end):
                arrow: Event = {"cat": "round", "id": next(numbers)}
                yield last.event("s", "last commit", begin, **arrow)
                yield track.event("f", "last commit", end, **arrow, bp="e")


def _job(run: LoggedRun, tracks: Sequence[_Track], first: float | None, tid: int) -> Iterator[Event]:
    """Yield replacements, losses and failures in a process of their own; without a known time they are at the end."""
    events = job_events(run)
    if not events:
        return
    pid = len(run.summary) + 1
    yield _named("process", "job", pid)
    yield _named("thread", "events", pid, tid)
    resumed = _resumed_at(run.facts.get("resumed"), (track.device for track in tracks))
    end = max(track.offset + track.blocks[-1].end for track in tracks)
    for event in events:
        # Before the workers began there is no time in the trace.
        after = 0.0 if event.at is None or first is None else max(0.0, event.at - first)
        seconds = end if event.seconds is None else resumed + after
        yield {"ph": "i", "name": event.text, "pid": pid, "tid": tid, "ts": round(1e6 * seconds), "s": "t"}


def _resumed_at(number: Any, devices: Iterable[DeviceSummary]) -> float:
    """Return the time at which logs go on after the checkpoint of a round; 0 without one."""
    ends = (dict(zip(device.rounds_list, round_ends(device), strict=True)).get(number, 0.0) for device in devices)
    return max(ends, default=0.0)
