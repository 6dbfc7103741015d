"""Report what a search has found, as text and as JSON."""

from typing import Any

from ..runtime.terminal import UNKNOWN, markdown, right
from .search import Measured, SearchResult


def as_json(result: SearchResult, core_seconds: float) -> dict[str, Any]:
    """Return the findings for `--json`."""
    return {
        "share": result.share,
        "target": result.target,
        "beta": result.beta,
        "speedup": result.speedup,
        "cost_in_bsp_runs": result.cost,
        "break_even_recurrences": result.break_even,
        "core_hours": core_seconds / 3600,
        "bsp": None if result.bsp is None else _measured(result.bsp),
        "tried": [{**_measured(measured), "accepted": result.accepted(measured)} for measured in result.tried],
    }


def as_text(result: SearchResult, core_seconds: float) -> str:
    """Return a table in Markdown, and its conclusion."""
    rows = [] if result.bsp is None else [_row(result.bsp, result, "the target")]
    for measured in result.tried:
        rows.append(_row(measured, result, "accepted" if result.accepted(measured) else "not good enough"))
    figures = ("BSP share", "runs", "accuracy", "time s", "time ÷ BSP")
    lines = [markdown([*map(right, figures), ""], rows)]
    if result.share == 1.0:
        lines.append(
            f"No share of BSP below 100 % is within {result.beta:g} of accuracy {result.target:.4f}: stay with BSP."
        )
    else:
        lines.append(
            f"Switch after {100 * result.share:g} % of the samples: within {result.beta:g} of {result.target:.4f}."
        )
    if result.speedup is not None:
        lines.append(f"Speedup over BSP: {result.speedup:.2f}.")
    if result.cost is not None:
        paid = f"they pay after {result.break_even:.0f} runs" if result.break_even is not None else "they never pay"
        lines.append(f"The trials cost {result.cost:.1f} runs of BSP; {paid}.")
    lines.append(f"Processor time of the trials: {core_seconds / 3600:.2f} core-hours.")
    return "\n".join(lines)


def _row(measured: Measured, result: SearchResult, verdict: str) -> list[str]:
    relative = f"{measured.seconds / result.bsp.seconds:.4f}" if result.bsp and result.bsp.seconds else UNKNOWN
    if measured.diverged:
        verdict += f", {measured.diverged} diverged"
    accuracy = f"{measured.accuracy:.4f} ± {measured.deviation:.4f}"
    share, seconds = f"{100 * measured.share:g} %", f"{measured.seconds:.1f}"
    return [share, str(len(measured.outcomes)), accuracy, seconds, relative, verdict]


def _measured(measured: Measured) -> dict[str, Any]:
    return {
        "share": measured.share,
        "accuracies": [outcome.accuracy for outcome in measured.outcomes],
        "seconds": [outcome.seconds for outcome in measured.outcomes],
        "diverged": measured.diverged,
        "accuracy": measured.accuracy,
        "deviation": measured.deviation,
        "mean_seconds": measured.seconds,
    }
