"""A long simulation in parts, so that an interruption costs no more than one of them.

    python benchmarks/in_parts.py --parts 8 --max-time 7200 --json FILE DESCRIPTION FLAGS...

Each part is a simulation (`python -m esync.simulate DESCRIPTION FLAGS`) of a share of the time. It
begins with the model that the part before has left, and draws batches of its own. All else begins
anew: a worker's momentum, and what was under way between two rounds. So this suits synchronous
modes with plain SGD, which have a common model and nothing else after a round. The result of all
parts is written as one. A part that is done is not done again. With `--first N` only the first N
parts are carried out and make the result; they stay on disk, to be continued.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import program
from harness.figures import read_figures, write_figures

from esync.arguments.flag_types import count
from esync.reports import metrics
from esync.runtime.errors import ExpectedError
from esync.runtime.processes import tied


def carry_out(
    words: Sequence[str], parts: int, seconds: float, seed: int, file: Path, first: int | None = None
) -> None:
    """Carry out the parts that are not done yet, and write the result of all.

    Args:
        words: description and flags of the simulation.
        parts: number of parts.
        seconds: virtual time of all parts together.
        seed: of the model and the first part's batches; each further part has the next one for its
            batches.
        file: file of the result; that of real times has `.real` in its name.
        first: number of parts to carry out; all if None.

    Raises:
        ExpectedError: there are parts of another simulation.
    """
    simulation, command_file = (
        {"words": list(words), "parts": parts, "seconds": seconds, "seed": seed},
        _part(file, "command"),
    )
    if (former := read_figures(command_file)) and former != simulation:
        raise ExpectedError(
            f"{command_file} and the parts beside it are of another simulation; delete them, or choose another --json"
        )
    write_figures(command_file, simulation)
    results, times, models = [], [], []
    for part in range(parts if first is None else min(first, parts)):
        result, model = _part(file, part), _part(file, part).with_suffix(".params")
        models.append(model)
        real = result.with_suffix(".real.json")
        if not real.exists():  # written last
            begin = [f"--initial-model={models[part - 1]}"] if part else []
            command = [sys.executable, "-m", "esync.simulate", *words, *begin, "--no-logs", f"--seed={seed + part}"]
            command += [f"--max-time={seconds / parts:g}", f"--final-model={model}", f"--json={result}"]
            subprocess.run(tied(command), check=True)
        results.append(json.loads(result.read_text()))
        times.append(json.loads(real.read_text()))
    write_figures(file, merged(results))
    write_figures(file.with_suffix(".real.json"), {key: sum(time.get(key, 0) for time in times) for key in times[0]})
    if len(results) < parts:
        return
    for done in file.parent.glob(f"{file.stem}.part-*"):
        done.unlink()


def _part(file: Path, part: int | str) -> Path:
    return file.with_suffix(f".part-{part}.json")


def merged(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the results of simulations that followed one another as that of one simulation."""
    whole = dict(parts[0])
    for key in ("rounds", "samples", "seconds", "questions"):
        whole[key] = sum(part[key] for part in parts)
    whole["throughput"] = metrics.rate(whole["samples"], whole["seconds"])
    whole["efficiency"] = metrics.efficiency(whole["throughput"], whole["limit"])
    whole["accuracies"], rounds, seconds = [], 0, 0.0
    for part in parts:
        whole["accuracies"] += [[rounds + at, seconds + time, value] for at, time, value in part["accuracies"]]
        rounds, seconds = rounds + part["rounds"], seconds + part["seconds"]
    times, values = ([point[place] for point in whole["accuracies"]] for place in (1, 2))
    whole["time_to"] = {target: metrics.time_to_target(times, values, float(target)) for target in whole["time_to"]}
    whole["final_accuracy"], whole["final_parts"] = parts[-1]["final_accuracy"], parts[-1]["final_parts"]
    whole["traffic"] = {
        host: {way: sum(part["traffic"][host][way] for part in parts) for way in ways}
        for host, ways in whole["traffic"].items()
    }
    whole["devices"] = [_device([part["devices"][rank] for part in parts], seconds) for rank in range(whole["workers"])]
    return whole


def _device(parts: Sequence[Mapping[str, Any]], seconds: float) -> dict[str, Any]:
    whole = dict(parts[0])
    whole["rounds"] = rounds = sum(part["rounds"] for part in parts)
    for key in ("iterations", "computing", "questions", "bytes_sent", "bytes_received", "polls", "crashes"):
        whole[key] = sum(part[key] for part in parts)
    whole["bytes_of_questions"] = sum(part["bytes_of_questions"] for part in parts)
    whole["computing_ratio"] = metrics.rate(whole["computing"], seconds)
    whole["transfer"] = sum(part["transfer"] * part["rounds"] for part in parts) / max(rounds, 1)
    whole["wait"] = {
        "mean": sum(part["wait"]["mean"] * part["rounds"] for part in parts) / max(rounds, 1),
        "max": max(part["wait"]["max"] for part in parts),
    }
    return whole


def main() -> None:
    """Parse the command line and carry out the parts."""
    parser = program.parser(__doc__)
    parser.add_argument("--parts", type=count, required=True)
    parser.add_argument("--first", type=count, help="carry out this many parts only (default: all)")
    parser.add_argument("--max-time", type=float, required=True, help="virtual seconds of all parts together")
    parser.add_argument("--seed", type=int, default=0)
    options, words = parser.parse_known_args()
    try:
        carry_out(words, options.parts, options.max_time, options.seed, options.json, options.first)
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)  # the simulation has said why


if __name__ == "__main__":
    program.run(main)
