"""Recovery of a slot: the round in which a replacement begins.

Every server ends a round by itself. Some may end it without a worker whose death they have noticed
earlier, or with a worker whose commit has reached them only. Before a worker commits in a round,
all servers have ended the previous one, so they are at most one round apart. Commits carry the
number of their round, and a server that has ended that round only acknowledges them. A replacement
therefore begins in the earliest round that is open on any server; after it, all servers are in the
same round again.
"""

from collections.abc import Sequence
from dataclasses import replace

from . import wire
from .status import Status


def starting_status(statuses: Sequence[Status]) -> Status:
    """Return the status that a worker begins with: that of the server with the fewest rounds.

    If the slot's last commit was used at once, but not by all servers, the worker has to repeat it
    before it takes part in rounds, even if rounds have started since. `synchronous` is False then.
    """
    newest = max(status.acknowledged for status in statuses)
    missing = any(status.acknowledged < newest for status in statuses)
    at_once = any(status.acknowledged == newest and status.use == wire.AT_ONCE for status in statuses)
    earliest = min(statuses, key=lambda status: status.rounds_together)
    return replace(earliest, synchronous=earliest.synchronous and not (missing and at_once))


def completed_exchanges(acknowledged: Sequence[int], rounds: Sequence[int], synchronous: bool) -> int:
    """Return the number of exchanges of a slot that are complete.

    A replacement begins with the next exchange. If some servers only have acknowledged the last
    one, it is repeated, and those servers ignore the duplicate. If rounds have ended without the
    dead worker, its incomplete exchange counts as complete.

    Args:
        acknowledged: sequence number of the slot's last acknowledged commit, by server.
        rounds: number of rounds that each server has ended.
        synchronous: whether the next commits are used together.
    """
    if not synchronous:
        return min(acknowledged)
    fewest = min(rounds)
    # In the round that others are still in, a server has acknowledged at most one commit of the slot.
    return max(number - (ended - fewest) for number, ended in zip(acknowledged, rounds, strict=True))


def round_has_commit(rounds: Sequence[int], committed: Sequence[bool]) -> bool:
    """Return whether every server that is in the earliest open round has a commit of the slot.

    The replacement takes no part in that round, and has to wait for its end.

    Args:
        rounds: number of rounds that each server has ended.
        committed: whether a commit of the slot is pending, by server.
    """
    fewest = min(rounds)
    return all(waits or ended > fewest for ended, waits in zip(rounds, committed, strict=True))
