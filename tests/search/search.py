"""Runs many schedules, and makes those that fail as small as they can be."""

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise

from .options import accepted
from .schedule import Death, Schedule, draw
from .world import World

#: Schedules that one process searches before it says what it has found.
CHUNK = 50


@dataclass(frozen=True)
class Finding:
    """The outcome of a schedule.

    Attributes:
        schedule: the schedule.
        error: what was wrong; "" where nothing was.
        steps: number of things that happened.
        jobs: number of jobs that it took to finish the training.
        history: what happened, in words.
    """

    schedule: Schedule
    error: str
    steps: int
    jobs: int
    history: tuple[str, ...]


def failure(schedule: Schedule) -> Finding:
    """Run a schedule; an exception is what was wrong."""
    world = World(schedule)
    error = ""
    try:
        world.run()
    except Exception as caught:
        error = f"{type(caught).__name__}: {caught}"
    return Finding(schedule, error, world.steps, world.jobs, tuple(world.history))


@dataclass(frozen=True)
class Chunk:
    """The outcome of several schedules of a kind."""

    kind: str
    schedules: int
    steps: int
    seconds: float
    failures: tuple[Finding, ...]


def search(
    kinds: Iterable[str], first: int, schedules: int, jobs: int = 1, arguments: tuple[str, ...] = ()
) -> Iterator[Chunk]:
    """Run schedules of each kind, in several processes where `jobs` is more than 1.

    See `schedule.draw` for `arguments`.
    """
    tasks = [
        (kind, start, min(CHUNK, first + schedules - start), arguments)
        for kind in kinds
        for start in range(first, first + schedules, CHUNK)
    ]
    if jobs == 1:
        yield from map(_search_chunk, tasks)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(_search_chunk, tasks)


def _search_chunk(task: tuple[str, int, int, tuple[str, ...]]) -> Chunk:
    kind, first, count, arguments = task
    start = time.perf_counter()
    findings = [failure(draw(kind, seed, arguments)) for seed in range(first, first + count)]
    failures = tuple(replace(finding, history=()) for finding in findings if finding.error)
    return Chunk(kind, count, sum(finding.steps for finding in findings), time.perf_counter() - start, failures)


def shrink(schedule: Schedule, patience: int = 400) -> Schedule:
    """Simplify a failing schedule for as long as it still fails, with whatever error.

    Args:
        schedule: one that fails.
        patience: schedules that are tried at most.
    """
    tried: set[Schedule] = set()
    progress = True
    while progress:
        progress = False
        for simpler in _simpler(schedule):
            if simpler in tried or len(tried) >= patience:
                continue
            tried.add(simpler)
            if failure(simpler).error:
                schedule, progress = simpler, True
                break
    return schedule


def _simpler(schedule: Schedule) -> Iterator[Schedule]:
    """Yield schedules that are simpler in one respect, those with the greatest difference first."""
    deaths = schedule.deaths
    for place in range(len(deaths)):
        yield replace(schedule, deaths=deaths[:place] + deaths[place + 1 :])
    for name, minimum in (("workers", 1), ("servers", 1), ("rounds", 1), ("machines", 1), ("every", 0), ("stop", 0)):
        for value in dict.fromkeys((minimum, getattr(schedule, name) // 2, getattr(schedule, name) - 1)):
            if minimum <= value < getattr(schedule, name):
                yield replace(schedule, **{name: value})
    for name in ("momentum", "jitter"):
        if getattr(schedule, name):
            yield replace(schedule, **{name: 0.0})
    options = schedule.options
    begins = [place for place, word in enumerate(options) if word.startswith("--")]
    for begin, end in pairwise([*begins, len(options)]):
        fewer = options[:begin] + options[end:]
        if accepted(schedule.settings.mode, fewer):
            yield replace(schedule, options=fewer)
    last = max((death.step for death in deaths), default=0)
    for calm in (0, last // 2, last, last + 100, last + 1000):
        if calm < schedule.calm:
            yield replace(schedule, calm=calm)
    for place, death in enumerate(deaths):
        for step in dict.fromkeys((death.step // 2, death.step * 3 // 4, death.step - 10, death.step - 1)):
            if 0 <= step < death.step:
                yield _with(schedule, place, replace(death, step=step))
        if death.number:
            yield _with(schedule, place, replace(death, number=0))


def _with(schedule: Schedule, place: int, death: Death) -> Schedule:
    deaths = [*schedule.deaths]
    deaths[place] = death
    return replace(schedule, deaths=tuple(sorted(deaths, key=lambda entry: entry.step)))


def report(chunks: Iterable[Chunk], shrinking: bool) -> int:
    """Print what was found, kind by kind; exit code 1 where something was."""
    totals: dict[str, list[float]] = {}
    failed = False
    for chunk in chunks:
        total = totals.setdefault(chunk.kind, [0, 0, 0.0, 0])
        for place, value in enumerate((chunk.schedules, chunk.steps, chunk.seconds, len(chunk.failures))):
            total[place] += value
        for finding in chunk.failures:
            failed = True
            print(f"{finding.schedule.command}\n    {finding.error}", flush=True)
            if shrinking:
                smallest = shrink(finding.schedule)
                print(f"  as simple as it gets: {smallest.command}\n    {failure(smallest).error}", flush=True)
    print(f"{'kind':16} {'schedules':>9} {'failed':>6} {'steps each':>10} {'a minute':>8}")
    for kind, (schedules, steps, seconds, failures) in totals.items():
        speed = 60 * schedules / max(seconds, 1e-9)
        print(f"{kind:16} {schedules:9.0f} {failures:6.0f} {steps / max(schedules, 1):10.0f} {speed:8.0f}")
    return failed
