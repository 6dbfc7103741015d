"""The worker's side of the wire protocol on MXNet's key store.

An exchange pushes the whole payload bucket by bucket, then its commit, then asks for the status until the servers have
used it, and only then pulls the model. Receiving happens in the memory that was sent from, so one buffer of the model's
size is all it takes.
"""

import logging
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import config
from ...engine import mx
from ...environment import Cluster
from ...rules import STATE_VECTORS
from ...watchdog import Watchdog
from ..base import NO_OFFERS, Exchange, Model, Payload, Result, Source
from ..protocol import wire
from ..protocol.greeting import Greeting, Resumed
from ..protocol.layout import WEIGHTS
from ..protocol.ledger import Limits
from ..protocol.resumption import Offers, Progress
from ..protocol.specification import Specification
from ..protocol.takeover import exchanges_behind, in_round
from .buckets import Buckets
from .line import Line
from .mailboxes import Mailboxes
from .pending import LONGEST_PAUSE, PendingExchange

if TYPE_CHECKING:
    from .hidden import HiddenExchange


log = logging.getLogger(__name__)


class KVStoreExchange(Exchange):
    """The exchange over MXNet's parameter servers.

    Args:
        specification: which rules the servers run, and how.
        cluster: where the scheduler is, and how many processes of each role there are.
        watchdog: speaks up when something takes long.
        start_timeout: seconds to wait for the other processes of the cluster to appear.
        round_timeout: seconds to wait for the servers and the other workers in one exchange.
        lease: seconds of silence after which the servers go on without a worker; infinite: they wait for it, or for
            its replacement.
        hold: called before a payload, a poll or the request for a model leaves; may wait.
    """

    def __init__(
        self,
        specification: Specification,
        cluster: Cluster,
        watchdog: Watchdog,
        start_timeout: float = config.START_TIMEOUT,
        round_timeout: float = config.ROUND_TIMEOUT,
        lease: float = math.inf,
        hold: Callable[[], None] = lambda: None,
    ) -> None:
        self._specification = specification
        self.line = Line(cluster, watchdog, start_timeout, round_timeout, lease, hold)
        self.rank, self.workers = self.line.rank, self.line.workers
        self.exchanges = 0
        self.replacement = False
        self.job, self.resume_at = 0, -1
        self._hidden: HiddenExchange | None = None
        self._over = False

    def join(
        self,
        sizes: Mapping[str, int],
        limits: Limits,
        agreement: dict[str, Any],
        offers: Offers = NO_OFFERS,
    ) -> None:
        """See `Exchange.join`."""
        specification, line = self._specification, self.line
        greeting = Greeting(
            rank=self.rank,
            nonce=line.nonce,
            slots=self.workers,
            sizes=sizes,
            servers=line.servers,
            bucket_elements=config.BUCKET_ELEMENTS,
            specification=specification,
            limits=limits,
            agreement=agreement,
            lease=line.lease,
            address=line.address,
            offers=offers,
        )
        self._layout = greeting.layout()
        if specification.overlap:
            from .hidden import Parcel

            self._parcel = Parcel(sizes)
        self._buckets = Buckets(line, self._layout)
        self._mailboxes = Mailboxes(line, self._layout, STATE_VECTORS.get(specification.rule, 0))
        statuses = self._greet(greeting)
        if notice := bytes(statuses[0]["text"]).decode():
            log.warning("%s", notice)
        self.replacement = bool(statuses[0]["arrivals"][self.rank] > 1)
        synchronous = bool(statuses[0]["synchronous"])
        if self.replacement and synchronous:
            statuses = self._fall_in(greeting, statuses)
        acknowledged = [int(status["acknowledged"][self.rank]) for status in statuses]
        rounds = [int(status["round"]) for status in statuses]
        self.exchanges = line.sequence = exchanges_behind(acknowledged, rounds, synchronous)
        self.job, self.resume_at = int(statuses[0]["job"]), int(statuses[0]["resume_at"])

    def begin(self, vectors: Mapping[str, Source], model: Model) -> Result:
        """See `Exchange.begin`."""
        with self.line.patience("the model from"):
            for bucket in self._layout.buckets:
                self._buckets.fill(bucket, wire.NOTHING, vectors[bucket.vector])
            self._buckets.init(channel=0)
            if self.line.store.rank == 0:
                self._buckets.push_all(channel=0)  # shows the servers where the shared model is stored
                mx.nd.waitall()
            self._buckets.pull(model, self._layout.sizes, lambda _: 0)
            if self._specification.private:
                self._buckets.open_channel(self._channel(WEIGHTS))
        return self.report(sorted(self.line.statuses(), key=lambda status: int(status["round"])), 0.0, 0.0)

    def start(self, payload: Payload, model: Model) -> "PendingExchange":
        """Push the payload and its commit; see `Exchange.start`."""
        begun = time.perf_counter()
        self.line.hold()
        self.line.sequence += 1
        pushed = [0] * self.line.servers
        for shard in self._push(payload):
            pushed[shard] += 1
        for shard in range(self.line.servers):
            self.line.say_to(
                shard,
                wire.COMMIT,
                buckets=pushed[shard],
                **payload.terms,
            )
        if self._specification.overlap:
            from .hidden import HiddenExchange

            self._hidden = HiddenExchange(self, model, payload.returned, begun, self._parcel)
            return self._hidden
        return PendingExchange(self, model, payload.returned, begun)

    def heartbeat(self) -> None:
        """See `Exchange.heartbeat`."""
        self.line.heartbeat()

    def stop(self) -> None:
        """See `Exchange.stop`; server 0 decides when the run ends."""
        self.line.say_to(0, wire.STOP)

    def abort(self, reason: str) -> None:
        """See `Exchange.abort`; returns when the servers know."""
        self._cancel()
        with self.line.patience("the bad news to"):
            self.line.say(wire.ABORT, text=reason)
            mx.nd.waitall()

    def close(self) -> None:
        """Say goodbye and let go of the key store; does not wait for the other workers."""
        self._cancel()
        self.line.close(self._over)

    # --- checkpoints ------------------------------------------------------------------------------------------------

    def resume(self, progress: Progress) -> None:
        """See `Exchange.resume`."""
        self.exchanges = self.line.sequence = progress.exchanges
        resumed = Resumed(self.rank, self.line.nonce, progress.exchanges, progress.books)
        with self.line.patience("the checkpoint's books to"):
            self.line.command(resumed.encode())
        self._mailboxes.put(progress.state)

    def rule_state(self) -> list[np.ndarray | None]:
        """See `Exchange.rule_state`; one bucket after the other, through the servers' mailboxes."""
        return self._mailboxes.fetch()

    def version(self) -> int:
        """See `Exchange.version`."""
        return int(self.line.status(0)["version"])

    # --- what PendingExchange uses -----------------------------------------------------------------------------

    def report(self, statuses: Sequence[Any], wait: float, transfer: float) -> Result:
        """What the statuses say, as a result: the first of them (of server 0, which decides when the run ends).

        A worker is apart as long as one of them says so: only when no server does any more, all have ended the round
        after which it is waited for again.
        """
        status = statuses[0]
        apart = np.any([each["apart"] for each in statuses], axis=0)
        stop_at, round_ = int(status["stop_at"]), int(status["round"])
        self._over = 0 <= stop_at <= round_
        return Result(
            round=round_,
            version=int(status["version"]),
            samples=int(status["samples"]),
            wait=wait,
            transfer=transfer,
            finished=self._over,
            used=bool(status["used"][self.rank]),
            elapsed=float(status["elapsed"]),
            members=tuple(np.flatnonzero(status["member"]).tolist()),
            step=int(status["step"]),
            synchronous=bool(status["synchronous"]),
            fastest=float(status["fastest"]),
            samples_together=int(status["samples_together"]),
            apart=tuple(np.flatnonzero(apart).tolist()),
        )

    def pull(self, model: Model, vectors: Collection[str]) -> None:
        """Pull these vectors of this worker's model."""
        self.line.hold()
        with self.line.patience("the model from"):
            self._buckets.pull(model, vectors, self._channel)

    # --- helpers ---------------------------------------------------------------------------------------------------

    def _push(self, payload: Payload) -> Iterator[int]:
        """Push a payload bucket by bucket; the server of each."""
        for bucket in self._layout.buckets:
            if bucket.vector in payload.vectors:
                self._buckets.fill(bucket, wire.PAYLOAD, payload.vectors[bucket.vector])
                self._buckets.push(bucket, self._channel(bucket.vector))
                yield bucket.shard

    def _cancel(self) -> None:
        """Nobody is interested in an exchange under way any more."""
        if self._hidden is not None:
            self._hidden.cancel()
            self._hidden = None

    def _channel(self, vector: str) -> int:
        return self._specification.channel(vector, self.rank)

    def _greet(self, greeting: Greeting) -> list[Any]:
        return self.line.greet(greeting.encode(), self._mailboxes.open)

    def _fall_in(self, greeting: Greeting, statuses: list[Any]) -> list[Any]:
        """Join the rounds of a running job; the servers' statuses then.

        What the dead worker has committed everywhere counts, so the round that it is part of has to end first. Servers
        that go on without dead workers may have counted this one in from different rounds on: then it steps back and
        tries again.
        """
        with self.line.patience("the end of the round that the dead worker has committed in at", "") as wait:
            while True:
                acknowledged = [int(status["acknowledged"][self.rank]) for status in statuses]
                if in_round(acknowledged, [bool(status["committed"][self.rank]) for status in statuses]):
                    time.sleep(LONGEST_PAUSE)
                    self.line.heartbeat()
                    statuses = self.line.statuses()
                elif self.line.lease < math.inf and len({int(status["round"]) for status in statuses}) > 1:
                    self.line.command(replace(greeting, aside=True).encode())
                    time.sleep(LONGEST_PAUSE)
                    statuses = self._greet(greeting)
                else:
                    return statuses
                wait.check()
