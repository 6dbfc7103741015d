"""Kills at chosen moments, as sections of faults.py: in the end, in a checkpoint, of rank 0, of whole machines."""

import json
import os
import signal
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from watched_job import STEPS, Job

#: Seconds that a job may take to end after a kill, or to resume and end.
PATIENCE = 120.0
#: Two workers whose rounds last 0.4 s.
PAIR = [0.2, 0.4]
#: Moment in the end of a run → ranks that are killed then.
ENDS = {"last round": (0, 1), "after the last round": (0, 1), "export": (0,)}
SYNC: dict[str, Any] = {"mode": "sync", "learning_rate": 0.01, "no_evaluation": True}
#: A network whose checkpoints take long enough to be killed in one, with a momentum in every worker's part.
LARGE: dict[str, Any] = {
    "mode": "esync",
    "local_iterations": 1,
    "network": "resnet18-v1",
    "batch_size": 1,
    "local_lr": 1e-4,
    "momentum": 0.9,
    "no_evaluation": True,
}


def end(folder: Path) -> dict[str, Any]:
    """Kill a worker when the run is all but over: which exit code, how long until everybody has ended."""
    deaths = []
    for elastic in (False, True):
        for moment, ranks in ENDS.items():
            for rank in ranks:
                place = _place(folder, f"{moment}-{rank}-{elastic}")
                death = _at_the_end(place, moment, rank, elastic)
                deaths.append({"moment": moment, "rank": rank, "elastic": elastic, **death})
                print(deaths[-1], flush=True)
    return {"kills": sum(death["killed"] for death in deaths), "exit_codes": _codes(deaths), "each": deaths}


def _at_the_end(place: Path, moment: str, rank: int, elastic: bool) -> dict[str, Any]:
    rounds = 10
    with Job(place, steps=PAIR, rounds=rounds, elastic=elastic, **SYNC) as job:

        def has_come() -> bool:
            if moment == "export":
                return any(place.glob("logs/*/*/h0/cpu/model"))
            return max(job.rounds(rank), default=0) >= rounds - (moment == "last round")

        job.until(lambda: job.rounds(rank))
        victim = job.worker(rank)
        job.until(has_come, pause=0.0005)
        killed, when = _kill(victim), time.monotonic()
        report = job.finish(limit=PATIENCE)
        seconds = time.monotonic() - when
        done = [max(job.rounds(each), default=0) for each in range(len(PAIR))]
        return {
            "killed": killed,
            "exit_code": report["exit_code"],
            "seconds_until_the_job_has_ended": seconds,
            "rounds_wanted": rounds,
            "rounds_done": done,
            "final_model": any(place.glob("logs/*/*/h0/cpu/model/model.params")),
        }


def checkpoint(folder: Path) -> dict[str, Any]:
    """Kill a worker while it writes its part; later the parameter server, too: does the run resume with one kept?"""
    deaths = []
    for rank in (1, 0):
        place = _place(folder, f"rank-{rank}")
        kept = {"checkpoint_dir": str(place / "checkpoints"), "checkpoint_every": 2, "keep_checkpoints": 1}
        with Job(place, steps=[None, None], rounds=1000, **kept, **LARGE) as job:
            job.until(lambda place=place: max(_begun(place / "checkpoints"), default=0) >= 4)
            victim = job.worker(rank)
            job.until(lambda place=place, rank=rank: _cut(place / "checkpoints", rank), pause=0.0005)
            killed, when = _kill(victim), time.time()
            cut, begun = _cut(place / "checkpoints", rank), _begun(place / "checkpoints")
            job.until(lambda job=job, rank=rank, when=when: max(job.rounds(rank).values(), default=0) > when + 0.5)
            replaced = time.time() - when
            known = len(job.rounds())
            job.until(lambda job=job, known=known: len(job.rounds()) >= known + 3)
            _kill(min(job.processes("esync.server"), default=None))
            job.finish(quiet=True, limit=PATIENCE)
        deaths.append(
            {
                "rank": rank,
                "killed": killed,
                "part_was_cut": cut,
                "in_checkpoint_of_round": max(begun, default=None),
                "seconds_until_the_replacement_has_done_a_round": replaced,
                **_resume(place, max(job.rounds()) + 2, [None, None], **kept, **LARGE),
            }
        )
    return {"kills": sum(death["killed"] for death in deaths), "exit_codes": _codes(deaths), "each": deaths}


def without_rank_0(folder: Path) -> dict[str, Any]:
    """Kill rank 0 of an elastic job for good, later the parameter server: is a checkpoint left to resume from?"""
    checkpoints = {"checkpoint_dir": str(folder / "checkpoints"), "checkpoint_every": 3, "keep_checkpoints": 1}
    train = {**SYNC, "elastic": True, **checkpoints}
    with Job(folder, "--no-restart", rounds=1000, **train) as job:
        job.until(lambda: len(job.rounds()) >= 8)
        killed, when = _kill(job.worker(0)), time.time()
        job.until(lambda: max(job.rounds(1).values()) > when + 0.2)
        stood_still = max(job.rounds(1).values()) - when
        known = len(job.rounds(1))
        job.until(lambda: len(job.rounds(1)) >= known + 10)
        begun = _begun(folder / "checkpoints")
        _kill(min(job.processes("esync.server"), default=None))
        job.finish(quiet=True, limit=PATIENCE)
        rank_0, others = max(job.rounds(0)), max(job.rounds(1))
    return {
        "kills": int(killed),
        "round_of_rank_0": rank_0,
        "round_of_the_others": others,
        "seconds_until_next_round": stood_still,
        "checkpoints_left": begun,
        **_resume(folder, others + 2, **train),
    }


def machines(folder: Path) -> dict[str, Any]:
    """Kill all processes of a host at once: of one with two workers, and of one with a worker and a server."""
    hosts = ["h0", "h1", "h1", "h2"]
    results: dict[str, Any] = {}
    for name, flags, train in (
        ("two workers", (), {}),
        ("two workers, elastic and not replaced", ("--no-restart",), {"elastic": True}),
    ):
        place = _place(folder, name)
        with Job(place, *flags, hosts=hosts, rounds=25, **train, **SYNC) as job:
            job.until(lambda job=job: len(job.rounds()) >= 8)
            victims = list(job.processes("esync.worker", "/h1 "))
            killed, when = [_kill(pid) for pid in victims], time.time()
            job.until(lambda job=job, when=when: max(job.rounds().values()) > when + 0.9)
            stood_still = max(job.rounds().values()) - when
            report = job.finish(limit=PATIENCE)
            results[name] = {
                "killed": sum(killed),
                "exit_code": report["exit_code"],
                "seconds_until_next_round": stood_still,
                "rounds_wanted": 25,
                "rounds_done": max(job.rounds()),
            }
    place = _place(folder, "server")
    train = {**SYNC, "checkpoint_dir": str(place / "checkpoints"), "checkpoint_every": 3}
    with Job(place, hosts=hosts, servers=("h0", "h2"), rounds=1000, **train) as job:
        job.until(lambda: len(job.rounds()) >= 8)
        victims = [*job.processes("esync.worker", "/h2 "), max(job.processes("esync.server"))]  # started in this order
        killed, when = [_kill(pid) for pid in victims], time.time()
        report = job.finish(quiet=True, limit=PATIENCE)
        results["a worker and a server"] = {
            "killed": sum(killed),
            "exit_code_of_the_run_that_ends": report["exit_code"],
            "failed": sorted({failure["name"] for failure in report.get("failures", [])}),
            "seconds_until_everybody_has_ended": time.time() - when,
            **_resume(place, max(job.rounds()) + 5, hosts=hosts, servers=("h0", "h2"), **train),
        }
    return {
        "kills": sum(each["killed"] for each in results.values()),
        "exit_codes": _codes(results.values()),
        **results,
    }


def _resume(place: Path, rounds: int, steps: Sequence[float | None] = STEPS, **train: Any) -> dict[str, Any]:
    """Resume a job up to so many rounds, and return its exit code and the round that it has gone on from."""
    with Job(place, "--resume", steps=steps, rounds=rounds, **train) as job:
        report = job.finish(limit=PATIENCE)
        facts = next(iter(place.glob("logs/*/*/h0/cpu/run.json")), None)
        resumed = None if facts is None else json.loads(facts.read_text()).get("resumed")
        return {
            "exit_code": report["exit_code"],
            "resumed_after_round": resumed,
            "rounds_wanted": rounds,
            "rounds_done": max(job.rounds(), default=0),
        }


def _place(folder: Path, name: str) -> Path:
    place = folder / name.replace(" ", "-").replace(",", "")
    place.mkdir()
    return place


def _kill(process: int | None) -> bool:
    """Kill a process; False where it has ended by itself."""
    try:
        if process is not None:
            os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return process is not None


def _cut(checkpoints: Path, rank: int) -> bool:
    """Return whether a file of a worker's part is being written, or was left half written."""
    names = [f".worker-{rank}."] + [".model.params.", ".server.npz."] * (rank == 0)
    return any(path.name.startswith(tuple(names)) for path in checkpoints.glob("round-*/.*"))


def _begun(checkpoints: Path) -> list[int]:
    """Return the rounds of all checkpoints, whole or not."""
    return sorted(int(path.name.removeprefix("round-")) for path in checkpoints.glob("round-*"))


def _codes(deaths: Iterable[dict[str, Any]]) -> list[int]:
    return [death["exit_code"] for death in deaths]
