"""Exchange of one round: all payloads to the parameter servers, the new model to all workers.

With one server and workers on separate hosts, both are computed in one pass. Otherwise they are
simulated event by event over the modelled network.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from operator import attrgetter, itemgetter

from ..acknowledgement import noticed_at
from ..cluster import ClusterModel
from ..engine import SimulationEngine
from ..network import Link, Network
from ..servers import ServerModel, Sizes
from .host_group import RoundwiseHostGroup
from .sharing import carry
from .worker import RoundwiseWorker, Route

_TIME, _SENT = itemgetter(0), attrgetter("sent")
#: Time of an arrival, and the worker that is the sender or the receiver.
Arrival = tuple[float, RoundwiseWorker]


class OverlappingRoundsError(Exception):
    """Raised when messages of two rounds overlap on a server, so that rounds cannot be computed in order."""


class _Server:
    """A parameter server's queue; see `servers.ServerNode.occupy`.

    Args:
        model: its costs.
        payload: messages and bytes of a payload with its commit.
        pull: messages and bytes of a pull.
        message: bytes of a message alone.

    Attributes:
        last_request: when the last request for the newest model reached it.
        polls: polls of its status so far.
        free: when it finishes the messages that have arrived so far.
    """

    def __init__(self, model: ServerModel, payload: tuple[int, float], pull: tuple[int, float], message: float) -> None:
        self.host = model.host
        self.payload_size, self.model_size, self.message = payload[1], pull[1], message
        self.last_request = -math.inf
        self.polls = 0
        self._push_cost, self._pull_cost = model.cost(*payload), model.cost(*pull)
        self._leave_cost = model.cost(1, message)
        self.free = 0.0

    def push(self, arrived: float) -> float:
        """Queue a payload that has arrived; return the time at which its handling ends."""
        if arrived <= self.last_request:
            if self._push_cost + self._pull_cost:
                raise OverlappingRoundsError
            return arrived  # handled at once, independently of requests that arrive later
        return self._occupy(arrived, self._push_cost)

    def pull(self, arrived: float) -> float:
        """Queue a request that has arrived; return the time at which the model is sent."""
        self.last_request = arrived
        return self._occupy(arrived, self._pull_cost)

    def leave(self, arrived: float) -> None:
        """Queue the last message of a worker, which leaves."""
        self._occupy(arrived, self._leave_cost)

    def busy(self, workers: int, exchanges: int) -> float:
        """Return the seconds that it spends on the messages of a whole run.

        Args:
            workers: number of workers, each of which fetches the initial model and leaves.
            exchanges: number of payloads, each of which is answered by a model.
        """
        per_worker = self._pull_cost + self._leave_cost
        return exchanges * (self._push_cost + self._pull_cost) + workers * per_worker

    def _occupy(self, arrived: float, cost: float) -> float:
        self.free = free = (arrived if arrived > self.free else self.free) + cost
        return free


class Exchanges:
    """The servers, and the network between them and the workers.

    Args:
        cluster: the cluster's model.
        sizes: sizes of the messages.
        link: returns a host's link.

    Attributes:
        servers: the servers in the order of their shards.
        network: the network between all hosts, with nothing in transit.
        events: number of events in the exchanges that were not computed in one pass.
    """

    def __init__(self, cluster: ClusterModel, sizes: Sizes, link: Callable[[str], Link]) -> None:
        self._sizes, self._link = sizes, link
        amounts = [sizes.amount(shard) for shard in range(len(cluster.servers))]
        self.servers = [
            _Server(model, (messages + 1, size + sizes.message), (messages, size), sizes.message)
            for model, (size, messages) in zip(cluster.servers, amounts, strict=True)
        ]
        self.events = 0
        self._hosts = [server.host for server in self.servers]
        self.network = Network(SimulationEngine(), link, self._hosts)
        self._bandwidth = link(self._hosts[0]).bandwidth
        # Largest rate of each worker at the server's port; None if its transfers do not use the port.
        self._limits = [self._limit(worker.host) for worker in cluster.workers]
        limited = Counter(
            worker.host for worker, limit in zip(cluster.workers, self._limits, strict=True) if limit is not None
        )
        self._in_one_go = len(self.servers) == 1 and max(limited.values(), default=1) == 1
        self._groups: dict[RoundwiseWorker, RoundwiseHostGroup] = {}

    def ways(self, host: str) -> list[Route]:
        """Return the routes from a host to the servers."""
        network, message = self.network, self._sizes.message
        ways = []
        for server in self._hosts:
            latency = network.latency(host, server)
            ways.append(Route(latency, 2 * latency + network.carrying(host, server, message)))
        return ways

    def exchange_as_one(self, groups: Iterable[RoundwiseHostGroup]) -> None:
        """Let the workers of each group exchange as one from now on."""
        self._groups = {member: group for group in groups for member in group.members}
        self._in_one_go = self._in_one_go or bool(self._groups and len(self.servers) == 1)

    def push(self, ready: Sequence[RoundwiseWorker]) -> float:
        """Send the payloads, each of which leaves when its worker's exchange begins.

        Sets for each worker its waiting time, and when it learns that its payload was used.

        Args:
            ready: all workers, in the order in which their exchanges begin.

        Returns:
            The time at which the first server has ended the round.

        Raises:
            OverlappingRoundsError: a payload arrives before the last request for the model of the
                round before.
        """
        servers = self.servers
        handled: list[list[float]] = [[0.0] * len(ready) for _ in servers]
        ended = [0.0] * len(servers)
        used = 0.0
        for arrived, shard, worker in self._pushed(self._carriers(ready)):
            used = ended[shard] = handled[shard][worker.rank] = servers[shard].push(arrived)
        for worker in ready:
            worker.wait = worker.noticed = 0.0
            for shard, server in enumerate(servers):
                waited = ended[shard] - handled[shard][worker.carrier.rank]
                if waited > worker.wait:
                    worker.wait = waited
                noticed, polls = noticed_at(worker.sent, used, worker.ways[shard].round_trip)
                if noticed > worker.noticed:
                    worker.noticed = noticed
                server.polls += polls
                worker.polls += polls
            worker.wait += worker.held
        return ended[0]

    def pull(self, noticed: Sequence[RoundwiseWorker], last: bool = False) -> list[Arrival]:
        """Send the model when each worker's request has been handled, and return its arrivals.

        Args:
            noticed: all workers; those with equal times are served in this order.
            last: whether the workers leave when they have the model.
        """
        fetching = self._fetchers(noticed)
        if not self._in_one_go:
            return self._pull_by_events(fetching, last)
        server = self.servers[0]
        free, entries = server.free, []
        requests = ((worker.noticed + worker.ways[0].latency, worker) for worker in fetching)
        for request, worker in sorted(requests, key=_TIME):
            entries.append((server.pull(request) + worker.ways[0].latency, worker))
        arrivals = self._through(entries, server.model_size)
        if self._groups:
            handed_out = chain.from_iterable(self._handed_out([arrived], worker) for arrived, worker in arrivals)
            arrivals = sorted(handed_out, key=_TIME)
        if last and min(arrived + worker.ways[0].latency for arrived, worker in arrivals) <= server.last_request:
            server.free = free  # a goodbye may delay a request
            return self._pull_by_events(fetching, last)
        return arrivals

    # --- groups -----------------------------------------------------------------------------------

    def _carriers(self, ready: Sequence[RoundwiseWorker]) -> Sequence[RoundwiseWorker]:
        """Return the workers that send payloads."""
        alone = [worker for worker in ready if worker not in self._groups] if self._groups else ready
        for worker in alone:
            worker.sent = worker.begun
            worker.carried += 1
        groups = dict.fromkeys(self._groups.values())
        return sorted([*alone, *(group.gather() for group in groups)], key=_SENT) if groups else alone

    def _fetchers(self, noticed: Sequence[RoundwiseWorker]) -> Sequence[RoundwiseWorker]:
        """Return the workers that fetch the model, in the order in which they are given."""
        if self._groups:
            groups = dict.fromkeys(self._groups.values())
            chosen = {group.fetcher() for group in groups}
            noticed = [worker for worker in noticed if worker not in self._groups or worker in chosen]
        for worker in noticed:
            worker.fetched += 1
        return noticed

    def _handed_out(self, arrived: Sequence[float], fetcher: RoundwiseWorker) -> Sequence[Arrival]:
        """Return when the model that a worker has fetched is available to each member of its group.

        Args:
            arrived: when each server's part has reached the worker.
            fetcher: the worker.
        """
        group = self._groups.get(fetcher)
        return [(max(arrived), fetcher)] if group is None else group.hand_out(arrived)

    # --- in one pass ------------------------------------------------------------------------------

    def _limit(self, host: str) -> float | None:
        bandwidth = self._link(host).bandwidth
        return None if host == self._hosts[0] or bandwidth == self._bandwidth == math.inf else bandwidth

    def _through(self, entries: Iterable[Arrival], size: float) -> list[Arrival]:
        """Return the transfers that pass the server's port, or bypass it, in order of arrival."""
        past: list[Arrival] = []
        shared: list[tuple[float, float, RoundwiseWorker]] = []
        for time, worker in sorted(entries, key=_TIME):
            limit = self._limits[worker.rank]
            if limit is None:
                past.append((time, worker))
            else:
                shared.append((time, limit, worker))
        through = carry(self._bandwidth, size, shared) if shared else []
        return sorted(past + through, key=_TIME) if past and through else past or through

    # --- by events --------------------------------------------------------------------------------

    def _pushed(self, carriers: Sequence[RoundwiseWorker]) -> list[tuple[float, int, RoundwiseWorker]]:
        """Return time, server and worker of each payload's arrival, in order of time."""
        if self._in_one_go:
            entries = ((worker.sent + worker.ways[0].latency, worker) for worker in carriers)
            return [(time, 0, worker) for time, worker in self._through(entries, self.servers[0].payload_size)]
        engine, network = self._event_by_event()
        arrivals: list[tuple[float, int, RoundwiseWorker]] = []
        for worker in carriers:
            host = worker.sums.worker.host
            for shard, server in enumerate(self.servers):

                def arrive(shard: int = shard, worker: RoundwiseWorker = worker) -> None:
                    arrivals.append((engine.time, shard, worker))

                network.send(host, server.host, server.payload_size, arrive, at=worker.sent)
        self._run(engine)
        return arrivals

    def _pull_by_events(self, fetching: Sequence[RoundwiseWorker], last: bool) -> list[Arrival]:
        engine, network = self._event_by_event()
        shards = [shard for shard, server in enumerate(self.servers) if server.model_size]  # with a part of the model
        arrived = {worker.rank: dict.fromkeys(shards, math.inf) for worker in fetching}
        arrivals: list[Arrival] = []

        def hand_out(shard: int, worker: RoundwiseWorker) -> None:
            server = self.servers[shard]
            host, at = worker.sums.worker.host, server.pull(engine.time)
            network.send(server.host, host, server.model_size, lambda: arrive(shard, worker), at=at)

        def arrive(shard: int, worker: RoundwiseWorker) -> None:
            times = arrived[worker.rank]
            times[shard] = engine.time
            if math.inf not in times.values():
                for time, member in self._handed_out(
                    [times.get(shard, 0.0) for shard in range(len(self.servers))], worker
                ):
                    arrivals.append((time, member))
                    if last:
                        engine.call_at(time, leave, member)

        def leave(worker: RoundwiseWorker) -> None:
            for server in self.servers:
                on_goodbye = lambda server=server: server.leave(engine.time)  # noqa: E731
                network.send(worker.sums.worker.host, server.host, server.message, on_goodbye)

        for worker in fetching:
            for shard in shards:
                engine.call_at(worker.noticed + worker.ways[shard].latency, hand_out, shard, worker)
        self._run(engine)
        return sorted(arrivals, key=_TIME)

    def _event_by_event(self) -> tuple[SimulationEngine, Network]:
        """Return a new engine and network for one step of one exchange, with nothing in transit."""
        engine = SimulationEngine()
        return engine, Network(engine, self._link, self._hosts)

    def _run(self, engine: SimulationEngine) -> None:
        engine.run()
        self.events += engine.events
