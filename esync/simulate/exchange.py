"""The exchange in virtual time: the wire protocol's steps, over the modelled network, to the real parameter servers."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from .. import config
from ..exchange import (
    NO_OFFERS,
    WEIGHTS,
    Exchange,
    ExchangeError,
    JobAbortedError,
    Model,
    Payload,
    Result,
    SlotLostError,
    Source,
    Specification,
)
from ..exchange.keystores.pending import LONGEST_PAUSE
from ..exchange.protocol import wire
from ..exchange.protocol.greeting import Greeting
from ..exchange.protocol.layout import Bucket, Layout
from ..exchange.protocol.ledger import Limits
from ..exchange.protocol.resumption import Offers
from ..exchange.protocol.takeover import exchanges_behind, in_round
from ..straggle import NETWORK, Straggler
from .pending import Delivery, HiddenExchange, PendingExchange
from .pulling import Pull
from .servers import Push, ServerNode, Sizes, modelled
from .serverside import ServerSide

#: A message with nothing in it: here the fields of wire.MESSAGE need not be packed.
_BLANK: dict[str, Any] = {name: b"" if name == "text" else 0 for name in wire.MESSAGE.names or ()}


class SimulatedExchange(Exchange):
    """One worker's exchange.

    Args:
        specification: which rules the servers run, and how.
        side: the other side.
        host: where this worker runs.
        rank: its slot.
        owner: to whom its transfers belong, see `network.Transfer`.
        straggler: tells how much later its messages leave; None: they never do.
    """

    def __init__(
        self,
        specification: Specification,
        side: ServerSide,
        host: str,
        rank: int,
        owner: object,
        straggler: Straggler | None = None,
    ) -> None:
        self.specification, self.side, self.host, self.owner = specification, side, host, owner
        self._straggler = straggler
        self.rank, self.workers = rank, side.slots
        self.replacement, self.exchanges = False, 0
        self.job, self.resume_at = 0, -1  # no checkpoints are written here
        self.sequence = 0
        side.nonces += 1
        self.nonce = side.nonces
        self.sent = self.received = 0.0
        self.polls = 0
        self._closed = False

    # --- beginning ----------------------------------------------------------------------------------------------

    def join(
        self,
        sizes: Mapping[str, int],
        limits: Limits,
        agreement: dict[str, Any],
        offers: Offers = NO_OFFERS,
    ) -> None:
        """See `Exchange.join`."""
        side = self.side
        side.engine.settle()
        greeting = Greeting(
            rank=self.rank,
            nonce=self.nonce,
            slots=self.workers,
            sizes=sizes,
            servers=len(side.nodes),
            bucket_elements=side.bucket_elements,
            specification=self.specification,
            limits=limits,
            agreement=agreement,
        )
        self.layout = greeting.layout()
        if side.sizes is None:
            real = Layout(modelled(side.model, sizes), len(side.nodes), side.bucket_elements)
            side.sizes = Sizes.of(real, side.slots)
        self.sizes = side.sizes
        for node in side.nodes:
            node.greet(greeting)
        self.check()
        self.replacement = bool(side.nodes[0].ledger.arrivals[self.rank] > 1)
        synchronous = side.nodes[0].ledger.synchronous
        if self.replacement and synchronous:
            self._fall_in()
        acknowledged = [int(node.ledger.acknowledged[self.rank]) for node in side.nodes]
        rounds = [node.ledger.round for node in side.nodes]
        self.exchanges = self.sequence = exchanges_behind(acknowledged, rounds, synchronous)

    def begin(self, vectors: Mapping[str, Source], model: Model) -> Result:
        """See `Exchange.begin`."""
        side = self.side
        if self.rank == 0 and 0 not in side.here:  # also where the first holder of this slot has died before this
            self._keep(vectors, lambda _: 0)
        side.here.add(self.rank)
        if len(side.here) == side.slots and not side.everyone_here.triggered:
            side.everyone_here.succeed()
        side.engine.wait(side.everyone_here, "all workers to come")
        self.check()
        pull = Pull(self, lambda _: 0, vectors, side.engine.waker("the initial model"))
        pull.begin(side.engine.now)
        side.engine.pause()
        pull.write(model)
        if self.specification.private:
            self._keep({WEIGHTS: vectors[WEIGHTS]}, self.channel)
        return Result(**self.standing(min(side.nodes, key=lambda node: node.ledger.round)), wait=0.0, transfer=0.0)

    def _keep(self, vectors: Mapping[str, Source], channel: Callable[[str], int]) -> None:
        """Give the servers these values: the first push of a key is kept, the second one shows where."""
        for _ in range(2):
            for bucket, values in self._buckets(wire.NOTHING, vectors):
                self.side.nodes[bucket.shard].take([(self.layout.key(bucket, channel(bucket.vector)), values)])

    def _fall_in(self) -> None:
        """What the dead worker has committed everywhere counts, so the round that it is part of has to end first."""
        engine, nodes = self.side.engine, self.side.nodes
        given_up = engine.now + config.ROUND_TIMEOUT
        while in_round(
            [int(node.ledger.acknowledged[self.rank]) for node in nodes],
            [self.rank in node.ledger.pending for node in nodes],
        ):
            engine.pass_time(LONGEST_PAUSE)
            engine.settle()
            self.check()
            if engine.now > given_up:
                raise ExchangeError("gave up waiting for the end of the round that the dead worker has committed in")

    # --- exchanging ---------------------------------------------------------------------------------------------

    def start(self, payload: Payload, model: Model) -> "PendingExchange":
        """Send the payload and its commit; see `Exchange.start`."""
        side, engine = self.side, self.side.engine
        self.sequence += 1
        begun = engine.now
        engine.pass_time(self.held(begun))
        pushes = self._pushes(payload)
        if side.watch is not None:
            side.watch(self, payload)
        kind = HiddenExchange if self.specification.overlap else PendingExchange
        pending = kind(self, model, payload.returned, self.sequence, begun, engine.now)
        side.waiting[self.rank] = pending
        for node in side.nodes:
            message = self._message(
                wire.COMMIT,
                buckets=len(pushes[node.shard]),
                **payload.terms,
            )
            size, messages = self._amount(node, payload.vectors, pushes[node.shard])
            self._send(node, size, messages + 1, Delivery(self, node, pushes[node.shard], message))
        return pending

    def heartbeat(self) -> None:
        """Servers wait for silent workers here, so nobody has to say that he is alive."""

    def stop(self) -> None:
        """See `Exchange.stop`; server 0 decides when the run ends."""
        self.side.engine.settle()
        self._tell(self.side.nodes[0], wire.STOP)

    def abort(self, reason: str) -> None:
        """See `Exchange.abort`."""
        self.side.engine.settle()
        for node in self.side.nodes:
            self._tell(node, wire.ABORT, text=wire.encode_text(reason))

    def close(self) -> None:
        """Say goodbye."""
        if not self._closed:
            self._closed = True
            self.side.engine.settle()
            for node in self.side.nodes:
                self._tell(node, wire.DONE if self.side.nodes[0].ledger.finished else wire.LEAVE)

    # --- what PendingExchange uses ------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise JobAbortedError where the run has failed, SlotLostError where another worker has this slot now."""
        for node in self.side.nodes:
            if node.ledger.failure:
                raise JobAbortedError(node.ledger.failure)
            if node.ledger.nonce[self.rank] != self.nonce:
                raise SlotLostError(f"another process has taken over the slot of worker {self.rank}")

    def standing(self, node: ServerNode) -> dict[str, Any]:
        """How things stand on a server right now: a result without its times."""
        ledger = node.ledger
        return {
            "round": ledger.round,
            "version": ledger.version,
            "samples": ledger.samples,
            "finished": ledger.finished,
            "used": bool(ledger.used[self.rank]),
            "elapsed": ledger.elapsed,
            "step": ledger.step,
            "synchronous": ledger.synchronous,
            "fastest": ledger.fastest,
            "samples_together": ledger.samples_together,
            "apart": self._apart(),
            "members": self.side.everyone
            if np.count_nonzero(ledger.member) == ledger.slots
            else tuple(np.flatnonzero(ledger.member).tolist()),
        }

    def _apart(self) -> tuple[int, ...]:
        """The ranks that rounds do not wait for, on some server at least."""
        ledgers = [node.ledger for node in self.side.nodes]
        if not any(ledger.apart.any() for ledger in ledgers):
            return ()
        return tuple(np.flatnonzero(np.any([ledger.apart for ledger in ledgers], axis=0)).tolist())

    def channel(self, vector: str) -> int:
        """The channel in which this worker sends and gets a vector."""
        return self.specification.channel(vector, self.rank)

    def pull(self, vectors: Collection[str], wake: Callable[[Any], None]) -> Pull:
        """A pull of vectors of this worker's model that has not begun yet."""
        return Pull(self, self.channel, vectors, wake)

    def held(self, at: float) -> float:
        """Seconds by which what this worker sends at that time leaves later."""
        return 0.0 if self._straggler is None else self._straggler.delay(NETWORK, at)

    def round_trip(self, node: ServerNode) -> float:
        """Seconds of a look at the status of a server."""
        network = self.side.network
        return 2 * network.latency(self.host, node.model.host) + network.carrying(
            self.host, node.model.host, self.sizes.message
        )

    def polled(self, node: ServerNode, times: int) -> None:
        """The status of a server has been looked at so often."""
        self.say_bytes(node, times * self.sizes.question)
        self.received += times * self.sizes.message
        self.polls += times
        self.side.network.count(node.model.host, self.host, times * self.sizes.message)

    def say_bytes(self, node: ServerNode, size: float) -> None:
        """Count bytes to a server that take no bandwidth from others."""
        self.sent += size
        self.side.network.count(self.host, node.model.host, size)

    @property
    def carried(self) -> list[Bucket]:
        """The buckets whose values go over the wire; none where only their bytes do."""
        return self.layout.buckets if self.side.model is None else []

    # --- helpers ------------------------------------------------------------------------------------------------

    def _pushes(self, payload: Payload) -> list[list[Push]]:
        """What a payload consists of, for each server; nothing where only bytes go over the wire."""
        pushes: list[list[Push]] = [[] for _ in self.side.nodes]
        for bucket, values in self._buckets(wire.PAYLOAD, payload.vectors):
            pushes[bucket.shard].append((self.layout.key(bucket, self.channel(bucket.vector)), values))
        return pushes

    def _amount(self, node: ServerNode, vectors: Collection[str], pushes: list[Push]) -> tuple[float, int]:
        """Bytes and messages of a payload to a server, without its commit."""
        return self.sizes.amount(node.shard, vectors)

    def _buckets(self, kind: int, vectors: Mapping[str, Source]) -> list[tuple[Bucket, np.ndarray]]:
        """The buckets of a payload as they go over the wire."""
        buckets = []
        for bucket in self.carried:
            if bucket.vector in vectors:
                array = np.empty(wire.HEADER_ELEMENTS + bucket.stop - bucket.start, np.float32)
                array[: wire.HEADER_ELEMENTS] = 0
                wire.stamp(array, kind, self.rank, self.nonce, self.sequence, bucket.index)
                vectors[bucket.vector].read(bucket.start, bucket.stop, array[wire.HEADER_ELEMENTS :])
                buckets.append((bucket, array))
        return buckets

    def _message(self, kind: int, **fields: Any) -> Any:
        own = {"kind": kind, "rank": self.rank, "nonce": self.nonce, "sequence": self.sequence}
        return {**_BLANK, **own, **fields}

    def _tell(self, node: ServerNode, kind: int, **fields: Any) -> None:
        self._send(node, 0.0, 1, Delivery(self, node, [], self._message(kind, **fields)))

    def _send(self, node: ServerNode, size: float, messages: int, delivery: "Delivery") -> None:
        total = size + self.sizes.message
        self.sent += total
        arrive = lambda: node.occupy(messages, total, delivery.handle)  # noqa: E731
        self.side.network.send(self.host, node.model.host, total, arrive, self.owner)
