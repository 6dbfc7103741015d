"""Host groups: the workers of a host that add up what they send, and exchange as one (`per_host`)."""

import argparse
from collections.abc import Sequence

from ..algorithms.registry import names
from ..arguments import presets
from ..exchange.collectives import per_host_refusal
from ..runtime.worker_environment import HostGroupName
from .description import Description, DescriptionError, WorkerEntry


def by_host(workers: Sequence[WorkerEntry]) -> dict[str, dict[int, WorkerEntry]]:
    """Return the workers of each host, by their indices."""
    hosts: dict[str, dict[int, WorkerEntry]] = {}
    for number, worker in enumerate(workers):
        hosts.setdefault(worker.host, {})[number] = worker
    return hosts


def host_groups(workers: Sequence[WorkerEntry], token: str) -> dict[int, HostGroupName]:
    """Return the group of each worker that shares its host with others, by the worker's index.

    `token` distinguishes the groups of this job from those of others.
    """
    groups: dict[int, HostGroupName] = {}
    for index, members in enumerate(by_host(workers).values()):
        if len(members) > 1:
            groups |= dict.fromkeys(members, HostGroupName(f"{token}-{index}", tuple(members)))
    return groups


def exchanges_per_host(description: Description, options: argparse.Namespace) -> bool:
    """Return whether the workers of a host exchange as one: as described; if it says nothing, with a preset."""
    if description.per_host is not None:
        return description.per_host
    preset = presets.settings_of(options.preset)
    return bool(preset) and options.mode == preset["mode"] and options.collective == "ps"


def check_per_host(options: argparse.Namespace, any_mode: bool = False) -> None:
    """Check that the workers of a host can exchange as one.

    Args:
        options: flags of the workers.
        any_mode: ignore the mode in the options, because a user's program chooses its own.

    Raises:
        DescriptionError: the mode or the collective cannot do it.
    """
    algorithm = options.algorithm
    if options.collective != "ps":
        raise DescriptionError(per_host_refusal(options.collective))
    if not any_mode and algorithm.sends == "nothing":
        raise DescriptionError(f"per_host: mode {algorithm.name} exchanges nothing; leave per_host out")
    if not any_mode and not algorithm.synchronous:
        rounds = ", ".join(names(lambda kind: kind.synchronous and kind.sends != "nothing"))
        raise DescriptionError(
            f"per_host: mode {algorithm.name} uses what each worker sends at once, and only rounds can be exchanged by "
            f"host; leave per_host out, or choose a mode with rounds: {rounds}"
        )
