"""What is tried on a cluster: every mode with the flags that matter for speed.

Each is tried on all devices, and synchronous SGD and local averaging also on the fast ones alone.

Everything comes from the registry of algorithms: which of them have a flag, whether they exchange
together, and what they send.
"""

import enum
from argparse import Namespace
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .. import config
from ..algorithms.registry import ALGORITHMS, flags_of
from ..arguments import choose_algorithm, presets
from ..exchange.codecs.quantization import NONE
from ..exchange.collectives import SCHEDULES
from ..launch.description import Description
from ..simulate.cluster import ClusterModel

OVERLAP = "overlap"
COLLECTIVE = "collective"
#: Flags that the candidates vary, and flags that apply together with them only. Their values in the
#: description are tried, too.
VARIED = (*config.PLAN_VARIATIONS, COLLECTIVE)
STRIPPED = frozenset({*VARIED, "run_ahead"})
#: Flags whose first value is also tried together with `--overlap`.
_OVERLAPPED = ("compression", COLLECTIVE, "local_iterations")

#: Keys of a description that the candidates vary.
DESCRIPTION_KEYS = ("per_host", "batch_by_speed")

#: Modes that differ from another one only in the values that they compute, and so take as long.
_TWINS = {"fedprox": "local-sgd", "diloco": "local-sgd"}


class PlanClass(enum.Enum):
    """A class of methods with a similar deviation from SGD; in ascending order of the deviation."""

    FAST = "fast devices only"
    EXACT = "exact synchronous"
    AVERAGING = "hidden, compressed or local averaging"
    ASYNCHRONOUS = "asynchronous"


@dataclass(frozen=True)
class Candidate:
    """A way to train on a cluster.

    Attributes:
        flags: flags of the worker, by their names with underscores; the mode first.
        ranks: indices of the workers that take part; None: all of them.
        per_host: whether the workers of a host exchange as one (`per_host` of the description).
        batch_by_speed: whether batches are in proportion to the devices' speeds (likewise).
        preset: name of the preset whose mode and options the flags are; "": of none.
    """

    flags: Mapping[str, Any]
    ranks: tuple[int, ...] | None = None
    per_host: bool = False
    batch_by_speed: bool = False
    preset: str = ""

    @property
    def mode(self) -> str:
        """The mode."""
        return str(self.flags["mode"])

    @property
    def collective(self) -> bool:
        """Whether it exchanges over MPI, without parameter servers."""
        return COLLECTIVE in self.flags

    @property
    def demands(self) -> tuple[bool, bool, bool, int]:
        """Sort key: whether it needs MPI, is no preset, changes the payload, and its number of settings."""
        settings = len(self.flags) + self.per_host + self.batch_by_speed + (self.ranks is not None)
        return self.collective, not self.preset, "compression" in self.flags, settings

    @property
    def settings(self) -> tuple[Any, ...]:
        """Key that is equal for candidates that differ only in the devices that take part."""
        return *sorted((name, repr(value)) for name, value in self.flags.items()), self.per_host, self.batch_by_speed

    @property
    def variation(self) -> dict[str, Any]:
        """The flags beside the mode."""
        return {name: value for name, value in self.flags.items() if name != "mode"}


def _fast_preset() -> Candidate:
    """Return the preset fast as a candidate: its mode and options, without what affects optimizer or network."""
    settings = presets.PRESETS["fast"].settings
    options = flags_of(ALGORITHMS[settings["mode"]])
    return Candidate({flag: value for flag, value in settings.items() if flag in {"mode", *options}}, preset="fast")


def class_of(options: Namespace, candidate: Candidate) -> PlanClass:
    """Return the class of a candidate, given the options that its worker reads."""
    algorithm = choose_algorithm(options)
    if not algorithm.synchronous or algorithm.switches_synchrony:
        return PlanClass.ASYNCHRONOUS
    if algorithm.sends == "updates" or algorithm.weight_compression != NONE:
        return PlanClass.AVERAGING
    return PlanClass.EXACT if candidate.ranks is None else PlanClass.FAST


def excluded(modes: Collection[str]) -> dict[str, str]:
    """Return the modes that cannot be simulated without gradients, and why."""
    reasons = {}
    for name in modes:
        algorithm = ALGORITHMS[name]
        if algorithm.needs_gradients:
            reasons[name] = "its messages depend on gradients, which a plan does not compute"
        elif algorithm.switches_synchrony:
            reasons[name] = "it is as fast as sync until it switches, and then as fast as async"
    return reasons


def unsuited(optimizer: str) -> dict[str, str]:
    """Return the modes that cannot train with an optimizer, given by name, and why; none if it is unknown."""
    if optimizer in ("", "sgd"):
        return {}
    reason = f"it takes steps of plain SGD, and the logs are of {optimizer}"
    return {
        name: reason
        for name, algorithm in ALGORITHMS.items()
        if algorithm.plain_sgd or (algorithm.sends == "gradients" and not algorithm.optimizer_chooses_rule)
    }


def twins(modes: Collection[str]) -> dict[str, str]:
    """Return the modes that take as long as another one of these: mode → that one."""
    return {name: other for name, other in _TWINS.items() if name in modes and other in modes}


def candidates(
    description: Description, cluster: ClusterModel, modes: Collection[str], per_host: bool | None = None
) -> list[Candidate]:
    """Return the candidates on a cluster.

    Args:
        description: the cluster; the values that its section `train` gives to varied flags are
            tried, too.
        cluster: its model.
        modes: names of the modes to try.
        per_host: whether the workers of a host exchange as one, in which case modes that do not
            allow it are left out. None: both ways are tried.
    """
    flat = _by_worker(description, cluster, modes)
    together = [
        replace(candidate, per_host=_shares_a_host(candidate, cluster))
        for candidate in flat
        if has_exchanges_per_host(candidate)
    ]
    if per_host is None:  # a preset exchanges per host then
        flat = [candidate for candidate in flat if not (candidate.preset and _shares_a_host(candidate, cluster))]
        return [*flat, *(candidate for candidate in together if candidate.per_host)]
    return together if per_host else flat


def has_exchanges_per_host(candidate: Candidate) -> bool:
    """Return whether the simulator models exchanges per host: with rounds and servers."""
    algorithm = ALGORITHMS[candidate.mode]
    return algorithm.synchronous and algorithm.sends != "nothing" and not candidate.collective


def _shares_a_host(candidate: Candidate, cluster: ClusterModel) -> bool:
    """Return whether two workers of a candidate are on one host."""
    ranks = range(len(cluster.workers)) if candidate.ranks is None else candidate.ranks
    return len({cluster.workers[rank].host for rank in ranks}) < len(ranks)


def _by_worker(description: Description, cluster: ClusterModel, modes: Collection[str]) -> list[Candidate]:
    """Return the candidates in which every worker exchanges by itself."""
    unusable = excluded(modes).keys() | twins(modes).keys()
    result: list[Candidate] = []
    for name in modes:
        if name in unusable:
            continue
        if ALGORITHMS[name].sends == "nothing":
            result.append(Candidate({"mode": name}, _fastest(cluster)[:1]))
            continue
        result += [
            Candidate({"mode": name, **variation})
            for variation in _variations(name, description.train, len(cluster.workers))
        ]
        if len(cluster.workers) > 1 and (fast := _fast_preset()).mode == name:
            result.append(fast)
        if _exact(name) and _can_divide(description, cluster):
            result += [
                Candidate({"mode": name, **variation}, batch_by_speed=True)
                for variation in _variations(name, description.train, len(cluster.workers))
                if variation.keys() <= {COLLECTIVE, "compression"}
            ]
        if len(cluster.workers) > 1 and _exact(name):
            result += [Candidate({"mode": name}, ranks) for ranks in fast_devices(cluster)]
        elif len(cluster.workers) > 1 and ALGORITHMS[name].synchronous and ALGORITHMS[name].sends == "updates":
            groups = fast_devices(cluster, config.PLAN_GROUPS)
            result += [Candidate({"mode": name, **settings}, ranks) for ranks in groups for settings in _on_few(name)]
    return result


def _can_divide(description: Description, cluster: ClusterModel) -> bool:
    """Return whether devices are unequal, and a batch size can be given to all of them."""
    behaviours = [worker.simulate for worker in description.workers]
    if description.program and any(behaviour.fixed_time is None for behaviour in behaviours):
        return False  # it does not ask for its batch size
    devices = [worker.device for worker in cluster.workers]
    step_times = [device.mean for device in devices]
    return not any(device.trace for device in devices) and max(step_times) >= config.PLAN_SLOWER * min(step_times)


def _on_few(mode: str) -> Iterator[dict[str, Any]]:
    """Yield the flags that are tried with a mode on the fastest devices."""
    options = flags_of(ALGORITHMS[mode])
    yield {}
    if not {OVERLAP, "compression"} <= options.keys():
        return
    hidden = {OVERLAP: True, "compression": config.PLAN_VARIATIONS["compression"][0]}
    yield hidden
    if options.get("local_iterations") is not None and options["local_iterations"].default is not None:
        yield from ({**hidden, "local_iterations": number} for number in config.PLAN_VARIATIONS["local_iterations"])


def _exact(mode: str) -> bool:
    """Return whether a mode without further flags is synchronous SGD."""
    algorithm = ALGORITHMS[mode]
    return algorithm.sends == "gradients" and algorithm.synchronous and not algorithm.switches_synchrony


def fast_devices(cluster: ClusterModel, limit: int = config.PLAN_FASTEST) -> list[tuple[int, ...]]:
    """Return groups of the fastest devices that might be faster without the slower ones.

    A group ends where the next device is clearly slower (`config.PLAN_SLOWER`). Of all such groups,
    the `limit` with the largest differences are returned.
    """
    order = _fastest(cluster)
    speeds = [cluster.workers[rank].device.mean for rank in order]
    ratios = {count: speeds[count] / speeds[count - 1] for count in range(2, len(order))}
    places = sorted(
        (count for count in ratios if ratios[count] >= config.PLAN_SLOWER), key=lambda count: -ratios[count]
    )
    return [tuple(sorted(order[:count])) for count in sorted(places[:limit])]


def _fastest(cluster: ClusterModel) -> tuple[int, ...]:
    """Return the workers' ranks, the fastest first."""
    return tuple(worker.rank for worker in sorted(cluster.workers, key=lambda worker: worker.device.mean))


def _variations(mode: str, train: Mapping[str, Any], workers: int) -> Iterator[dict[str, Any]]:
    """Yield the flags that are tried with a mode: none, each value of each flag, and some with overlap."""
    options = flags_of(ALGORITHMS[mode])
    values = {name: list(config.PLAN_VARIATIONS[name]) for name in config.PLAN_VARIATIONS if name in options}
    if options.get("local_iterations") is not None and options["local_iterations"].default is None:
        del values["local_iterations"]  # a fixed number would be another mode
    preset = presets.settings_of(train.get("preset"))
    compressed = mode == preset.get("mode") and "compression" in preset
    if ALGORITHMS[mode].serverless and workers <= config.PLAN_COLLECTIVE_WORKERS and not compressed:
        values[COLLECTIVE] = list(SCHEDULES)
    for name in VARIED:
        if name in train and name in (*options, *values) and train[name] not in values.setdefault(name, []):
            values[name].append(train[name])
    yield {}
    for name, choices in values.items():
        for value in choices:
            if options.get(name) is None or options[name].default != value:
                yield {name: value}
        if name in _OVERLAPPED and OVERLAP in values:
            yield {OVERLAP: True, name: choices[0]}
