"""Where a worker goes on that has joined: what the former holder of its slot has left behind."""

from collections.abc import Sequence


def exchanges_behind(acknowledged: Sequence[int], rounds: Sequence[int], synchronous: bool) -> int:
    """How many exchanges of a slot are over.

    A worker that died may have been answered by some servers only: its last exchange is then done once more, and those
    that have used it already leave it at that. Where servers have gone on without it, what was left half done is over.

    Args:
        acknowledged: sequence number of the slot's last commit that each server has dealt with.
        rounds: rounds completed, by each server.
        synchronous: whether rounds wait for every worker.
    """
    over = synchronous and len(set(rounds)) == 1
    return max(acknowledged) if over else min(acknowledged)


def in_round(acknowledged: Sequence[int], committed: Sequence[bool]) -> bool:
    """Whether the round under way goes on with what the dead worker has committed: it has to end first.

    It has committed everywhere; where a server has ended that round already, another one may be about to.

    Args:
        acknowledged: sequence number of the slot's last commit that each server has dealt with.
        committed: whether a later one waits, on each server, for the others' commits.
    """
    reached = {number + bool(waits) for number, waits in zip(acknowledged, committed, strict=True)}
    return any(committed) and len(reached) == 1
