"""A reader of traces that follows the rules of the Trace Event Format, and refuses what breaks them."""

import gzip
import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Slice:
    """A slice of a thread; times in microseconds."""

    name: str
    begin: int
    end: int
    depth: int
    args: dict[str, Any]


@dataclass
class Trace:
    """What a viewer would show, by names: PROCESS/THREAD for slices and instants, PROCESS for counters."""

    processes: list[str] = field(default_factory=list)
    slices: dict[str, list[Slice]] = field(default_factory=lambda: defaultdict(list))
    instants: dict[str, list[tuple[int, str]]] = field(default_factory=lambda: defaultdict(list))
    counters: dict[tuple[str, str], list[tuple[int, dict[str, float]]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    arrows: list[tuple[tuple[str, Slice], tuple[str, Slice]]] = field(default_factory=list)

    def seconds(self, track: str, name: str) -> float:
        """Seconds of all slices of a name."""
        return sum(span.end - span.begin for span in self.slices[track] if span.name == name) / 1e6


def read_trace(path: Path) -> Trace:
    """Read a file; an AssertionError says which rule it breaks."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return understood(json.loads(content)["traceEvents"])


def understood(events: list[dict[str, Any]]) -> Trace:
    """Return what a viewer would show of these events."""
    trace = Trace()
    processes = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    threads = {
        (event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"
    }
    assert len({tid for _, tid in threads}) == len(threads), "a number stands for two threads"
    assert not {tid for _, tid in threads} & processes.keys(), "a thread has the number of a process"
    trace.processes = list(processes.values())
    tracks = {(pid, tid): f"{processes[pid]}/{name}" for (pid, tid), name in threads.items()}
    timed = [event for event in events if event["ph"] != "M"]
    assert all(type(event["ts"]) is int and event["ts"] >= 0 for event in timed), "times are microseconds from 0 on"
    by_track = defaultdict(list)
    for event in timed:
        if event["ph"] == "X":
            by_track[tracks[event["pid"], event["tid"]]].append(event)
    for track, slices in by_track.items():
        trace.slices[track] = _nested(track, slices)
    starts: dict[int, dict[str, Any]] = {}
    ends: dict[int, dict[str, Any]] = {}
    for event in timed:
        match event["ph"]:
            case "i":
                assert event["s"] in ("t", "p", "g")
                trace.instants[tracks[event["pid"], event["tid"]]].append((event["ts"], event["name"]))
            case "C":
                assert event["args"]
                assert all(isinstance(value, int | float) for value in event["args"].values())
                trace.counters[processes[event["pid"]], event["name"]].append((event["ts"], event["args"]))
            case "s" | "f" as ph:
                arrow_ends = starts if ph == "s" else ends
                assert event["id"] not in arrow_ends, "two arrows have one number"
                arrow_ends[event["id"]] = event
            case ph:
                assert ph == "X", f"unknown kind of event: {ph}"
    assert starts.keys() == ends.keys(), "an arrow has only one end"
    for number, start in starts.items():
        end = ends[number]
        assert start["ts"] <= end["ts"], "an arrow goes back in time"
        assert (start["name"], start["cat"], end["bp"]) == (end["name"], end["cat"], "e")
        trace.arrows.append((_enclosing(trace, tracks, start), _enclosing(trace, tracks, end)))
    for column in trace.counters.values():
        assert column == sorted(column, key=lambda point: point[0])
    return trace


def _nested(track: str, slices: list[dict[str, Any]]) -> list[Slice]:
    nested: list[Slice] = []
    open_: list[Slice] = []
    for event in sorted(slices, key=lambda event: (event["ts"], -event["dur"])):
        begin, end = event["ts"], event["ts"] + event["dur"]
        assert event["dur"] >= 0, f"{track}: {event['name']} ends before it begins"
        while open_ and open_[-1].end <= begin:
            open_.pop()
        assert not open_ or end <= open_[-1].end, f"{track}: {event['name']} overlaps {open_[-1].name}"
        open_.append(Slice(event["name"], begin, end, len(open_), event.get("args", {})))
        nested.append(open_[-1])
    return nested


def _enclosing(trace: Trace, tracks: dict[tuple[int, int], str], event: dict[str, Any]) -> tuple[str, Slice]:
    """The innermost slice at an end of an arrow, to which viewers attach it."""
    track = tracks[event["pid"], event["tid"]]
    inside = [span for span in trace.slices[track] if span.begin <= event["ts"] < span.end]
    assert inside, "an end of an arrow is in no slice"
    return track, max(inside, key=lambda span: span.depth)
