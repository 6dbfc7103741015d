"""The worker's side of the wire protocol on MXNet's key store.

An exchange pushes the whole payload bucket by bucket, then its commit, then asks for the status until the servers have
used it, and only then pulls the model. Receiving happens in the memory that was sent from, so one buffer of the model's
size is all it takes.
"""

import ctypes
import math
import os
import secrets
import time
from dataclasses import replace
from typing import Any

import numpy as np

from .. import config
from ..engine import mx
from ..environment import SLOT_VARIABLE, Cluster
from ..memory import host_view
from ..rules import STATE_VECTORS
from ..watchdog import Watchdog
from . import NO_OFFERS, Exchange, JobAbortedError, Model, Payload, Result, Service, SlotLostError, Source, wire
from .greeting import COMMAND, Greeting, Resumed
from .layout import Bucket
from .ledger import Limits
from .peers import Peers, own_address
from .pending import LONGEST_PAUSE, PendingExchange
from .resumption import Offers, Progress


class KVStoreExchange(Exchange):
    """The exchange over MXNet's parameter servers.

    Args:
        service: which rule the servers run, and how.
        cluster: where the scheduler is, and how many processes of each role there are.
        watchdog: speaks up when something takes long.
        start_timeout: seconds to wait for the other processes of the cluster to appear.
        round_timeout: seconds to wait for the servers and the other workers in one exchange.
        lease: seconds of silence after which the servers go on without a worker; infinite: they wait for it, or for
            its replacement.
    """

    def __init__(
        self,
        service: Service,
        cluster: Cluster,
        watchdog: Watchdog,
        start_timeout: float = config.START_TIMEOUT,
        round_timeout: float = config.ROUND_TIMEOUT,
        lease: float = math.inf,
    ) -> None:
        self._service = service
        self._lease = lease
        self._watchdog = watchdog
        self._round_timeout = round_timeout
        # Buckets are this project's own way of cutting arrays; MXNet must not split them once more.
        os.environ["MXNET_KVSTORE_BIGARRAY_BOUND"] = str(2**31 - 1)
        with watchdog.waiting(cluster.everyone, start_timeout, Cluster.ADVICE):
            self._kv = mx.kv.create("dist_async")
        self.workers: int = self._kv.num_workers
        # A newcomer has a new rank in MXNet (see rendezvous.roster), which leads to the slot that it takes over; where
        # several workers have died, only who has started it knows which of them it stands for.
        slot = os.environ.get(SLOT_VARIABLE) if self._kv.rank >= self.workers else None
        self.rank: int = int(slot or self._kv.rank) % self.workers
        self.servers = cluster.servers
        self._peers = Peers((cluster.address, cluster.port), cluster.servers)
        self._peers.start()
        self._met = False
        self._spoke = 0.0
        self._nonce = secrets.randbits(62) + 1
        self._sequence = 0
        self.exchanges = 0
        self.replacement = False
        self.job, self.resume_at = 0, -1
        self._mailboxes: list[Any] = []
        self._message_elements = wire.message_elements(self.workers)
        self._status_type = wire.status_type(self.workers)
        self._status_array = mx.nd.zeros((self._message_elements,), ctx=mx.cpu())
        self._closed = False

    def join(
        self,
        weights: int,
        statistics: int,
        limits: Limits,
        agreement: dict[str, Any],
        offers: Offers = NO_OFFERS,
    ) -> None:
        """See `Exchange.join`."""
        service = self._service
        greeting = Greeting(
            rank=self.rank,
            nonce=self._nonce,
            slots=self.workers,
            weights=weights,
            statistics=statistics,
            servers=self.servers,
            bucket_elements=config.BUCKET_ELEMENTS,
            rule=service.rule,
            options=service.options,
            synchronous=service.synchronous,
            private=service.private,
            limits=limits,
            agreement=agreement,
            lease=self._lease,
            address=own_address(),
            offers=offers,
        )
        self._layout = greeting.layout()
        sizes = [wire.HEADER_ELEMENTS + bucket.stop - bucket.start for bucket in self._layout.buckets]
        self._arrays = [mx.nd.zeros((size,), ctx=mx.cpu()) for size in sizes]
        mx.nd.waitall()
        self._buffers = [host_view(array) for array in self._arrays]  # the same memory
        statuses = self._greet(greeting)
        self.replacement = bool(statuses[0]["arrivals"][self.rank] > 1)
        if self.replacement and service.synchronous:
            statuses = self._fall_in(greeting, statuses)
        acknowledged = [int(status["acknowledged"][self.rank]) for status in statuses]
        # A worker that died may have been answered by some servers only: its last exchange is then done once more,
        # and those that have used it already leave it at that. Where servers have gone on without it, what was left
        # half done is over.
        over = service.synchronous and len({int(status["round"]) for status in statuses}) == 1
        self.exchanges = self._sequence = max(acknowledged) if over else min(acknowledged)
        self.job, self.resume_at = int(statuses[0]["job"]), int(statuses[0]["resume_at"])

    def begin(self, weights: Source, statistics: Source, model: Model) -> Result:
        """See `Exchange.begin`."""
        with self.patience("the model from"):
            for bucket in self._layout.buckets:
                self._stamp(bucket, wire.NOTHING)
                source = statistics if bucket.statistics else weights
                source.read(bucket.start, bucket.stop, self._values(bucket))
            self._kv.init([self._layout.key(bucket) for bucket in self._layout.buckets], self._arrays)
            if self._kv.rank == 0:
                self._push_all(channel=0)  # shows the servers where the shared model is stored
                mx.nd.waitall()
            self._pull_channel(model, channel=0, statistics=True)
            if self._service.private:
                self._open_channel()
        return self.report(min(self._statuses(), key=lambda status: int(status["round"])), 0.0, 0.0)

    def start(self, payload: Payload, model: Model) -> "PendingExchange":
        """Push the payload and its commit; see `Exchange.start`."""
        begun = time.perf_counter()
        self._sequence += 1
        pushed = [0] * self.servers
        for bucket in self._layout.buckets:
            source = payload.statistics if bucket.statistics else payload.values
            if source is not None:
                self._stamp(bucket, wire.PAYLOAD)
                source.read(bucket.start, bucket.stop, self._values(bucket))
                self._kv.push(self._layout.key(bucket, self._channel), self._arrays[bucket.index])
                pushed[bucket.shard] += 1
        for shard in range(self.servers):
            self._say_to(
                shard,
                wire.COMMIT,
                learning_rate=payload.learning_rate,
                momentum=payload.momentum,
                weight_decay=payload.weight_decay,
                samples=payload.samples,
                buckets=pushed[shard],
            )
        return PendingExchange(self, model, payload.statistics is not None, self._sequence, begun)

    def heartbeat(self) -> None:
        """See `Exchange.heartbeat`."""
        if self._lease < math.inf and time.monotonic() - self._spoke > min(self._lease / 4, config.HEARTBEAT_EVERY):
            self._say(wire.NOTHING)

    def stop(self) -> None:
        """See `Exchange.stop`; server 0 decides when the run ends."""
        self._say_to(0, wire.STOP)

    def abort(self, reason: str) -> None:
        """See `Exchange.abort`; returns when the servers know."""
        with self.patience("the bad news to"):
            self._say(wire.ABORT, text=reason)
            mx.nd.waitall()

    def close(self) -> None:
        """Say goodbye and let go of the key store; does not wait for the other workers."""
        if self._closed:
            return
        self._closed = True
        self._peers.over()
        with self.patience("the goodbye to"):
            self._say(wire.LEAVE)
            mx.nd.waitall()
        mx.base.check_call(mx.base._LIB.MXKVStoreSetBarrierBeforeExit(self._kv.handle, ctypes.c_int(0)))

    # --- checkpoints ------------------------------------------------------------------------------------------------

    def resume(self, progress: Progress) -> None:
        """See `Exchange.resume`."""
        self.exchanges = self._sequence = progress.exchanges
        resumed = Resumed(self.rank, self._nonce, progress.exchanges, progress.books)
        with self.patience("the checkpoint's books to"):
            self._kv._send_command_to_servers(COMMAND, resumed.encode())
        for place, vector in enumerate(progress.state):
            for bucket in self._trained:
                if vector is not None:
                    self._put_state(bucket, place, len(progress.state), vector)

    def rule_state(self) -> list[np.ndarray | None]:
        """See `Exchange.rule_state`; one bucket after the other, through the servers' mailboxes."""
        return [self._vector(place) for place in range(self._state_vectors)]

    def version(self) -> int:
        """See `Exchange.version`."""
        return int(self.status(0)["version"])

    @property
    def _state_vectors(self) -> int:
        return STATE_VECTORS.get(self._service.rule, 0)

    @property
    def _trained(self) -> list[Bucket]:
        return [bucket for bucket in self._layout.buckets if not bucket.statistics]

    def _set_up_mailboxes(self) -> None:
        """One bucket's room on every server whose rule remembers anything."""
        if not self._state_vectors:
            return
        shards = range(self.servers)
        sizes = [wire.HEADER_ELEMENTS + self._layout.mailbox_elements(shard) for shard in shards]
        self._mailboxes = [mx.nd.zeros((size,), ctx=mx.cpu()) for size in sizes]
        keys = [self._layout.mailbox_key(shard) for shard in shards]
        self._kv.init(keys, self._mailboxes)
        if self.rank == 0:
            self._kv.push(keys, self._mailboxes)  # shows the servers where they are

    def _vector(self, place: int) -> np.ndarray | None:
        vector = np.empty(self._layout.weights, np.float32)
        for bucket in self._trained:
            mailbox = self._mailboxes[bucket.shard]
            with self.patience("what the rule remembers from"):
                self._say_to(bucket.shard, wire.FETCH, buckets=bucket.index, place=place)
                mx.nd.waitall()
                self._kv.pull(self._layout.mailbox_key(bucket.shard), mailbox)
                values = mailbox.asnumpy()
            if wire.header_of(values)["kind"] == wire.NOTHING:
                return None
            vector[bucket.start : bucket.stop] = values[wire.HEADER_ELEMENTS :][: bucket.stop - bucket.start]
        return vector

    def _put_state(self, bucket: Bucket, place: int, count: int, vector: np.ndarray) -> None:
        values = np.zeros(self._mailboxes[bucket.shard].size, np.float32)
        header = wire.header_of(values)
        header["kind"], header["rank"], header["nonce"] = wire.STATE, self.rank, self._nonce
        header["bucket"], header["place"], header["sequence"] = bucket.index, place, count
        values[wire.HEADER_ELEMENTS :][: bucket.stop - bucket.start] = vector[bucket.start : bucket.stop]
        with self.patience("what the rule remembers to"):
            self._kv.push(self._layout.mailbox_key(bucket.shard), mx.nd.array(values, dtype=np.float32))
            mx.nd.waitall()

    # --- what PendingExchange uses -----------------------------------------------------------------------------

    def status(self, shard: int) -> Any:
        """The current status of a server (wire.status_type).

        Raises:
            JobAbortedError: some worker has ended the run because it failed.
            SlotLostError: this process has been declared dead.
        """
        with self.patience("the status of"):
            self._kv.pull(self._layout.status_key(shard), self._status_array)
            packed = self._status_array.asnumpy()
        status = wire.unpack(packed, self._status_type)
        if status["aborted"]:
            raise JobAbortedError(bytes(status["text"]).decode())
        if status["nonce"][self.rank] != self._nonce:
            raise SlotLostError(f"another process has taken over the slot of worker {self.rank}")
        if self._lease < math.inf and not status["member"][self.rank]:
            raise SlotLostError(
                f"worker {self.rank} was not heard for {self._lease:g} s, and the others have gone on without it; "
                "start it again to take the slot back, with a longer --lease if its iterations take longer than that"
            )
        return status

    def report(self, status: Any, wait: float, transfer: float) -> Result:
        """What a status (of server 0, which decides when the run ends) says, as a result."""
        stop_at, round_ = int(status["stop_at"]), int(status["round"])
        return Result(
            round=round_,
            version=int(status["version"]),
            samples=int(status["samples"]),
            wait=wait,
            transfer=transfer,
            finished=0 <= stop_at <= round_,
            used=bool(status["used"][self.rank]),
            elapsed=float(status["elapsed"]),
            members=tuple(np.flatnonzero(status["member"]).tolist()),
        )

    def pull(self, model: Model, statistics: bool) -> None:
        """Pull this worker's model, with or without the statistics; hand it on bucket by bucket as it arrives."""
        with self.patience("the model from"):
            self._pull_channel(model, self._channel, statistics)

    def patience(self, what: str, hint: str = "is every server process still running?") -> Any:
        """Watch over a with statement that waits for the servers."""
        return self._watchdog.waiting(f"{what} the parameter server(s)", self._round_timeout, hint)

    def _pull_channel(self, model: Model, channel: int, statistics: bool) -> None:
        buckets = [bucket for bucket in self._layout.buckets if statistics or not bucket.statistics]
        for bucket in buckets:
            self._kv.pull(self._layout.key(bucket, channel), self._arrays[bucket.index])
        for bucket in buckets:
            self._arrays[bucket.index].wait_to_read()
            model.write(bucket.statistics, bucket.start, self._values(bucket))

    # --- helpers ---------------------------------------------------------------------------------------------------

    def _greet(self, greeting: Greeting) -> list[Any]:
        """Tell all servers who this is; their statuses."""
        with self.patience("the greeting of"):
            self._kv._send_command_to_servers(COMMAND, greeting.encode())
            if not self._met:
                keys = [self._layout.status_key(shard) for shard in range(self.servers)]
                self._kv.init(keys, [mx.nd.zeros((self._message_elements,)) for _ in keys])
                self._set_up_mailboxes()
                self._peers.look(time.monotonic())  # now all of them are there
                self._met = True
            self._say(wire.NOTHING)
            mx.nd.waitall()
        return self._statuses()

    def _statuses(self) -> list[Any]:
        return [self.status(shard) for shard in range(self.servers)]

    def _fall_in(self, greeting: Greeting, statuses: list[Any]) -> list[Any]:
        """Join the rounds of a running job; the servers' statuses then.

        What the dead worker has committed everywhere counts, so the round that it is part of has to end first. Servers
        that go on without dead workers may have counted this one in from different rounds on: then it steps back and
        tries again.
        """
        with self.patience("the end of the round that the dead worker has committed in at", "") as wait:
            while True:
                if all(status["committed"][self.rank] for status in statuses):
                    time.sleep(LONGEST_PAUSE)
                    self.heartbeat()
                    statuses = self._statuses()
                elif self._lease < math.inf and len({int(status["round"]) for status in statuses}) > 1:
                    self._kv._send_command_to_servers(COMMAND, replace(greeting, aside=True).encode())
                    time.sleep(LONGEST_PAUSE)
                    statuses = self._greet(greeting)
                else:
                    return statuses
                wait.check()

    @property
    def _channel(self) -> int:
        return self.rank + 1 if self._service.private else 0

    def _open_channel(self) -> None:
        """Set this worker's own keys up, beginning with the model just pulled: that is what it was sent last."""
        keys = [self._layout.key(bucket, self._channel) for bucket in self._layout.buckets]
        for bucket in self._layout.buckets:
            self._stamp(bucket, wire.NOTHING)
        self._kv.init(keys, self._arrays)
        if self._kv.rank != 0:  # MXNet's init only sends the values of rank 0
            self._push_all(self._channel)
        self._push_all(self._channel)
        mx.nd.waitall()

    def _push_all(self, channel: int) -> None:
        for bucket in self._layout.buckets:
            self._kv.push(self._layout.key(bucket, channel), self._arrays[bucket.index])

    def _stamp(self, bucket: Bucket, kind: int) -> None:
        header = wire.header_of(self._buffers[bucket.index])
        header["kind"], header["rank"], header["nonce"] = kind, self.rank, self._nonce
        header["sequence"], header["bucket"] = self._sequence, bucket.index

    def _values(self, bucket: Bucket) -> np.ndarray:
        return self._buffers[bucket.index][wire.HEADER_ELEMENTS :]

    def _say(self, kind: int, **fields: Any) -> None:
        self._spoke = time.monotonic()
        for shard in range(self.servers):
            self._say_to(shard, kind, **fields)

    def _say_to(self, shard: int, kind: int, **fields: Any) -> None:
        record = wire.message(kind, rank=self.rank, nonce=self._nonce, sequence=self._sequence, **fields)
        packed = wire.pack(record, self._message_elements)
        self._kv.push(self._layout.status_key(shard), mx.nd.array(packed, dtype=np.float32))
