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
