"""Report what a search has found, as text and as JSON."""

from typing import Any

from ..runtime.terminal import NOT_KNOWN, markdown, right
from .search import Found, Measured


def as_json(found: Found, core_seconds: float) -> dict[str, Any]:
    """Return the findings for `--json`."""
    return {
        "share": found.share,
        "target": found.target,
        "beta": found.beta,
        "speedup": found.speedup,
        "cost_in_bsp_runs": found.cost,
        "break_even_recurrences": found.break_even,
        "core_hours": core_seconds / 3600,
        "bsp": None if found.bsp is None else _measured(found.bsp),
        "tried": [{**_measured(each), "accepted": found.accepted(each)} for each in found.tried],
    }


def as_text(found: Found, core_seconds: float) -> str:
    """Return a table in Markdown, and its conclusion."""
    rows = [] if found.bsp is None else [_row(found.bsp, found, "the target")]
    rows += [_row(each, found, "accepted" if found.accepted(each) else "not good enough") for each in found.tried]
    figures = ("BSP share", "runs", "accuracy", "time s", "time ÷ BSP")
    lines = [markdown([*map(right, figures), ""], rows)]
    if found.share == 1.0:
        lines.append(
            f"No share of BSP below 100 % is within {found.beta:g} of accuracy {found.target:.4f}: stay with BSP."
        )
    else:
        lines.append(
            f"Switch after {100 * found.share:g} % of the samples: within {found.beta:g} of {found.target:.4f}."
        )
    if found.speedup is not None:
        lines.append(f"Speedup over BSP: {found.speedup:.2f}.")
    if found.cost is not None:
        paid = f"they pay after {found.break_even:.0f} runs" if found.break_even is not None else "they never pay"
        lines.append(f"The trials cost {found.cost:.1f} runs of BSP; {paid}.")
    lines.append(f"Processor time of the trials: {core_seconds / 3600:.2f} core-hours.")
    return "\n".join(lines)


def _row(measured: Measured, found: Found, verdict: str) -> list[str]:
    relative = f"{measured.seconds / found.bsp.seconds:.4f}" if found.bsp and found.bsp.seconds else NOT_KNOWN
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
