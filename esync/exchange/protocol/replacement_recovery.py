"""Recovery of a slot: the round from which a replacement goes on.

It follows from what the dead worker has done on each server. A round ends on every server by
itself, and may end on some without a worker whose death they have noticed sooner, or with one whose
commit has come to them only. Every commit says which round it is part of, and a server that has
ended that round only acknowledges it. So a replacement takes part in the earliest round that any
server has under way, and all servers are in the same one when it is over. No two are more than one
round apart: before a worker commits in a round, all servers have ended the one before.
"""

from collections.abc import Sequence
from dataclasses import replace

from . import wire
from .status import Status


def starting_status(statuses: Sequence[Status]) -> Status:
    """Return the status that a worker begins with.

    It is that of the first server that has ended the fewest rounds. Where the slot's last commit
    was used at once, but by some servers only, its worker makes up for that before it takes part in
    rounds, which may have begun since: it is told that commits are still used at once.
    """
    newest = max(status.acknowledged for status in statuses)
    missing = any(status.acknowledged < newest for status in statuses)
    at_once = any(status.acknowledged == newest and status.use == wire.AT_ONCE for status in statuses)
    earliest = min(statuses, key=lambda status: status.rounds_together)
    return replace(earliest, synchronous=earliest.synchronous and not (missing and at_once))


def completed_exchanges(acknowledged: Sequence[int], rounds: Sequence[int], synchronous: bool) -> int:
    """Return the number of exchanges of a slot that are over; a replacement does the next one.

    A worker that died may have been answered by some servers only: its last exchange is then done
    once more, and servers that have already applied it ignore the duplicate. Where servers have
    gone on without it, what was left half done is over.

    Args:
        acknowledged: sequence number of the slot's last commit that each server has dealt with.
        rounds: rounds that each server has ended.
        synchronous: whether the next commits are used together.
    """
    if not synchronous:
        return min(acknowledged)
    fewest = min(rounds)
    # A server has dealt with at most one commit of the slot in the round that others are still in.
    return max(number - (ended - fewest) for number, ended in zip(acknowledged, rounds, strict=True))


def round_has_commit(rounds: Sequence[int], committed: Sequence[bool]) -> bool:
    """Return whether the earliest round under way has a commit of the slot wherever it goes on.

    That round needs nothing of the replacement, and has to end first.

    Args:
        rounds: rounds that each server has ended.
        committed: whether a commit of the slot waits, on each server, for the others'.
    """
    fewest = min(rounds)
    return all(waits or ended > fewest for ended, waits in zip(rounds, committed, strict=True))
