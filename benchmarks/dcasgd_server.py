"""What does DC-ASGD's compensation cost the server?

    OMP_NUM_THREADS=1 python benchmarks/dcasgd_server.py [--json FILE]

One core of a server takes ResNet-18's gradients (11.2 million values, in the buckets of the real
exchange) with the rules of ASGD and of DC-ASGD in turns: medians of the seconds for one commit.
Then the paper's cluster in virtual time without gradients, with a server that costs nothing, and
with one that needs these seconds for every exchange: samples per second of both modes.
"""

import argparse
from dataclasses import replace
from typing import Any

from harness import program
from harness.figures import write_figures
from harness.timing import in_turns, medians, seconds_of

import esync  # noqa: F401 - before mxnet
from esync.exchange import WEIGHTS
from esync.exchange.protocol.layout import Layout
from esync.rules import Step, make_rule
from esync.runtime.mxnet_import import mx
from esync.simulate.job import SimulationJob
from esync.simulate.job import run as simulate
from esync.simulate.timing import SIZES

#: Mode → its rule.
MODES = {"async": "sgd", "dcasgd": "delay_compensated_sgd"}
#: The published samples per second, read off the paper's figure.
PUBLISHED = {"async": 120, "dcasgd": 105}
VALUES = SIZES["resnet18-v1"][WEIGHTS]


def commit_seconds(turns: int) -> dict[str, float]:
    """Return the seconds that one commit takes with the rule of each mode."""
    lengths = [bucket.stop - bucket.start for bucket in Layout({WEIGHTS: VALUES}, 1).buckets]
    buckets = [[mx.nd.random.normal(shape=length) for _ in range(3)] for length in lengths]
    step = Step(learning_rate=0.0005, gradient_scale=64.0)

    def commit(name: str) -> float:
        rule = make_rule(name, {})

        def take() -> None:
            for weights, gradient, sent in buckets:
                rule(weights, gradient, None, replace(step, sent=sent))
            mx.nd.waitall()

        mx.nd.waitall()
        return seconds_of(take)

    return medians(in_turns({mode: lambda rule=rule: commit(rule) for mode, rule in MODES.items()}, turns, 2))  # type: ignore[misc]


def samples_per_second(mode: str, seconds: float) -> float:
    """Return the samples per second of the paper's cluster whose server needs that long for an exchange."""
    # The model charges bytes on their way in and out; an exchange brings the model once each way.
    changes: dict[str, Any] = (
        {"servers.0.simulate.throughput": f"{2 * 4 * VALUES / seconds / 1e6:.0f}MB"} if seconds else {}
    )
    typed = {"mode": "async", "use_dcasgd": int(mode == "dcasgd"), "max_time": 600.0}
    job = SimulationJob(program.CLUSTERS / "paper.yaml", "none", typed, changes, logs=False, quiet=True)
    return float(simulate(job).result["throughput"])


def main() -> int:
    """Measure, simulate and print; return 0."""
    parser = program.parser(__doc__)
    parser.add_argument("--turns", type=int, default=20, help="commits of each mode (default: %(default)s)")
    given: argparse.Namespace = parser.parse_args()
    seconds = commit_seconds(given.turns)
    free = {mode: samples_per_second(mode, 0.0) for mode in MODES}
    charged = {mode: samples_per_second(mode, seconds[mode]) for mode in MODES}
    print("| mode | ms for a commit | samples/s, free server | with these costs | published |")
    print("| --- | --- | --- | --- | --- |")
    for mode in MODES:
        print(f"| {mode} | {1e3 * seconds[mode]:.1f} | {free[mode]:.1f} | {charged[mode]:.1f} | {PUBLISHED[mode]} |")
    print(
        f"DC-ASGD ÷ ASGD: {seconds['dcasgd'] / seconds['async']:.1f} in a commit's time, "
        f"{charged['dcasgd'] / charged['async']:.3f} in samples/s "
        f"(published: {PUBLISHED['dcasgd'] / PUBLISHED['async']:.3f})"
    )
    figures = {"command": program.command(), "commit_seconds": seconds, "free": free, "charged": charged}
    write_figures(given.json, {**figures, "published": PUBLISHED})
    return 0


if __name__ == "__main__":
    program.run(main)
