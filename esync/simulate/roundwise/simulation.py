"""Simulate a job round by round, as `simulate.simulation` does event by event."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from ... import config
from ...algorithms import SCAFFOLD, SSGD, Algorithm, DiLoCo, ESync, FedProx, LocalSGD
from ...algorithms.assigned_weights import SCALARS
from ...algorithms.automatic_interval import AUTO
from ...algorithms.registry import all_flags, flags_of
from ...arguments import choose_algorithm
from ...exchange.protocol import wire
from ...exchange.protocol.layout import Layout
from ...exchange.protocol.round_state import RoundState
from ...launch import flags
from ...training.worker_setup import make_limits
from ..cluster import ClusterModel
from ..engine import rare_collections
from ..servers import Sizes, modelled
from .exchange import Arrival, Exchanges
from .host_group import RoundwiseHostGroup
from .state_server_queue import StateServerQueue
from .worker import RoundwiseWorker, WorkerTotals

_AVERAGING = frozenset(
    {"local_iterations", "global_lr", "outer_momentum", "weighting", "statistics_weighting", "run_ahead"}
)
#: Algorithm → its options that are modelled here, or that do not affect times. Subclasses are not
#: covered, because they may exchange at other times.
ALGORITHMS: dict[type[Algorithm], frozenset[str]] = {
    SSGD: frozenset(),
    LocalSGD: _AVERAGING,
    DiLoCo: _AVERAGING,
    FedProx: _AVERAGING | {"prox_mu"},
    SCAFFOLD: _AVERAGING,
    ESync: _AVERAGING | {"epsilon", "slowest_iterations"},
}
#: Flags of all modes that are modelled here, and (below) those that do not affect times. All others
#: must have their defaults, so that flags added in future are not ignored.
REGARDED = frozenset(
    {*("mode", "network", "batch_size", "seed", "rounds", "epochs", "max_time", "dataset"), "use_dcasgd"}
)
WITHOUT_EFFECT = frozenset(
    {
        *("no_hybridize", "optimizer", "momentum", "weight_decay", "learning_rate", "local_lr"),
        *("data_dir", "partition", "split_by_class", "gpu", "cpu", "step_time"),
        *("target_accuracy", "eval_duration", "test_images", "reestimate_statistics", "no_evaluation"),
        *("log_dir", "name", "tensorboard", "overwrite", "quiet", "normalization"),
        *("checkpoint_dir", "checkpoint_every", "keep_checkpoints", "resume", "no_export"),
        *("state_server_ip", "state_server_port", "job", "start_timeout", "round_timeout", "lease"),
        "wait_for_replacement",
    }
)


def covers(cluster: ClusterModel, options: argparse.Namespace) -> bool:
    """Return whether this job can be simulated round by round, unless its rounds overlap.

    Overlapping rounds are detected by the simulation; see `OverlappingRoundsError`.
    """
    heeded = ALGORITHMS.get(options.algorithm)
    if heeded is None:
        return False
    algorithm_flags = flags_of(options.algorithm)
    ignored = {dest: option for dest, option in algorithm_flags.items() if option.name not in heeded}
    if any(getattr(options, dest) != option.default for dest, option in ignored.items()):
        return False
    if getattr(options, "slowest_iterations", None) == "auto":
        return False
    unsupported = flags.known().keys() - REGARDED - WITHOUT_EFFECT - all_flags().keys()
    if any(getattr(options, name) != flags.known()[name].default for name in unsupported):
        return False
    if getattr(options, "local_iterations", None) == AUTO:  # rounds differ in their iterations
        return False
    if any(worker.crashes or worker.device.straggler_events for worker in cluster.workers):
        return False
    # On one host, messages to the server and from the worker would share a port.
    servers = {server.host for server in cluster.servers}
    return len(servers) == 1 or not any(worker.host in servers for worker in cluster.workers)


@dataclass
class HostTraffic:
    """Bytes of every host, as `simulate.network.Network` counts them."""

    sent: dict[str, float] = field(default_factory=dict)
    received: dict[str, float] = field(default_factory=dict)

    def count(self, host: str, sent: float, received: float) -> None:
        """Add bytes that a host has sent and received."""
        self.sent[host] = self.sent.get(host, 0.0) + sent
        self.received[host] = self.received.get(host, 0.0) + received


class RoundwiseSimulation:
    """A modelled cluster whose workers exchange synchronously, without gradients.

    Args:
        cluster: the cluster's model.
        options: the worker's flags, parsed.
        numerics: a `simulation.TimingNumerics`.
        watch: called after each round with this simulation and an object that has its `round`.
        leases: whether workers use leases.

    Attributes:
        workers: the workers' totals, by rank.
        now: virtual time in seconds.
        round: number of rounds completed.
    """

    accuracies: tuple[Any, ...] = ()

    def __init__(
        self,
        cluster: ClusterModel,
        options: argparse.Namespace,
        numerics: Any,
        watch: Callable[[Any, Any], None] | None = None,
        leases: bool = True,
    ) -> None:
        self.cluster, self.options, self.numerics = cluster, options, numerics
        self._watch = watch
        link = lru_cache(maxsize=None)(cluster.link)
        slots, servers = len(cluster.workers), len(cluster.servers)
        network = numerics.wire
        sizes = modelled(network, dict.fromkeys([*network, *options.algorithm.vectors], 0))
        layout = Layout(sizes, servers, config.BUCKET_ELEMENTS)
        self._sizes = Sizes.of(layout, slots, SCALARS, cluster.most_on_a_host)
        self._layout = layout
        self._exchanges = Exchanges(cluster, self._sizes, link)
        self.state_server = StateServerQueue(cluster.state_server, leases)
        latency = self._exchanges.network.latency
        self._workers = [
            RoundwiseWorker(
                model,
                options.seed,
                latency(model.host, cluster.state_server.host),
                self._exchanges.ways(model.host),
            )
            for model in cluster.workers
        ]
        self.workers = [worker.sums for worker in self._workers]
        self.network = HostTraffic()
        # The servers' round state, with a single worker, because all workers commit together.
        self._round_state = RoundState(1, True, make_limits(options, numerics.samples))
        self._asks = choose_algorithm(options).asks_state_server
        self.now, self.round = 0.0, 0

    @property
    def rounds(self) -> int:
        """Number of rounds completed."""
        return self._round_state.round

    @property
    def samples(self) -> int:
        """Number of samples that all workers have used in those rounds."""
        return self._round_state.samples

    @property
    def events(self) -> int:
        """Number of calls to the state server, and of events in the exchanges."""
        return self.state_server.events + self._exchanges.events

    @property
    def server_seconds(self) -> list[float]:
        """Seconds that each parameter server has spent on messages."""
        exchanges = sum(worker.carried for worker in self._workers)
        return [server.busy(len(self._workers), exchanges) for server in self._exchanges.servers]

    def run(self) -> None:
        """Run the simulation to its end.

        Raises:
            OverlappingRoundsError: its rounds cannot be computed one after the other.
        """
        with rare_collections():
            self._run()

    def _run(self) -> None:
        round_state, exchanges = self._round_state, self._exchanges
        round_state.join(0, 1, 0.0)
        arrivals = self._begin()
        self._group()
        while not round_state.finished:
            ready = self._compute(arrivals)
            ended = exchanges.push(ready)
            round_state.count(self.options.batch_size * sum(worker.iterations for worker in ready), ended)
            self.round = round_state.round
            arrivals = exchanges.pull(ready, last=round_state.finished)
            for arrived, worker in arrivals:
                worker.end_round(arrived)
            self.now = arrivals[-1][0]
            if self._watch is not None:
                self._watch(self, self)
        for arrived, worker in arrivals:
            worker.sums.left = arrived
        self._add_up()

    def _begin(self) -> list[Arrival]:
        """Start all workers at time 0, let them fetch the initial model, and return its arrivals."""
        workers, options = self._workers, self.options
        if self._asks:
            epsilon = None if isinstance(options.epsilon, str) else options.epsilon
            arrived, first = self.state_server.init(workers[0], len(workers), epsilon, options.slowest_iterations)
            for worker in workers:
                worker.noticed = arrived
            workers[0].noticed = first
        arrivals = self._exchanges.pull(sorted(workers, key=lambda worker: worker.noticed))
        for arrived, worker in arrivals:
            worker.sums.began = arrived  # overwritten after the first query to a state server
        return arrivals

    def _group(self) -> None:
        """Let the workers of a host exchange as one."""
        layout, value = self._layout, 4 / self.cluster.memory_bandwidth
        models = [0.0] * layout.servers
        for bucket in layout.buckets:
            models[bucket.shard] += value * (wire.HEADER_ELEMENTS + bucket.stop - bucket.start)
        payload = value * sum(layout.sizes.values())
        self._exchanges.exchange_as_one(
            RoundwiseHostGroup([self._workers[rank] for rank in ranks], payload, models)
            for ranks in self.cluster.host_groups().values()
        )

    def _compute(self, arrivals: list[Arrival]) -> list[RoundwiseWorker]:
        """Let all workers train from the arrival of the model on; return them in the order of their exchanges."""
        if self._asks:
            return self.state_server.run(self.round + 1, arrivals)
        iterations = getattr(self.options, "local_iterations", 1)
        for arrived, worker in arrivals:
            worker.compute(iterations, arrived)
        return [worker for _, worker in arrivals]

    def _add_up(self) -> None:
        """Compute the bytes of all workers from the number of messages."""
        sizes, slots = self._sizes, len(self._workers)
        exchanges = sum(worker.carried for worker in self._workers)
        amounts = [sizes.amount(shard) for shard in range(len(self._exchanges.servers))]
        pulled = sum(size for size, _ in amounts)
        requests = sizes.question * sum(messages for _, messages in amounts)
        leaving = len(amounts) * sizes.message
        pushed = pulled + leaving
        for worker in self._workers:
            sent = worker.carried * pushed + worker.fetched * requests + leaving + worker.polls * sizes.question
            received = worker.fetched * pulled + worker.polls * sizes.message
            worker.sums.worlds.append(WorkerTotals.of(worker, sent, received))
            self.network.count(worker.sums.worker.host, sent, received)
        for shard, server in enumerate(self._exchanges.servers):
            pulls = slots + exchanges
            received = exchanges * server.payload_size + slots * sizes.message
            received += (pulls * amounts[shard][1] + server.polls) * sizes.question
            self.network.count(server.host, pulls * server.model_size + server.polls * sizes.message, received)
