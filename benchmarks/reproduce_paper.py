"""The ESync paper's experiments in virtual time.

    python benchmarks/reproduce_paper.py [--full] [--parity]
    python benchmarks/reproduce_paper.py --horizon [--budget CORE-HOURS]

Simulates the paper's cluster (clusters/paper*.yaml, 1 Gbit/s) with real gradients on Fashion-MNIST:
ESync, SSGD, ASGD and DC-ASGD, i.i.d. and by class; SSGD also at two and four times the published
learning rate, until it is at 0.8. All others train for the same number of samples, `--epochs` times
the training set over all workers (ESync to the end of its round), two hours of virtual time at most
as in the paper. An i.i.d. one that is not at 0.8 by then is followed by a longer one that goes on
until it is, `--most-epochs` at most. A run that is done is not done again, so this can be stopped
at any time and started anew.

Writes into `--out`: runs.json with the result of every run, their round files (logs/) and the
summaries of these (summaries/, all that the figures need), figures for each network, and table.md.
`--parity` adds ESync and sequential SGD with five seeds each, sequential SGD with exactly the
samples that ESync had.

`--horizon` carries out the runs over the whole horizon of the paper instead: two hours of virtual
time with a narrow ResNet-18 whose devices and messages are those of the full one, and sequential
SGD on the fastest device alone at several learning rates, which is what a user would do otherwise.
Its figures are drawn raw and through the published filter, with the published results in them, and
its table has mean accuracies of the last hour (`--last-share` of the time). ESync and sequential
SGD, which take hours, are done in parts: with `--first-parts N` only the first N of these, which a
later call without it continues. ResNet-18 itself has one run of ten minutes, at the end. `--list`
prints what each run is planned to cost and has cost; `--budget` leaves out the end of the list
where it costs more than that.
"""

import argparse
import math
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from harness import program
from harness.figures import interval, mean_of_last, write_table
from harness.paper_runs import BATCH_SIZE, HORIZON_NETWORKS, PARTS, Run, horizon_runs, planned, runs
from harness.simulations import TARGET, carry_out, forget, listed, only, results, spent, within_budget
from harness.simulations import parser as simulation_parser
from harness.thinning import thinned_summary

from esync.arguments import count
from esync.reports.modes import STANDALONE, mode_of
from esync.reports.published_results import TABLE_1, published_runs
from esync.reports.summary_file import DeviceSummary, RunInfo, load_summary, save_summary


def time_to_target(result: dict[str, Any]) -> float:
    """Return the virtual seconds until a run reached 0.8; infinite if it never did."""
    at = result["time_to"].get(TARGET)
    return math.inf if at is None else float(at)


def to_continue(out: Path, chosen: Iterable[Run]) -> list[Run]:
    """Return the longer runs for those that are done and did not reach 0.8."""
    finished = results(out)
    pairs = [(run.continued, finished.get(run.name)) for run in chosen]
    return [longer for longer, result in pairs if longer and result and time_to_target(result) == math.inf]


def too_short(run: Run, finished: Mapping[str, Mapping[str, Any]], options: argparse.Namespace) -> bool:
    """Return whether a finished run over the horizon has fewer parts than are wanted now."""
    in_parts = run.name in finished and run.algorithm in PARTS
    return in_parts and finished[run.name]["seconds"] < 0.99 * run.seconds(options)


# --- the table ------------------------------------------------------------------------------------


def table(out: Path, chosen: Sequence[Run]) -> str:
    """Return the results as a table in Markdown."""
    finished = results(out)
    finished_runs = {run: finished.get(run.name) for first in chosen for run in (first, first.continued) if run}
    lines = [
        "| run | samples/s | efficiency | MB/s at the server | computing | to 0.8 | final accuracy |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [_row(run, result) for run, result in finished_runs.items() if result and not run.parity]
    lines += ["", "| network | speedup, published rate | SSGD at its best rate | paper | final, ESync | paper |"]
    lines += ["| --- | --- | --- | --- | --- | --- |"]
    for network in dict.fromkeys(run.network for run in chosen):
        esync = _longest(finished_runs, Run(network, "esync"))
        syncs = {factor: _longest(finished_runs, Run(network, "sync", factor=factor)) for factor in (1, 2, 4)}
        if esync and syncs[1]:
            fast, slow = time_to_target(esync), time_to_target(syncs[1])
            best, factor = min((time_to_target(run), factor) for factor, run in syncs.items() if run)
            published = TABLE_1[network]
            lines.append(
                f"| {network} | {_ratio(slow, fast)} | {_ratio(best, fast)} (×{factor}) | {published.speedup:g} | "
                f"{_accuracy(esync)} | {published.esync} |"
            )
    return "\n".join([*lines, "", *parity(finished_runs)]) + "\n"


def parity(finished: dict[Run, dict[str, Any] | None]) -> list[str]:
    """Return a table of the final accuracies of ESync and sequential SGD."""
    accuracies = {
        algorithm: {run.seed: result["final_accuracy"] for run, result in finished.items() if run.parity and result
                    and run.algorithm == algorithm}
        for algorithm in ("esync", "local")
    }  # fmt: skip
    seeds = sorted(set(accuracies["esync"]) & set(accuracies["local"]))
    if len(seeds) < 2:
        return []
    lines = ["| algorithm | seeds | mean | standard deviation |", "| --- | --- | --- | --- |"]
    for algorithm, name in (("esync", "ESync"), ("local", "sequential SGD")):
        values = [accuracies[algorithm][seed] for seed in seeds]
        mean, deviation = statistics.fmean(values), statistics.stdev(values)
        lines.append(f"| {name} | {len(seeds)} | {mean:.4f} | {deviation:.4f} |")
    differences = [accuracies["esync"][seed] - accuracies["local"][seed] for seed in seeds]
    mean, half = interval(differences)
    return [*lines, "", f"Difference {mean:+.4f} ± {half:.4f} (95 %, pairs of equal seed)."]


def horizon_table(out: Path, options: argparse.Namespace) -> str:
    """Return the finished runs over the whole horizon as a table in Markdown; "" if there are none.

    Speedups are of runs with the same seed: over SSGD on the same kind of data, and over sequential
    SGD, which has all of the data, at the learning rate with which it was the first at 0.8.
    """
    finished, costs = results(out), spent(out)
    horizon = {run: finished[run.name] for run in horizon_runs() if run.name in finished}
    if not horizon:
        return ""
    lines = [
        f"| over the whole horizon | minutes | mean of the last {options.last_share:.0%} | published, final | "
        f"to {TARGET} | published, smoothed | ÷ SSGD | ÷ sequential | core-hours planned | spent |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for run, result in horizon.items():
        published = published_runs(run.network).get(run.mode_folder)
        reached = time_to_target(result)
        ssgd = horizon.get(Run(run.network, "sync", run.data, seed=run.seed))
        alone = [
            curve for other, curve in horizon.items() if (other.network, other.algorithm) == (run.network, STANDALONE)
        ]
        sequential = min(map(time_to_target, alone), default=None) if run.seed == 0 else None
        cells = (
            run.name,
            f"{result['seconds'] / 60:.0f}",
            f"{mean_of_last(result, options.last_share):.3f}",
            f"{published.final_accuracy:g}" if published else "–",
            f"{reached:.0f} s" if reached < math.inf else "–",
            f"{published.reached:.0f} s" if published and published.reached else "–",
            _times_as_fast(time_to_target(ssgd) if ssgd else None, reached),
            _times_as_fast(sequential, reached),
            f"{planned(run, options) / 3600:.2f}",
            f"{costs[run.name] / 3600:.2f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(["", *lines]) + "\n"


def _times_as_fast(other: float | None, reached: float) -> str:
    if other is None or reached == math.inf:
        return "–"
    return f"{other / reached:.1f}" if other < math.inf else "not reached"


def _longest(finished: dict[Run, dict[str, Any] | None], run: Run) -> dict[str, Any] | None:
    return (finished.get(run.continued) if run.continued else None) or finished.get(run)


def _row(run: Run, result: dict[str, Any]) -> str:
    rate = sum(result["traffic"][server]["received"] for server in result["servers"]) / result["seconds"] / 1e6
    ratios = [device["computing_ratio"] for device in result["devices"]]
    reached = time_to_target(result)
    return (
        f"| {run.name} | {result['throughput']:.0f} | {result['efficiency']:.3f} | {rate:.1f} in | "
        f"{min(ratios):.3f}–{max(ratios):.3f} | {f'{reached:.0f} s' if reached < math.inf else '–'} | "
        f"{_accuracy(result)} |"
    )


def _accuracy(result: dict[str, Any]) -> str:
    value = result["final_accuracy"]
    return "–" if value is None else f"{value:.3f}"


def _ratio(slow: float, fast: float) -> str:
    if fast == math.inf:
        return "–"
    return f"{slow / fast:.1f}" if slow < math.inf else "not reached by SSGD"


# --- the program ----------------------------------------------------------------------------------


def draw(out: Path, networks: Sequence[str], last_share: float = 0.5) -> None:
    """Write the summaries and figures of the finished runs.

    Of sequential SGD over the whole horizon they show the run with the best mean accuracy in the
    last share of its time.
    """
    for network in networks:
        if (out / "logs" / network).is_dir():
            words = ["logs_tools/summarize.py", "-b", str(out / "logs"), "-n", network]
            subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
        for summary in (out / "logs" / network).glob("*/*.json"):
            kept = out / "summaries" / summary.relative_to(out / "logs")
            save_summary(thinned_summary(load_summary(summary)), kept)
        as_published = []
        if network in HORIZON_NETWORKS:
            as_published = ["--published-smoothing", "--published-results"]
            for folder, result in _unlogged(out, network, last_share).items():
                kept = mode_of(folder).summary_path(out / "summaries" / network)
                save_summary(thinned_summary(unlogged_summaries(result)), kept)
        if (out / "summaries" / network).is_dir():
            words = ["logs_tools/plot.py", "-b", str(out / "summaries"), "-n", network, "--out", str(out / network)]
            subprocess.run([sys.executable, *words, *as_published], check=True, stdout=subprocess.DEVNULL)


def _unlogged(out: Path, network: str, last_share: float) -> dict[str, dict[str, Any]]:
    """Return the results of finished runs that were done in parts, by the folders of their modes.

    Of sequential SGD it is the one at its best learning rate.
    """
    finished = results(out)
    drawn = [run for run in horizon_runs() if run.network == network and run.seed == 0 and run.algorithm in PARTS]
    drawn = [run for run in drawn if run.name in finished]
    drawn.sort(key=lambda run: mean_of_last(finished[run.name], last_share))
    return {run.mode_folder: finished[run.name] for run in drawn}  # the best one last


def unlogged_summaries(result: dict[str, Any]) -> dict[str, dict[str, DeviceSummary]]:
    """Return host → device → the summary of a run that has not been logged, from its result.

    Rounds between two evaluations are joined, and all rounds are taken to be alike. The first
    worker has the accuracies.
    """
    evaluated = result["accuracies"]
    numbers, times, accuracies = map(list, zip(*evaluated, strict=True))
    summaries: dict[str, dict[str, DeviceSummary]] = {}
    for device in result["devices"]:
        first = device["rank"] == 0
        rounds, seconds = [*numbers], [*times]
        if rounds[-1] < device["rounds"]:  # the last rounds were not evaluated
            rounds, seconds = [*rounds, device["rounds"]], [*seconds, result["seconds"]]
        shares = [(end - begin) / rounds[-1] for begin, end in pairwise([0, *rounds])]
        done = [round(device["iterations"] * end / rounds[-1]) for end in [0, *rounds]]
        iterations = [end - begin for begin, end in pairwise(done)]
        exchanges = (device["wait"]["mean"] + device["transfer"]) * device["rounds"]
        summaries.setdefault(device["host"], {})[device["device"]] = DeviceSummary(
            accuracy_list=[round(accuracy, 3) for accuracy in accuracies] if first else [],
            num_samples_list=[BATCH_SIZE * number for number in iterations],
            self_iters_list=iterations,
            elapsed_time_list=[round(end) for end in seconds],
            aggregate_time_list=[share * exchanges for share in shares],
            rounds_list=rounds,
            rounds_joined=True,
            accuracy_rounds=numbers if first else [],
            accuracy_time_list=times if first else [],
            accuracy_exact_list=accuracies if first else [],
            computing_time_list=[device["step_time"] * number for number in iterations],
            total_time=result["seconds"],
            iterations=device["iterations"],
            run=RunInfo(batch_size=BATCH_SIZE, step_time=device["step_time"]),
        )
    return summaries


def parse_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line; exit with code 2 on bad usage."""
    parser = simulation_parser(__doc__, "reproduction", 5, "of --parity")
    parser.add_argument("--full", action="store_true", help="four more networks")
    parser.add_argument("--parity", action="store_true", help="ESync and sequential SGD with several seeds, too")
    parser.add_argument("--epochs", type=float, default=2.0, help="samples of all workers (default: %(default)s)")
    parser.add_argument(
        "--most-epochs", type=float, default=20.0, help="of a run that is not at 0.8 before (default: %(default)s)"
    )
    parser.add_argument("--test-images", type=int, default=2500, help="of an evaluation (default: %(default)s)")
    parser.add_argument("--only", default="", help="runs whose name contains this")
    parser.add_argument("--horizon", action="store_true", help="the runs over two hours of virtual time instead")
    parser.add_argument(
        "--last-share",
        type=float,
        default=0.5,
        help="of a run's time, over which the final accuracy of --horizon is taken (default: %(default)s)",
    )
    parser.add_argument(
        "--first-parts", type=count, metavar="N", help="of --horizon: only so many parts of the runs that take hours"
    )
    options = parser.parse_args(words)
    if not 0 < options.last_share <= 1:
        parser.error(f"--last-share {options.last_share:g}: expected a share above 0 and up to 1")
    return options


def main(words: Sequence[str] | None = None) -> int:
    """Carry out the runs, draw the figures and write the table; return the exit code."""
    options = parse_arguments(words)
    everything = runs(options.full, options.parity, options.seeds)
    chosen = only(horizon_runs() if options.horizon else everything, options.only)
    finished = results(options.out)
    outdated = {run.name for run in chosen if run.horizon and too_short(run, finished, options)}
    cost = partial(planned, options=options)
    if options.list:
        return listed([*chosen, *to_continue(options.out, chosen)], options, cost, outdated)
    chosen = within_budget(chosen, options, cost, outdated)
    forget(options.out, outdated.intersection(run.name for run in chosen))

    def lacks(run: Run) -> str:
        ready = run.after is None or run.after.name in results(options.out)
        return "" if ready else "the number of samples of ESync's run"

    well = carry_out(chosen, options, lacks)
    if well:
        kept = within_budget([*chosen, *to_continue(options.out, chosen)], options, cost)
        well = carry_out(kept[len(chosen) :], options)
    draw(options.out, list(dict.fromkeys(run.network for run in chosen)), options.last_share)
    # With the parity runs that there are, also where this call does none of them.
    tables = table(options.out, runs(options.full, True, options.seeds)) + horizon_table(options.out, options)
    write_table(options.out / "table.md", tables)
    return 0 if well else 1


if __name__ == "__main__":
    program.run(main)
