"""Flags of hidden exchanges: local iterations go on while an update travels."""

import argparse
from collections.abc import Mapping

from .. import config
from .modes import MEANS
from .values import count

MODES_OF: Mapping[str, tuple[str, ...]] = {
    "overlap": MEANS,
    "run_ahead": MEANS,
}


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    overlap = parser.add_argument_group(f"hidden exchanges (modes {', '.join(MEANS)})")
    add = overlap.add_argument
    add("--overlap", action="store_true", help="go on with local iterations while an exchange is under way")
    add(
        "--run-ahead",
        type=count,
        default=config.RUN_AHEAD,
        help="with --overlap: at most so many of them in one exchange, then wait (default: %(default)s)",
    )


def check(options: argparse.Namespace, typed: set[str]) -> None:
    """What is hidden can be neither waited for nor kept."""
    if not options.overlap:
        if "run_ahead" in typed:
            raise ValueError("--run-ahead needs --overlap")
        return
    if options.checkpoint_dir:
        raise ValueError(
            "--overlap keeps no checkpoints (--checkpoint-dir): what its workers have not sent yet would be lost"
        )
    if "query_mode" in typed and options.query_mode == "blocking":
        raise ValueError("--overlap never waits for the state server's answers, --query-mode blocking does")
