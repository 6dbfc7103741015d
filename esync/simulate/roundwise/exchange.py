"""Exchange of one round: all payloads to the parameter servers, the new model to all workers.

With one server, whose port the workers share from hosts of their own, both are computed in one
pass. Otherwise they are simulated event by event over the modelled network.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter

from ..cluster import ClusterModel
from ..engine import SimulationEngine
from ..network import Link, Network
from ..servers import ServerModel, Sizes
from ..store import noticed_at
from .sharing import carry
from .worker import RoundwiseWorker, Route

_TIME = itemgetter(0)
#: Time at which something arrives, and the worker that it comes from or goes to.
Arrival = tuple[float, RoundwiseWorker]


class OverlappingRoundsError(Exception):
    """Raised when messages of two rounds wait for one another on a server.

    Rounds cannot be computed one after the other then.
    """


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
        free: when it will have handled everything that has reached it so far.
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
        """Take a payload that has arrived; return the time at which it will have been handled."""
        if arrived <= self.last_request:
            if self._push_cost + self._pull_cost:
                raise OverlappingRoundsError
            return arrived  # handling costs nothing: it need not wait for the requests that come after it
        return self._occupy(arrived, self._push_cost)

    def pull(self, arrived: float) -> float:
        """Take a request that has arrived; return the time at which the model is sent."""
        self.last_request = arrived
        return self._occupy(arrived, self._pull_cost)

    def leave(self, arrived: float) -> None:
        """Take the goodbye of a worker."""
        self._occupy(arrived, self._leave_cost)

    def busy(self, workers: int, rounds: int) -> float:
        """Return the seconds that it spends on the messages of a whole run."""
        once = self._pull_cost + self._leave_cost  # the initial model, and the goodbye
        return workers * (rounds * (self._push_cost + self._pull_cost) + once)

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
        # Bytes per second that each worker can use of the server's port; None if its transfers use
        # none of it.
        self._limits = [self._limit(worker.host) for worker in cluster.workers]
        limited = Counter(
            worker.host for worker, limit in zip(cluster.workers, self._limits, strict=True) if limit is not None
        )
        self._in_one_go = len(self.servers) == 1 and max(limited.values(), default=1) == 1

    def ways(self, host: str) -> list[Route]:
        """Return the routes from a host to the servers."""
        network, message = self.network, self._sizes.message
        ways = []
        for server in self._hosts:
            latency = network.latency(host, server)
            ways.append(Route(latency, 2 * latency + network.carrying(host, server, message)))
        return ways

    def push(self, ready: Sequence[RoundwiseWorker]) -> float:
        """Send the payloads, each of which leaves when its worker's exchange begins.

        Notes for each worker how long it waits, and when it notices that its payload was used.

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
        for arrived, shard, worker in self._pushed(ready):
            used = ended[shard] = handled[shard][worker.rank] = servers[shard].push(arrived)
        for worker in ready:
            worker.wait = worker.noticed = 0.0
            for shard, server in enumerate(servers):
                waited = ended[shard] - handled[shard][worker.rank]
                if waited > worker.wait:
                    worker.wait = waited
                noticed, polls = noticed_at(worker.begun, used, worker.ways[shard].round_trip)
                if noticed > worker.noticed:
                    worker.noticed = noticed
                server.polls += polls
                worker.polls += polls
        return ended[0]

    def pull(self, noticed: Sequence[RoundwiseWorker], last: bool = False) -> list[Arrival]:
        """Send the model when each worker's request has been handled, and return its arrivals.

        Args:
            noticed: all workers; those with equal times are served in this order.
            last: whether the workers leave when they have the model.
        """
        if not self._in_one_go:
            return self._pull_by_events(noticed, last)
        server = self.servers[0]
        free, entries = server.free, []
        for asked, worker in sorted(((each.noticed + each.ways[0].latency, each) for each in noticed), key=_TIME):
            entries.append((server.pull(asked) + worker.ways[0].latency, worker))
        arrivals = self._through(entries, server.model_size)
        if last and min(arrived + worker.ways[0].latency for arrived, worker in arrivals) <= server.last_request:
            server.free = free  # a goodbye may delay a request
            return self._pull_by_events(noticed, last)
        return arrivals

    # --- in one go --------------------------------------------------------------------------------

    def _limit(self, host: str) -> float | None:
        own = self._link(host).bandwidth
        return None if host == self._hosts[0] or own == self._bandwidth == math.inf else own

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

    def _pushed(self, ready: Sequence[RoundwiseWorker]) -> list[tuple[float, int, RoundwiseWorker]]:
        """Return when each payload arrives, at which server, and whose it is, in order of time."""
        if self._in_one_go:
            entries = ((worker.begun + worker.ways[0].latency, worker) for worker in ready)
            return [(time, 0, worker) for time, worker in self._through(entries, self.servers[0].payload_size)]
        engine, network = self._event_by_event()
        arrivals: list[tuple[float, int, RoundwiseWorker]] = []
        for worker in ready:
            host = worker.sums.worker.host
            for shard, server in enumerate(self.servers):

                def arrive(shard: int = shard, worker: RoundwiseWorker = worker) -> None:
                    arrivals.append((engine.time, shard, worker))

                network.send(host, server.host, server.payload_size, arrive, at=worker.begun)
        self._run(engine)
        return arrivals

    def _pull_by_events(self, noticed: Sequence[RoundwiseWorker], last: bool) -> list[Arrival]:
        engine, network = self._event_by_event()
        asked = [shard for shard, server in enumerate(self.servers) if server.model_size]  # the others hold nothing
        missing = [len(asked)] * len(noticed)
        arrivals: list[Arrival] = []

        def hand_out(server: _Server, worker: RoundwiseWorker) -> None:
            host, at = worker.sums.worker.host, server.pull(engine.time)
            network.send(server.host, host, server.model_size, lambda: arrive(worker), at=at)

        def arrive(worker: RoundwiseWorker) -> None:
            missing[worker.rank] -= 1
            if not missing[worker.rank]:
                arrivals.append((engine.time, worker))
                if last:
                    leave(worker)

        def leave(worker: RoundwiseWorker) -> None:
            for server in self.servers:
                gone = lambda server=server: server.leave(engine.time)  # noqa: E731
                network.send(worker.sums.worker.host, server.host, server.message, gone)

        for worker in noticed:
            for shard in asked:
                engine.call_at(worker.noticed + worker.ways[shard].latency, hand_out, self.servers[shard], worker)
        self._run(engine)
        return arrivals

    def _event_by_event(self) -> tuple[SimulationEngine, Network]:
        """Return a new engine and network for one step of one exchange, with nothing in transit."""
        engine = SimulationEngine()
        return engine, Network(engine, self._link, self._hosts)

    def _run(self, engine: SimulationEngine) -> None:
        engine.run()
        self.events += engine.events
