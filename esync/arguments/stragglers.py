"""Flags of stragglers: what Sync-Switch does about them, and when this worker is one on purpose."""

import argparse
import os
from collections.abc import Mapping

from .. import config
from ..coordination.online import POLICIES, Watching
from ..coordination.stragglers import Detection
from ..straggle import NETWORK, parse_spell
from .values import above_to_one, checked, count, not_negative

#: Flag → the field of Detection that it sets.
_DETECTION = {f"straggler_{name}": name for name in Detection.__dataclass_fields__}
MODES_OF: Mapping[str, tuple[str, ...]] = dict.fromkeys(("online_policy", *_DETECTION), ("sync-switch",))


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    stragglers = parser.add_argument_group("stragglers")
    add = stragglers.add_argument
    add(
        "--straggle",
        type=checked(parse_spell),
        nargs="+",
        default=(),
        metavar="KIND:DELAY@AT+LASTING",
        help="be a straggler on purpose: from second AT of the run on, for LASTING seconds, every iteration (compute) "
        "or every message to a parameter server (network) takes DELAY seconds longer",
    )
    add(
        "--online-policy",
        choices=("none", *POLICIES),
        help="mode sync-switch, while it is synchronous: go on without stragglers (elastic), asynchronously and with "
        "the planned synchronous share afterwards (greedy), or wait for them (none); a reconstruction of the paper's "
        f"policies (default: {config.ONLINE_POLICY} where there is a state server, which runs the policy)",
    )
    detection = Detection()
    for flag, kind, text in (
        ("straggler_window", count, "steps whose throughput is looked at"),
        ("straggler_stride", count, "steps from one look to the next"),
        ("straggler_raise_after", count, "looks in a row after which a slow worker is a straggler"),
        ("straggler_clear_after", count, "looks in a row after which it is none any more"),
        ("straggler_sigmas", not_negative, "standard deviations below the workers' mean throughput"),
        ("straggler_floor", above_to_one, "share of the mean that its throughput is below, too"),
    ):
        default = getattr(detection, _DETECTION[flag])
        add(f"--{flag.replace('_', '-')}", type=kind, default=default, help=f"{text} (default: %(default)s)")


def check(options: argparse.Namespace, typed: set[str]) -> None:
    """The flags of a policy need one; messages to parameter servers need those."""
    if options.collective != "ps" and any(spell.kind == NETWORK for spell in options.straggle):
        raise ValueError(f"--straggle {NETWORK}: delays messages to parameter servers; --collective ps has those")
    needless = typed & set(_DETECTION)
    if needless and options.online_policy == "none":
        raise ValueError(f"--{min(needless).replace('_', '-')} makes no sense with --online-policy none")
    if options.straggler_window > config.STRAGGLER_WINDOW_MOST:
        raise ValueError(
            f"--straggler-window {options.straggler_window}: the state server looks at "
            f"{config.STRAGGLER_WINDOW_MOST} steps at most"
        )


def watching(options: argparse.Namespace) -> Watching | None:
    """What mode sync-switch asks the state server to look for; None: nothing, or there is no state server."""
    policy = options.online_policy
    if policy is None:
        known = options.state_server_ip or os.environ.get("ESYNC_STATE_SERVER")
        policy = config.ONLINE_POLICY if known else "none"
    if options.mode != "sync-switch" or policy == "none":
        return None
    return Watching(policy, Detection(**{field: getattr(options, flag) for flag, field in _DETECTION.items()}))
