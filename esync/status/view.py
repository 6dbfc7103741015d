"""Format the jobs of a state server as tables for a terminal."""

import time
from collections.abc import Sequence
from typing import Any, Literal

from rich.console import Group
from rich.table import Column
from rich.text import Text

from ..runtime.metric import Metric
from ..runtime.terminal import TerminalTable, clock, right

#: Largest number of workers to show; if there are more, the slowest ones are shown.
ROWS = 40
BAR = 10  # characters
PARTS = (("compute", "blue", "█"), ("wait", "yellow", "─"), ("exchange", "green", "▒"))
STATES = {"computing": "blue", "waiting": "yellow", "exchanging": "green", "silent": "red", "dropped": "red"}


def job_view(job: dict[str, Any]) -> Group:
    """Return the view of a job: its figures, its workers, and the cost of the slowest one."""
    return Group(_headline(job), _workers(job), _verdict(job), Text())


def job_list(jobs: Sequence[dict[str, Any]]) -> TerminalTable:
    """Return a table of other jobs, one row each."""
    table = TerminalTable("also here", "state", right("round"), right("workers"), "begun")
    for job in jobs:
        begun = time.strftime("%Y-%m-%d %H:%M", time.localtime(job["started"]))
        table.add(job["name"], _state(job), str(job["round"]), str(job["num_workers"]), begun)
    return table


def _unit(job: dict[str, Any]) -> str:
    """Return what the workers' reports are numbered by: rounds, or in asynchronous modes their exchanges."""
    reports = [worker["last_report"] for worker in job["workers"] if worker["last_report"]]
    return "exchange" if any(report["run_round"] is not None for report in reports) else "round"


def _state(job: dict[str, Any]) -> str:
    return f"{job['state']}: {job['reason']}" if job["reason"] else job["state"]


def _headline(job: dict[str, Any]) -> Text:
    words = Text.assemble((job["name"], "bold"), f"  {_state(job)}, round {job['round']}, ")
    words.append(clock((job["ended"] or job["now"]) - job["started"]))
    totals = job["totals"]
    if totals:
        words.append(f"  {totals['throughput']:.1f} samples/s")
        if totals["efficiency"] is not None:
            words.append(f", {totals['efficiency']:.0%} of the workers' speed")
        if totals["accuracy"] is not None:
            metric = Metric(totals["metric"])
            words.append(f", {metric.name} {metric.text(totals['accuracy'])} ({_unit(job)} {totals['accuracy_round']})")
    return words


def _column(title: str, text: bool = False, min_width: int | None = None) -> Column:
    justify: Literal["left", "right"] = "left" if text else "right"
    return Column(title, justify=justify, overflow="ellipsis", no_wrap=True, min_width=min_width or len(title))


def _workers(job: dict[str, Any]) -> TerminalTable:
    table = TerminalTable(
        _column("rank"),
        Column("device", overflow="ellipsis", no_wrap=True),
        _column("state", text=True, min_width=10),
        _column("samples/s"),
        _column("iteration"),
        _column("done"),  # local iterations in this round
        _column("computing"),
        _column("", text=True),
    )
    workers = job["workers"]
    shown = workers
    if len(workers) > ROWS:
        shown = sorted(workers, key=lambda worker: -worker["seconds_per_iteration"])[:ROWS]
        table.caption = f"the {ROWS} slowest of {len(workers)} workers"
    for worker in shown:
        report = worker["last_report"]
        table.add(
            str(worker["rank"]),
            f"{report['device']}@{report['host']}" if report else "",
            Text(worker["state"], STATES.get(worker["state"], "")),
            f"{worker['speed']:.1f}" if worker["speed"] else "",
            f"{worker['seconds_per_iteration']:.3g} s" if worker["seconds_per_iteration"] else "",
            str(worker["local_iterations"]) if worker["capability"] else "",
            f"{_share(report, 'compute'):.0%}" if report else "",
            _bar(report),
            style="bold" if worker["rank"] == job["slowest"] else None,
        )
    return table


def _bar(report: dict[str, Any] | None) -> Text:
    """Return a bar with the shares of computing, waiting and exchanging in the last round."""
    bar, done, until = Text(), 0, 0.0
    for part, style, character in PARTS if report else ():
        until += _share(report, part)
        width = round(BAR * min(until, 1.0)) - done
        bar.append(character * width, style)
        done += width
    return bar


def _share(report: dict[str, Any] | None, part: str) -> float:
    return min(report[part] / report["seconds"], 1.0) if report and report["seconds"] else 0.0


def _verdict(job: dict[str, Any]) -> Text:
    slowest = next((worker for worker in job["workers"] if worker["rank"] == job["slowest"]), None)
    if slowest is None:
        return Text()
    words = f"the slowest is worker {slowest['rank']}: {slowest['seconds_per_iteration']:.3g} s an iteration"
    totals = job["totals"]
    if totals and totals["speed_limit"]:
        words += f"; waiting costs {totals['lost_waiting']:.1f} of {totals['speed_limit']:.1f} samples/s"
    return Text(words)
