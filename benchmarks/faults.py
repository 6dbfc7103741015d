"""What do failures cost? Whole emulated jobs on real data, whose processes are killed.

    python benchmarks/faults.py                                 # all sections
    python benchmarks/faults.py --sections esync server         # some of them
    python benchmarks/faults.py --sections esync --kills 3      # a first look

Sections: esync, sync and async kill workers (rank 0 included; half of the kills are aimed at the
end of a round, where exchanges are), which the launcher replaces; per-host does so where the two
workers of each host exchange as one (`per_host: true`), and looks for what is left of the memory
that they share; state-server kills the state server, which it starts again; server kills the
parameter server, once with a launcher that is at work and once with one that is stopped; resume
kills it, too, and compares the resumed job's accuracies with an undisturbed one's; elastic kills
one worker of four for good; end kills workers in the last round, after it, and while the final
model is written; checkpoint kills them while they write their parts, without-rank-0 kills rank 0
for good, and both kill the parameter server later and resume; machines kills all processes of an
emulated host at once.
"""

import itertools
import json
import os
import random
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from harness import program
from harness.figures import read_figures, write_figures
from harness.jobs import STEPS, Job

#: Step times where efficiency is measured: longer rounds, so that an exchange (a twentieth of a
#: second) weighs little.
LONG_STEPS = [0.2, 0.47, 0.63, 2.1]
#: Section → kills, rounds, flags.
KILLS: dict[str, tuple[int, int, dict[str, Any]]] = {
    "esync": (20, 120, {"mode": "esync", "local_lr": 0.004}),
    "sync": (5, 40, {"mode": "sync", "learning_rate": 0.01}),
    "async": (5, 100, {"mode": "async", "learning_rate": 0.004}),
    "per-host": (
        20,
        120,
        {
            "mode": "sync",
            "learning_rate": 0.01,
            "hosts": ["h0", "h0", "h1", "h1"],
            "per_host": True,
            "steps": [0.2, 0.25, 0.2, 0.25],
        },
    ),
}
STATE_SERVER_KILLS = 10
#: Parts of the time that a death costs: until the launcher notices it, until the replacement is
#: ready to join the others, until it has the model, until its first round is over.
PARTS = ("noticed", "start", "restore", "first_round")
TARGET = 0.7  # test accuracy that the esync job has to reach
#: Seconds that a job may take to end after a kill, or to resume and end.
PATIENCE = 120.0
#: Two workers whose rounds last 0.4 s.
PAIR = [0.2, 0.4]
#: Moment in the end of a run → ranks that are killed then.
ENDS = {"last round": (0, 1), "after the last round": (0, 1), "export": (0,)}
SYNC: dict[str, Any] = {"mode": "sync", "learning_rate": 0.01, "no_evaluation": True}
#: A network whose checkpoints take long enough to be killed in one, with a momentum in every
#: worker's part.
LARGE: dict[str, Any] = {
    "mode": "esync",
    "local_iterations": 1,
    "network": "resnet18-v1",
    "batch_size": 1,
    "local_lr": 1e-4,
    "momentum": 0.9,
    "no_evaluation": True,
}


def kill_workers(section: str, folder: Path, kills: int, chance: random.Random) -> dict[str, Any]:
    """Kill random workers at random moments, one after the other.

    Each is killed when the one before has been replaced.
    """
    _, rounds, train = KILLS[section]
    ranks = [index % len(STEPS) for index in range(kills)]  # each of them equally often
    chance.shuffle(ranks)
    deaths: list[dict[str, Any]] = []
    shared: set[str] = set()  # names of memory that workers of a host share
    with Job(folder, "--rounds", str(rounds), "--max-restarts", str(kills), **train) as job:
        for number, rank in enumerate(ranks):
            known = len(job.rounds(rank))
            if not job.until(lambda rank=rank, known=known: len(job.rounds(rank)) >= known + 3):
                break
            aimed = number % 2 == 1
            if aimed:  # the round ends when the slowest worker's iteration does
                ends = sorted(job.rounds(rank).values())
                lasts = statistics.median(b - a for a, b in zip(ends[-4:], ends[-3:], strict=False))
                time.sleep(max(0.0, ends[-1] + lasts - time.time() - chance.uniform(0.0, 0.06)))
            else:
                time.sleep(chance.uniform(0.0, 1.0))
            victim, last = job.worker(rank), max(job.rounds(rank), default=0)
            shared |= job.host_memory()
            if victim is None:
                break
            os.kill(victim, signal.SIGKILL)
            death: dict[str, Any] = {"rank": rank, "aimed": aimed, "round": last, "killed": time.time()}
            deaths.append(death)
            # Its replacement has logged a round: then the next one may die.
            job.until(lambda rank=rank, death=death: max(job.rounds(rank).values(), default=0) > death["killed"] + 0.5)
        report = job.finish()
        logs = [job.entries(rank) for rank in range(len(STEPS))]
        ends = sorted(job.rounds(len(STEPS) - 1).values())
    for death, replacement in zip(deaths, report.get("replacements", []), strict=False):
        if replacement["reported"] is None:
            continue  # it came when the last round was over
        began = report["began"]
        times = [death["killed"], *(began + replacement[name] for name in ("at", "ready", "joined", "reported"))]
        parts = dict(zip(PARTS, _differences(times), strict=True))
        death |= {**parts, "until_next_round": times[-1] - times[0]}
    for death in deaths:
        death["counted_without_log"] = death["round"] + 1 not in logs[death["rank"]]
    done = [max(log, default=0) for log in logs]
    commits = sum(done) if section == "async" else None
    accuracy = max((entry.get("accuracy", 0.0) for entry in logs[0].values()), default=0.0)
    gaps = _differences(ends)
    return {
        "kills": len(deaths),
        "exit_code": report["exit_code"],
        "rounds_wanted": rounds * (len(STEPS) if commits is not None else 1),
        "rounds_done": commits if commits is not None else done,
        **({"shared_memory": len(shared), "left_of_it": sorted(filter(_exists, shared))} if shared else {}),
        "accuracy": (report.get("figures") or {}).get("final_accuracy") or accuracy,
        "seconds": report.get("seconds"),
        "median_round": statistics.median(gaps) if gaps else None,
        "deaths": deaths,
    }


def _exists(name: str) -> bool:
    """Return whether some process still has memory that workers of a host have shared."""
    if name in Path("/proc/net/unix").read_text():
        return True
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            if name in maps.read_text():
                return True
        except OSError:  # the process has ended
            continue
    return False


def kill_state_server(folder: Path, kills: int, chance: random.Random) -> dict[str, Any]:
    """Kill the state server again and again."""
    rounds = 80
    gaps = []
    train = KILLS["esync"][2]
    with Job(folder, "--rounds", str(rounds), "--max-restarts", str(kills), **train) as job:
        for _ in range(kills):
            known = len(job.rounds())
            if not job.until(lambda known=known: len(job.rounds()) >= known + 3):
                break
            time.sleep(chance.uniform(0.0, 1.0))
            victim = min(job.processes("esync.state_server"), default=None)
            if victim is None:
                break
            os.kill(victim, signal.SIGKILL)
            killed, known = time.time(), len(job.rounds())
            job.until(lambda known=known: len(job.rounds()) > known + 1)
            gaps.append(time.time() - killed)
        report = job.finish()
        done = [max(job.rounds(rank), default=0) for rank in range(len(STEPS))]
    replaced = [each["name"] for each in report.get("replacements", [])]
    return {
        "kills": len(gaps),
        "exit_code": report["exit_code"],
        "rounds_wanted": rounds,
        "rounds_done": done,
        "workers_replaced": sum(name.startswith("worker") for name in replaced),
        "state_server_started_again": replaced.count("state-server"),
        "seconds_until_two_rounds_later": gaps,
    }


def kill_server(folder: Path) -> dict[str, Any]:
    """Kill the parameter server; measure the seconds until no worker is left."""
    results = {}
    for launcher in ("at work", "stopped"):
        place = folder / launcher.replace(" ", "-")
        place.mkdir()
        with Job(place, "--rounds", "100000", mode="sync") as job:
            job.until(lambda job=job: len(job.rounds()) > 3)
            if launcher == "stopped":
                job.launch.send_signal(signal.SIGSTOP)
            os.kill(min(job.processes("esync.server")), signal.SIGKILL)
            killed = time.monotonic()
            while job.processes("esync.worker") and time.monotonic() - killed < 60:
                time.sleep(0.02)
            results[launcher] = time.monotonic() - killed
    return {"seconds_until_all_workers_ended": results, "limit": 30.0}


def resume(folder: Path) -> dict[str, Any]:
    """Kill the parameter server in the middle of a job, and resume the job.

    The accuracies are compared with those of an undisturbed job.
    """
    train: dict[str, Any] = {"mode": "sync", "learning_rate": 0.01, "rounds": 100, "eval_duration": 5}
    curves: dict[str, dict[int, float]] = {}

    def run(name: str, *flags: str, kill: bool = False, **more: Any) -> dict[str, Any]:
        place = folder / name
        place.mkdir(exist_ok=True)
        with Job(place, *flags, **train, **more) as job:
            if kill:
                job.until(lambda: len(job.rounds()) >= 52)
                os.kill(min(job.processes("esync.server")), signal.SIGKILL)
            report = job.finish(quiet=kill)
            entries = job.entries(0)
        curves[name] = {number: entry["accuracy"] for number, entry in entries.items() if "accuracy" in entry}
        return report

    run("undisturbed")
    checkpoints: dict[str, Any] = {"checkpoint_dir": str(folder / "checkpoints"), "checkpoint_every": 5}
    run("interrupted", kill=True, **checkpoints)
    report = run("interrupted", "--resume", **checkpoints)
    both = sorted(curves["undisturbed"].keys() & curves["interrupted"].keys())
    return {
        "exit_code_after_resume": report["exit_code"],
        "resumed_after_round": _resumed(folder),
        "accuracy": {number: [curves[name][number] for name in ("undisturbed", "interrupted")] for number in both},
        "largest_difference": max(
            abs(curves["undisturbed"][number] - curves["interrupted"][number]) for number in both
        ),
    }


def _resumed(folder: Path) -> int | None:
    """Return the round from which the interrupted job continued, by rank 0's run.json."""
    facts = next((folder / "interrupted").glob("logs/*/*/h0/cpu/run.json"))
    found: int | None = json.loads(facts.read_text())["resumed"]
    return found


def lose_one(folder: Path) -> dict[str, Any]:
    """Kill one of four workers for good.

    Measured are how long the others stand still, and how well they work afterwards.
    """
    rounds, lost = 30, 1
    train = {**KILLS["esync"][2], "elastic": True, "lease": 10, "redistribute": True}
    with Job(folder, "--rounds", str(rounds), "--no-restart", steps=LONG_STEPS, **train) as job:
        job.until(lambda: len(job.rounds()) >= 8)
        victim = job.worker(lost)
        if victim is not None:
            os.kill(victim, signal.SIGKILL)
        killed = time.time()
        job.until(lambda: max(job.rounds().values()) > killed + 0.2)
        stood_still = max(job.rounds().values()) - killed
        report = job.finish()
        logs = {rank: job.entries(rank) for rank in range(len(LONG_STEPS)) if rank != lost}
        first = min(number for number, when in job.rounds().items() if when > killed) + 1
    speed = 0.0
    for log in logs.values():
        numbers = [number for number in sorted(log) if number > first]
        seconds = log[numbers[-1]]["total_time"] - log[first]["total_time"]
        speed += sum(log[number]["num_samples"] for number in numbers) / seconds
    limit = sum(32 / step for rank, step in enumerate(LONG_STEPS) if rank != lost)
    return {
        "exit_code": report["exit_code"],
        "lost": report.get("lost"),
        "rounds_wanted": rounds,
        "rounds_done": [max(log) for log in logs.values()],
        "seconds_until_next_round": stood_still,
        "efficiency_of_the_others": speed / limit,
        "target": 0.85,
    }


# --- kills at chosen moments: at the end, in a checkpoint, of rank 0, of whole machines -----------


def end(folder: Path) -> dict[str, Any]:
    """Kill a worker when the run is nearly over.

    Measured are the exit code, and how long it takes until everybody has ended.
    """
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
    """Kill a worker while it writes its part of a checkpoint, later the parameter server, too.

    Does the run resume, with only one checkpoint kept?
    """
    deaths = []
    for rank in (1, 0):
        place = _place(folder, f"rank-{rank}")
        kept: dict[str, Any] = {"checkpoint_dir": str(place / "checkpoints"), "checkpoint_every": 2}
        kept["keep_checkpoints"] = 1
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
    """Kill rank 0 of an elastic job for good, later the parameter server.

    Is there a checkpoint left to resume from?
    """
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
    """Kill all processes of a host at once.

    One host has two workers, the other one a worker and a server.
    """
    hosts = ["h0", "h1", "h1", "h2"]
    results: dict[str, Any] = {}
    cases: tuple[tuple[str, tuple[str, ...], dict[str, Any]], ...] = (
        ("two workers", (), {}),
        ("two workers, elastic and not replaced", ("--no-restart",), {"elastic": True}),
    )
    for name, flags, more in cases:
        place = _place(folder, name)
        with Job(place, *flags, hosts=hosts, rounds=25, **more, **SYNC) as job:
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
    train: dict[str, Any] = {**SYNC, "checkpoint_dir": str(place / "checkpoints"), "checkpoint_every": 3}
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
    """Resume a job up to that many rounds.

    Returns its exit code, and the round from which it continued.
    """
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
    """Kill a process; return False if it has ended by itself."""
    try:
        if process is not None:
            os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return process is not None


def _cut(checkpoints: Path, rank: int) -> bool:
    """Return whether a file of a worker's part is unfinished."""
    names = [f".worker-{rank}."] + [".model.params.", ".server.npz."] * (rank == 0)
    return any(path.name.startswith(tuple(names)) for path in checkpoints.glob("round-*/.*"))


def _begun(checkpoints: Path) -> list[int]:
    """Return the rounds of all checkpoints, complete or not."""
    return sorted(int(path.name.removeprefix("round-")) for path in checkpoints.glob("round-*"))


def _codes(deaths: Iterable[dict[str, Any]]) -> list[int]:
    return [death["exit_code"] for death in deaths]


# --- all of it ------------------------------------------------------------------------------------

#: Sections without random choices.
WITHOUT_CHANCE: dict[str, Callable[[Path], dict[str, Any]]] = {
    "server": kill_server,
    "resume": resume,
    "elastic": lose_one,
    "end": end,
    "checkpoint": checkpoint,
    "without-rank-0": without_rank_0,
    "machines": machines,
}


def _differences(values: list[float]) -> list[float]:
    return [later - earlier for earlier, later in itertools.pairwise(values)]


def show(section: str, result: dict[str, Any]) -> None:
    """Print the figures of a section."""
    print(f"\n{section}")
    deaths = result.get("deaths")
    for name, value in result.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            if name != "deaths":
                print(*(f"  {_rounded(each)}" for each in value), sep="\n")
        else:
            print(f"  {name.replace('_', ' ')}: {_rounded(value)}")
    if not deaths:
        return
    columns = (*PARTS, "until_next_round")
    print("  rank  round  aimed  counted, not logged " + " ".join(f"{name.replace('_', ' '):>16}" for name in columns))
    for death in deaths:
        cells = " ".join(f"{death.get(name, float('nan')):16.2f}" for name in columns)
        flags = f"{death['aimed']!s:>5}  {death.get('counted_without_log', False)!s:>19}"
        print(f"  {death['rank']:4d}  {death['round']:5d}  {flags} {cells}")
    known = [death for death in deaths if "until_next_round" in death]
    medians = [statistics.median(death[name] for death in known) if known else float("nan") for name in columns]
    print("  median seconds per kill:" + " " * 15 + " ".join(f"{median:16.2f}" for median in medians))


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return {name: _rounded(each) for name, each in value.items()} if isinstance(value, dict) else value


def main() -> None:
    """Run the chosen sections."""
    sections = [*KILLS, "state-server", *WITHOUT_CHANCE]
    parser = program.parser(__doc__)
    parser.add_argument("--sections", nargs="+", choices=sections, default=sections)
    parser.add_argument("--kills", type=int, help="instead of each section's own number")
    parser.add_argument("--seed", type=int, default=0, help="of who is killed, and when")
    options = parser.parse_args()
    results = read_figures(options.json)  # sections that are not run again stay as they are
    results |= {"target_accuracy": TARGET, "load_before": os.getloadavg(), "cores": os.cpu_count()}
    for section in options.sections:
        chance = random.Random(f"{options.seed} {section}")
        with tempfile.TemporaryDirectory(prefix="faults-") as name:
            folder = Path(name)
            if section in KILLS:
                result = kill_workers(section, folder, options.kills or KILLS[section][0], chance)
            elif section == "state-server":
                result = kill_state_server(folder, options.kills or STATE_SERVER_KILLS, chance)
            else:
                result = WITHOUT_CHANCE[section](folder)
        results[section] = {**result, "load_after": os.getloadavg()[0]}
        show(section, result)
        write_figures(options.json, _rounded(results))


if __name__ == "__main__":
    program.run(main)
