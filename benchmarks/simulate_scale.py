"""How long does it take to simulate very many workers, without gradients?

    python benchmarks/simulate_scale.py

ESync on workers whose iterations take from 0.03 to 3.5 s, evenly spread, one host each, one
parameter server. One process, one core. Prints the real time of the simulation, that of the
processor (which is what counts where others compute, too, though they slow that one down as well),
and the events per worker and round.
"""

import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml
from harness import program
from harness.figures import write_figures

from esync.simulate.job import SimulationJob, run

FASTEST, SLOWEST = 0.03, 3.5
KINDS = 100


def cluster(workers: int, rounds: int, mode: str) -> dict[str, Any]:
    """Return the description of the cluster."""
    kinds = min(KINDS, workers)
    times = [FASTEST + (SLOWEST - FASTEST) * kind / max(kinds - 1, 1) for kind in range(kinds)]
    counts = [workers // kinds + (kind < workers % kinds) for kind in range(kinds)]
    return {
        "scheduler": {"host": "centre"},
        "servers": [{"host": "centre", "simulate": {"message_time": 0.000001}}],
        "state_server": {"host": "centre", "simulate": {"answer_time": 0.000001}},
        "workers": [
            {"host": f"kind{kind:02d}", "device": "cpu", "count": count, "simulate": {"step_time": round(step_time, 6)}}
            for kind, (count, step_time) in enumerate(zip(counts, times, strict=True))
        ],
        "network": {"bandwidth": "100Gbit", "latency": "1ms"},
        "train": {"mode": mode, "network": "lenet", "batch_size": 16, "rounds": rounds},
    }


def main() -> int:
    """Measure and print; return the exit code."""
    parser = program.parser(__doc__)
    parser.add_argument("--workers", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--mode", default="esync", choices=("esync", "sync", "async"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cluster.yaml"
        path.write_text(yaml.safe_dump(cluster(options.workers, options.rounds, options.mode)))
        begun = time.process_time()
        done = run(SimulationJob(file=path, numerics="none", logs=False, quiet=True))
        processor = time.process_time() - begun
    per = done.real["events"] / options.workers / options.rounds
    measured = {
        "workers": options.workers,
        "rounds": done.result["rounds"],
        "mode": options.mode,
        "virtual": done.result["seconds"],
        "efficiency": done.result["efficiency"],
        "iterations": sum(device["iterations"] for device in done.result["devices"]),
        "questions": done.result["questions"],
        "events": done.real["events"],
        "events per worker and round": per,
        "preparation": done.real["preparation"],
        "simulation": done.real["simulation"],
        "processor": processor,
        "microseconds per worker and round": 1e6 * processor / options.workers / options.rounds,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,  # bytes, at most
        "load": os.getloadavg()[0],
    }
    print(
        f"{options.workers} workers, {measured['rounds']} rounds of {options.mode}: {measured['simulation']:.1f} s "
        f"({measured['processor']:.1f} s of the processor in all, load {measured['load']:.1f}), {per:.1f} events per "
        f"worker and round, {measured['questions'] / options.workers / options.rounds:.1f} of them questions, "
        f"{measured['memory'] / 2**20:.0f} MiB; efficiency "
        f"{measured['efficiency']:.3f}, {measured['virtual']:.0f} s of virtual time"
    )
    write_figures(options.json, measured)
    return 0


if __name__ == "__main__":
    program.run(main)
