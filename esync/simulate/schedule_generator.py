"""Generate random schedules of clusters, failures and options from a seed.

A schedule has a number of workers and servers with their speeds, delays of messages, crashes, and
options of the algorithm. The latter are drawn from the types, bounds and choices in its class.
"""

import argparse
import functools
import math
import shlex
import zlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import numpy as np

from ..algorithms import Algorithm, TieredESync
from ..algorithms.options import annotated, limits
from ..algorithms.registry import flags_of
from ..arguments import algorithm_of, choose_algorithm
from ..launch import flags
from .cluster import ClusterModel
from .coordination import StateServerModel
from .devices import DeviceModel, Pause
from .network import Link
from .servers import ServerModel
from .world import WorkerModel

BATCH = 8
#: Probability that an option of the algorithm is drawn; otherwise it keeps its default.
DRAWN = 0.4
#: Probability that the workers of a host exchange as one, where there are rounds.
PER_HOST = 0.5
#: Largest distance of an integer from the smallest one allowed: a single value, one of a list.
NEAR, NEAR_IN_LISTS = 3, 11
#: Distances from the smallest number allowed, where there is no largest one.
DISTANCES = (0.01, 0.1, 0.5, 1.0, 2.0)
#: Probability that a number is the smallest or the largest one allowed.
AT_THE_END = 0.5


@dataclass(frozen=True)
class RandomSchedule:
    """A schedule drawn from a seed.

    Attributes:
        options: the worker's flags.
        seed: seed of the schedule.
        cluster: the cluster's model.
        delay: largest additional delay of a message, in seconds; each message's is drawn.
        buckets: largest number of values in one message.
        leases: whether workers use leases.
        drawn: options of the algorithm that were drawn, flag with underscores → value.
        again: the command that runs this schedule again.
    """

    options: argparse.Namespace
    seed: int
    cluster: ClusterModel
    delay: float
    buckets: int
    leases: bool
    drawn: dict[str, Any]
    again: str

    @property
    def steady(self) -> bool:
        """Whether iterations and messages always take the same time, and nobody crashes."""
        models = [worker.device for worker in self.cluster.workers]
        crashes = any(worker.crashes for worker in self.cluster.workers)
        return not (self.delay or crashes or any(model.jitter or model.pauses or model.speed for model in models))


def schedulable(algorithm: type[Algorithm]) -> bool:
    """Return whether an algorithm has schedules.

    Its workers must exchange something, and gradients must not decide what.
    """
    return algorithm.sends != "nothing" and not algorithm.needs_gradients


def draw(mode: str, seed: int, crashes: bool = True, given: Sequence[str] = ()) -> RandomSchedule:
    """Draw the schedule of a seed.

    It depends on the algorithm's name and the seed, not on the other algorithms.

    Args:
        mode: the algorithm, as `--mode` takes it.
        seed: seed of the schedule.
        crashes: whether workers may crash.
        given: flags for options of the algorithm, which are not drawn then.

    Raises:
        ValueError: there is no such mode, it has no schedules, or it refuses a flag that was given.
    """
    options = argparse.Namespace(**vars(_flags(algorithm_of(mode), mode, tuple(given))))
    random = np.random.default_rng(np.random.SeedSequence([seed, zlib.crc32(options.algorithm.name.encode())]))
    workers, rounds = int(random.integers(1, 7)), int(random.integers(2, 9))
    steady = random.random() < 0.3
    times = np.exp(random.uniform(np.log(0.03), np.log(2.0), workers))
    lasts = float(times.max()) * rounds
    models = []
    for rank in range(workers):
        device = DeviceModel(step_time=float(times[rank]))
        fallen: list[tuple[float, float]] = []
        if not steady:
            device = DeviceModel(
                step_time=float(times[rank]),
                jitter=float(random.choice([0.0, 0.1, 0.3])),
                distribution=str(random.choice(["normal", "lognormal", "uniform", "exponential"])),
                speed=[(float(random.uniform(0, lasts)), float(random.uniform(0.3, 2.0)))] * int(random.random() < 0.2),
                pauses=[Pause(float(random.uniform(0, lasts)), float(random.uniform(0.01, 2)))]
                * int(random.random() < 0.2),
            )
            moment = 0.0 if rank else 1.0  # a worker 0 that dies before it has begun the job takes the job with it
            while crashes and random.random() < 0.25:
                moment += float(random.uniform(0, lasts))
                after = float(random.exponential(1.0)) + 0.001
                fallen.append((moment, after))
                moment += after
        models.append(WorkerModel(rank, f"host{int(random.integers(0, workers))}", f"d{rank}", device, tuple(fallen)))
    bandwidth = float(random.choice([np.inf, 1e3, 1e5]))
    latencies: dict[str, float] = defaultdict(lambda: 0.0)
    latencies |= {f"host{index}": float(random.uniform(0, 0.03)) for index in range(workers)}
    servers = tuple(
        ServerModel(f"server{shard}", float(random.choice([0.0, 1e-4, 0.01])))
        for shard in range(int(random.integers(1, 4)))
    )
    cluster = ClusterModel(
        workers=tuple(models),
        servers=servers,
        state_server=StateServerModel("server0", float(random.choice([0.0, 1e-3]))),
        link=lambda host: Link(bandwidth, latencies[host]),
        evaluation_time=1.0,
    )
    options.rounds = rounds
    delay = 0.0 if steady else float(random.choice([0.0, 0.01, 0.2]))
    buckets, leases = int(random.integers(1, 4)), bool(random.random() < 0.7)
    leases = leases or issubclass(options.algorithm, TieredESync)  # the published question knows no tiers
    drawn = _draw_options(options, random)
    if choose_algorithm(options).synchronous or options.algorithm.switches_synchrony:
        bandwidth = float(random.choice([1e3, 1e5, 1e10]))
        cluster = replace(cluster, per_host=bool(random.random() < PER_HOST), memory_bandwidth=bandwidth)
    again = ["--mode", mode, "--seed", str(seed), *([] if crashes else ["--no-crashes"]), *given]
    return RandomSchedule(
        options=options,
        seed=seed,
        cluster=cluster,
        delay=delay,
        buckets=buckets,
        leases=leases,
        drawn=drawn,
        again=f"python -m esync.simulate.schedules {shlex.join(again)}",
    )


@functools.lru_cache(maxsize=16)
def _flags(algorithm: type[Algorithm], mode: str, given: tuple[str, ...]) -> argparse.Namespace:
    """Return the worker's flags for a mode, before anything is drawn."""
    if not schedulable(algorithm):
        why = "exchanges nothing" if algorithm.sends == "nothing" else "needs gradients"
        raise ValueError(f"mode {mode} {why}, so it has no schedules")
    words = ["--mode", mode, "--batch-size", str(BATCH), *given]
    try:
        options = flags.parse(words)
    except flags.FlagError as error:  # perhaps the algorithm wants to know how many samples the run has
        try:
            options = flags.parse([*words, "--epochs=1"])
        except flags.FlagError:
            raise error from None
    own = flags_of(options.algorithm).keys()
    if foreign := sorted(options.given - own - {"mode", "batch_size", "epochs"}):
        raise ValueError(f"{flags.flag(foreign[0])} is not an option of mode {mode}: it cannot be given here")
    return options


def _draw_options(options: argparse.Namespace, random: np.random.Generator) -> dict[str, Any]:
    """Draw some options of the algorithm, and set them among the flags.

    Values that the algorithm refuses are left out.
    """
    drawn: dict[str, Any] = {}
    for dest, each in flags_of(options.algorithm).items():
        if dest in options.given or random.random() >= DRAWN:
            continue
        value = sample(each.kind, random)
        if value is None:
            continue
        changed = {dest: value, "given": options.given | {dest}}
        tried = argparse.Namespace(**{**vars(options), **changed})
        try:
            tried.algorithm.check_flags(tried, tried.given)
            choose_algorithm(tried)
        except ValueError:
            continue
        vars(options).update(changed)
        drawn[dest] = value
    return drawn


def sample(kind: Any, random: np.random.Generator, near: int = NEAR) -> Any:
    """Draw a value of an annotated type.

    Returns None where the type does not tell which values there are, as for a text.
    """
    bounds: list[Any] = []
    if get_origin(kind) is Annotated:
        kind, *bounds = get_args(kind)
    if get_origin(kind) in (Union, UnionType):
        kinds = [each for each in get_args(kind) if each is not type(None)]
        return sample(annotated(kinds[int(random.integers(len(kinds)))], bounds), random)
    if get_origin(kind) is Literal:
        choices = get_args(kind)
        return choices[int(random.integers(len(choices)))]
    if get_origin(kind) is tuple and get_args(kind)[1:] == (...,):
        values = {sample(get_args(kind)[0], random, NEAR_IN_LISTS) for _ in range(int(random.integers(1, 4)))}
        return None if None in values else tuple(sorted(values))
    if kind is bool:
        return True
    limit = limits(bounds)
    if kind is int:
        low = int(max(limit.get("ge", 0), math.floor(limit.get("gt", -1)) + 1))
        high = int(min(limit.get("le", math.inf), limit.get("lt", math.inf) - 1, low + near))
        return int(random.integers(low, high + 1))
    if kind is float:
        least, most = limit.get("ge", limit.get("gt", 0.0)), limit.get("le", limit.get("lt", math.inf))
        if "gt" not in limit and random.random() < AT_THE_END:
            return least
        if most == math.inf:
            return least + float(random.choice(DISTANCES))
        return most if "le" in limit and random.random() < AT_THE_END else float(random.uniform(least, most))
    return None
