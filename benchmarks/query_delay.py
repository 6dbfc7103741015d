"""What does a slow network to the state server cost?

    python benchmarks/query_delay.py [--json FILE]

Runs emulated clusters of four workers (step times of clusters/demo.yaml, lenet) on this machine,
with a proxy in front of the state server that adds a round trip: without it in blocking mode, with
it in blocking mode, and with it in the non-blocking mode (delayed ACK). Efficiency is the workers'
throughput as a share of the sum of their devices' speeds.
"""

import contextlib
import json
import tempfile
from pathlib import Path

from harness import program
from harness.figures import write_figures

from tests.cluster.harness import Cluster
from tests.support.delaying_proxy import DelayingProxy

TARGET = 0.9  # of the efficiency without a delay
BATCH = 16
WARM_UP = 3  # rounds before those that count
CASES = {  # seconds of the round trip, mode
    "no delay, blocking": (0.0, "blocking"),
    "delay, blocking": (1.0, "blocking"),
    "delay, delayed ACK": (1.0, "delayed-ack"),
}


def measure(round_trip: float, jitter: float, mode: str, steps: list[float], rounds: int) -> dict[str, object]:
    """Run one cluster; return its figures."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cluster = stack.enter_context(Cluster(folder, len(steps)))
        port = cluster.start_state_server()
        if round_trip:
            port = stack.enter_context(DelayingProxy(port, round_trip, jitter)).port
        for rank, step in enumerate(steps):
            words = ["-m", "esync.worker", "-c", "1", "-n", "lenet", "-b", str(BATCH), "-ll", "0.001", "-m", "esync"]
            words += ["--rounds", str(rounds + WARM_UP), "--no-evaluation", "--quiet", "--step-time", str(step)]
            words += ["-ip", "127.0.0.1", "-port", str(port), "--query-mode", mode]
            cluster.start_worker(rank, [*words, "-ld", str(folder / f"logs-{rank}")])
        cluster.finish()
        logs = [folder / f"logs-{rank}" / "cpu" for rank in range(len(steps))]
        entries = [
            [json.loads((log / f"iter-{number}.txt").read_text()) for number in range(WARM_UP, rounds + WARM_UP + 1)]
            for log in logs
        ]
        facts = [json.loads((log / "run.json").read_text()) for log in logs]
    seconds = entries[0][-1]["total_time"] - entries[0][0]["total_time"]
    samples = [sum(entry["num_samples"] for entry in worker[1:]) for worker in entries]
    return {
        "efficiency": sum(samples) / seconds / sum(BATCH / step for step in steps),
        "round_seconds": seconds / rounds,
        "iterations_per_round": [count / BATCH / rounds for count in samples],
        "waits": [sum(entry["wait"] for entry in worker[1:]) / rounds for worker in entries],
        "overruns": sum(fact["overruns"] for fact in facts) / sum(fact["iterations"] for fact in facts),
    }


def main() -> int:
    """Measure, print and, if asked to, write the figures; return the exit code."""
    parser = program.parser(__doc__)
    add = parser.add_argument
    add("--round-trip", type=float, default=0.1, help="seconds that the network adds (default: %(default)s)")
    add("--jitter", type=float, default=0.02, help="seconds, more or less (default: %(default)s)")
    add("--steps", type=float, nargs="+", default=[0.33, 1.1, 0.47, 3.5], help="step times (default: %(default)s)")
    add("--rounds", type=int, default=8, help="that count (default: %(default)s)")
    options = parser.parse_args()

    figures = {}
    print(f"step times {options.steps}, {1e3 * options.round_trip:.0f} ± {1e3 * options.jitter:.0f} ms of round trip:")
    for name, (delay, mode) in CASES.items():
        figures[name] = one = measure(delay * options.round_trip, options.jitter, mode, options.steps, options.rounds)
        print(
            f"  {name:20} efficiency {one['efficiency']:.3f}   a round {one['round_seconds']:.2f} s   "
            f"local iterations {one['iterations_per_round']}   overruns {one['overruns']:.1%}",
            flush=True,
        )
    undelayed, _, hidden = (float(str(one["efficiency"])) for one in figures.values())
    met = hidden >= TARGET * undelayed
    share = f"{hidden / undelayed:.3f} of the efficiency without a delay"
    print(f"delayed ACK: {share}; target >= {TARGET}: {program.verdict(met)}")
    content = {"command": program.command(), "target": TARGET, "met": met, "cases": figures}
    write_figures(options.json, content)
    return 0


if __name__ == "__main__":
    program.run(main)
