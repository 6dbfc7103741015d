"""What does a kill -9 cost?

    python benchmarks/checkpoint_kills.py [--kills 50] [--json FILE]

1. A process that writes checkpoints of 11 million weights and their momentum, one after the other,
   is killed at random moments of the writing. The next process has to find a whole one, and every
   weight and momentum in it is compared with what it should be.
2. Jobs of three workers lose their parameter server and are started again with --resume; their
   accuracies are compared with those of jobs that were left alone, and so is how soon everybody had
   ended.
"""

import json
import os
import random
import signal
import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from harness import program
from harness.figures import write_figures
from harness.jobs import Job, facts

import esync
from esync.checkpoints.checkpoints import Checkpoints
from esync.runtime.mxnet_import import mx

SIDE = 1672  # four square matrices: as many weights as ResNet-18
RATE, MOMENTUM = np.float32(0.01), np.float32(0.9)
ENDED_WITHIN = 30.0  # seconds from the server's death to the end of all workers
ROUNDS, EVERY, EVALUATED = 60, 10, 5
MODES: dict[str, dict[str, Any]] = {
    "sync": {"mode": "sync", "learning_rate": 0.002, "momentum": 0.9},
    "esync, fixed": {"mode": "esync", "local_iterations": 3, "local_lr": 0.002, "momentum": 0.9},
    "esync": {"mode": "esync", "local_lr": 0.002, "momentum": 0.9},
}


# --- 1: kills while a checkpoint is written -------------------------------------------------------


def expected(rounds: int) -> tuple[np.float32, np.float32]:
    """Return weight and momentum after a number of steps with gradient 1."""
    weight, velocity = np.float32(1.0), np.float32(0.0)
    for _ in range(rounds):
        velocity = MOMENTUM * velocity - RATE
        weight = weight + velocity
    return weight, velocity


def write_until_killed(directory: Path, out: Any) -> None:
    """Write checkpoints until this process is killed.

    It prints from which round it continues, and when each writing begins and ends.
    """
    parameters = [mx.gluon.Parameter(f"weight{i}", shape=(SIDE, SIDE), init=mx.init.One()) for i in range(4)]
    for parameter in parameters:
        parameter.initialize()
    checkpoints = Checkpoints(directory, every=1, keep=2, resume=True)
    options = {"learning_rate": float(RATE), "momentum": float(MOMENTUM)}
    trainer = esync.Trainer(parameters, "sgd", options, algorithm="local", checkpoints=checkpoints)
    trainer.start()
    weight, velocity = expected(trainer.round)
    states = trainer._updaters[0].states
    right = all(bool((parameter.data().asnumpy() == weight).all()) for parameter in parameters)
    right &= all(bool(np.allclose(state.asnumpy(), velocity, rtol=1e-6)) for state in states.values())
    right &= len(states) == (4 if trainer.round else 0)
    print(json.dumps({"round": trainer.round, "right": right}), file=out, flush=True)
    while True:
        for parameter in parameters:
            parameter.grad()[:] = 1.0
            parameter.data()._fresh_grad = True
        trainer.step(1)
        mx.nd.waitall()
        print(f"begin {trainer.round}", file=out, flush=True)
        begun = time.perf_counter()
        checkpoints.save_if_due()
        print(f"end {time.perf_counter() - begun}", file=out, flush=True)


def kill_once(directory: Path, chance: random.Random, usual: float) -> dict[str, Any]:
    """Start the process and kill it while it writes its second or third checkpoint.

    Returns what was observed.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            with os.fdopen(writing, "w") as out:
                write_until_killed(directory, out)
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as lines:
        first = lines.readline()
        if not first:
            raise RuntimeError("the writing process has failed")
        found = json.loads(first)
        seconds = []
        for _ in range(chance.choice((1, 2))):
            lines.readline()
            seconds.append(float(lines.readline().split()[1]))
        begun = int(lines.readline().split()[1])
        time.sleep(chance.uniform(0, 1.1 * (seconds[-1] if seconds else usual)))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        ended = len(lines.readlines()) > 0
    folder = directory / f"round-{begun}"
    names = {path.name for path in folder.glob("*")} | {path.name for path in folder.glob(".*")}
    if ended or "worker-0.json" in names:
        moment = "all files in place"
    elif half := [name for name in names if name.startswith(".")]:
        moment = f"{half[0].lstrip('.').rsplit('.', 1)[0]} half written"
    else:
        moment = f"between files, {len(names)} in place"
    return {**found, "seconds": seconds, "killed in": begun, "moment": moment}


def kills(count: int, seed: int) -> dict[str, Any]:
    """Kill that many processes; return the figures."""
    chance = random.Random(seed)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(count + 1):  # the last one only looks at what the one before has left
            rows.append(kill_once(Path(folder), chance, 0.3))
        sizes = (sum(file.stat().st_size for file in each.glob("*")) for each in Path(folder).glob("round-*"))
        megabytes = max(sizes) / 1e6
    lost = [rows[i]["killed in"] - rows[i + 1]["round"] for i in range(count)]
    moments = Counter(row["moment"] for row in rows[:count])
    seconds = [each for row in rows for each in row["seconds"]]
    good = sum(row["right"] and lost[i] in (0, 1) for i, row in enumerate(rows[1:]))
    print(f"{count} kills while a checkpoint of {megabytes:.0f} MB was written")
    for moment, number in sorted(moments.items()):
        print(f"  {number:3d}  {moment}")
    print(f"  whole checkpoint found, every value right, at most the one under way lost: {good} of {count}")
    print(f"  training stood still for {statistics.median(seconds):.2f} s (median of {len(seconds)} checkpoints)")
    return {
        "kills": count,
        "good": good,
        "moments": dict(sorted(moments.items())),
        "megabytes": round(megabytes, 1),
        "seconds": statistics.median(seconds),
        "met": good == count,
    }


# --- 2: the parameter server is killed ------------------------------------------------------------


def job(folder: Path, mode: str, *flags: str) -> Job:
    """Return a job of three workers."""
    train = {**MODES[mode], "rounds": ROUNDS, "eval_duration": EVALUATED, "no_export": True}
    return Job(folder, *flags, steps=(0.1, 0.2, 0.3), **train)


def accuracies(done: Job) -> dict[int, float]:
    """Return the accuracies of a job by round."""
    return {number: entry["accuracy"] for number, entry in done.entries(0).items() if "accuracy" in entry}


def _ended_well(running: Job) -> None:
    if code := running.finish()["exit_code"]:
        raise RuntimeError(f"a job has failed, exit code {code}")


def lose_the_server(mode: str, seed: int) -> dict[str, Any]:
    """Run a job undisturbed, and one whose server is killed; return the figures."""
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        with job(Path(first), mode) as alone:
            _ended_well(alone)
            left = accuracies(alone)
        flags = ("--checkpoint-dir", f"{second}/kept", "--checkpoint-every", str(EVERY), "--resume")
        at = random.Random(seed).randrange(2 * EVERY, ROUNDS - EVERY)
        with job(Path(second), mode, *flags) as disturbed:
            disturbed.until(lambda: len(disturbed.rounds()) >= at, pause=0.05)
            killed = time.monotonic()
            os.kill(min(disturbed.processes("esync.server")), signal.SIGKILL)
            code = disturbed.finish(quiet=True)["exit_code"]
            ended = time.monotonic() - killed
        if code == 0:
            raise RuntimeError("the job has not noticed that its parameter server was killed")
        with job(Path(second), mode, *flags) as resumed:
            _ended_well(resumed)
            went_on, right = int(facts(resumed.device(0))["resumed"]), accuracies(resumed)
            rounds = sorted(resumed.rounds())
    both = [(number, left[number], right[number]) for number in sorted(set(left) & set(right)) if number > went_on]
    differences = [abs(one - other) for _, one, other in both]
    print(f"{mode}: server killed in round {at}, everybody ended after {ended:.1f} s, went on from round {went_on}")
    for number, one, other in both:
        print(f"  round {number:3d}  accuracy {one:.4f} left alone  {other:.4f} killed and resumed")
    complete = rounds == list(range(1, ROUNDS + 1))
    print(f"  largest difference {max(differences):.4f}; rounds 1 to {ROUNDS} {'all' if complete else 'NOT all'} there")
    return {
        "killed in round": at,
        "everybody ended after": ended,
        "went on from round": went_on,
        "accuracies": {number: [one, other] for number, one, other in both},
        "largest difference": max(differences),
        "met": complete and ended <= ENDED_WITHIN and went_on == at - at % EVERY,
    }


def main() -> int:
    """Run both parts; return 1 if a checkpoint was lost or a job did not go on."""
    parser = program.parser(__doc__)
    parser.add_argument("--kills", type=int, default=50, help="of a writing process (default: %(default)s)")
    parser.add_argument("--modes", nargs="*", default=list(MODES), choices=list(MODES), help="of the jobs")
    parser.add_argument("--seed", type=int, default=0, help="of the random moments")
    arguments = parser.parse_args()
    figures: dict[str, Any] = {}
    if arguments.kills:
        figures["kills while writing"] = kills(arguments.kills, arguments.seed)
    for mode in arguments.modes:
        figures[f"server killed, {mode}"] = lose_the_server(mode, arguments.seed)
    met = all(part["met"] for part in figures.values())
    write_figures(arguments.json, figures)
    print("target met" if met else "target MISSED")
    return 0 if met else 1


if __name__ == "__main__":
    program.run(main)
