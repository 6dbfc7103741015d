"""What a run is recorded with elsewhere: the interface of loggers, and the scalars that they get."""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..runtime.errors import ExpectedError
from ..runtime.logged_values import ROUND_TAGS


class LoggerError(ExpectedError):
    """A logger cannot be used; the message says why."""


@dataclass(frozen=True)
class LoggedRun:
    """A run, as a logger gets to know it.

    Attributes:
        name: what was trained, the mode and the name of the run, `lenet/esync@base-seed3` for instance.
        group: the same for all runs of one `--repeat`: `lenet/esync@base`.
        facts: content of run.json.
        resumed: what `begin` returned for the part of the run before, if this one goes on with it.
    """

    name: str
    group: str
    facts: Mapping[str, Any]
    resumed: Any = None

    @property
    def resumed_id(self) -> str:
        """The id in `resumed`; "" where there is none, for instance because a logger of another class returned that."""
        run_id = self.resumed.get("id") if isinstance(self.resumed, Mapping) else None
        return run_id if isinstance(run_id, str) else ""


class Logger:
    """Base class of loggers, whose methods do nothing.

    A subclass overrides those that it needs. They are called one after another in a thread of their own
    (`BackgroundLogger`), so that they may wait for a network; the first round waits for `begin`. Whatever
    the others raise ends the logger, not the training.

    Attributes:
        name: by which messages and run.json name it.
    """

    name = ""

    def begin(self, run: LoggedRun) -> Any:
        """Begin to log a run, or go on with one.

        Returns:
            What identifies the run there, as JSON can hold it; run.json keeps it.

        Raises:
            LoggerError: the run cannot be logged; the training does not begin.
        """

    def write(self, step: int, wall_time: float, scalars: Mapping[str, float | None]) -> None:
        """Write scalars by their tags; those that are None are left out.

        Args:
            step: number of the round, or in asynchronous modes of the worker's exchange. Evaluations
                arrive later than the rounds that they are of.
            wall_time: seconds since 1970.
            scalars: the values.
        """

    def flush(self) -> None:
        """Write all buffered scalars."""

    def add_files(self, name: str, paths: Sequence[Path]) -> None:
        """Add files or folders to the run, under a name."""

    def close(self, error: str = "") -> None:
        """End the log of the run; `error` says why the run has failed, if it has."""


def require(module: str, extra: str, need: str) -> None:
    """Check that a module can be imported.

    Args:
        module: the module.
        extra: of this package, which brings it.
        need: who needs which package, as the beginning of the message.

    Raises:
        LoggerError: it is not installed.
    """
    try:
        importlib.import_module(module)
    except ImportError:
        raise LoggerError(f'{need}, which is not installed: pip install "esync[{extra}]"') from None


def one_line(error: BaseException) -> str:
    """Return the message of a library's error as the end of a sentence."""
    return " ".join(str(error).split())[:600] or type(error).__name__


def round_scalars(
    *,
    samples: float,
    seconds: float,
    local_iterations: float | None,
    wait: float | None,
    transfer: float | None,
    bytes_sent: float | None,
    bytes_received: float | None,
    logged: Mapping[str, float | None],
) -> dict[str, float | None]:
    """Return the scalars of a round by their tags; unknown ones are None.

    Args:
        samples: samples of this device in the round.
        seconds: length of the round.
        local_iterations: its local iterations.
        wait: seconds from its commit to the last one's.
        transfer: seconds of the rest of its exchange.
        bytes_sent: bytes sent in the round.
        bytes_received: bytes received in the round.
        logged: means of what the program has logged (`esync.Trainer.log`), by name.
    """
    rate = samples / seconds if seconds > 0 else None
    values = (rate, local_iterations, wait, transfer, bytes_sent, bytes_received)
    return {**dict(zip(ROUND_TAGS, values, strict=True)), **logged}


def evaluation_scalars(metric: str, value: float, parts: Mapping[str, float | None]) -> dict[str, float | None]:
    """Return the scalars of an evaluation by their tags; those of parts begin with `evaluation/`.

    Args:
        metric: name of the metric.
        value: its value.
        parts: further results, by name.
    """
    return {metric: value, **{f"evaluation/{name}": part for name, part in parts.items()}}
