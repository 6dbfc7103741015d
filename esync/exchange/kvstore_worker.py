"""The worker's side of the wire protocol on MXNet's key store.

An exchange pushes the whole payload bucket by bucket, then its commit, then asks for the status until the servers have
used it, and only then pulls the model. Receiving happens in the memory that was sent from, so one buffer of the model's
size is all it takes.
"""

import ctypes
import os
import secrets
import time
from typing import Any

import numpy as np

from .. import config
from ..engine import mx
from ..environment import Cluster
from ..handles import NotDoneError
from ..memory import host_view
from ..watchdog import Watchdog
from . import Exchange, ExchangeError, JobAbortedError, Model, Payload, Result, Service, Source, wire
from .greeting import Greeting
from .layout import Bucket
from .ledger import Limits

#: Seconds between two looks at the status: the first pause, its growth, the longest.
FIRST_PAUSE, PAUSE_GROWTH, LONGEST_PAUSE = 0.0005, 1.5, 0.01
GREETING_COMMAND = 0


class KVStoreExchange(Exchange):
    """The exchange over MXNet's parameter servers.

    Args:
        service: which rule the servers run, and how.
        cluster: where the scheduler is, and how many processes of each role there are.
        watchdog: speaks up when something takes long.
        start_timeout: seconds to wait for the other processes of the cluster to appear.
        round_timeout: seconds to wait for the servers and the other workers in one exchange.
    """

    def __init__(
        self,
        service: Service,
        cluster: Cluster,
        watchdog: Watchdog,
        start_timeout: float = config.START_TIMEOUT,
        round_timeout: float = config.ROUND_TIMEOUT,
    ) -> None:
        self._service = service
        self._watchdog = watchdog
        self._round_timeout = round_timeout
        # Buckets are this project's own way of cutting arrays; MXNet must not split them once more.
        os.environ["MXNET_KVSTORE_BIGARRAY_BOUND"] = str(2**31 - 1)
        with watchdog.waiting(cluster.everyone, start_timeout, Cluster.ADVICE):
            self._kv = mx.kv.create("dist_async")
        self.workers: int = self._kv.num_workers
        # A newcomer has a new rank in MXNet (see rendezvous.roster), which leads to the slot that it takes over.
        self.rank: int = self._kv.rank % self.workers
        self.servers = cluster.servers
        self._nonce = secrets.randbits(62) + 1
        self._sequence = 0
        self.exchanges = 0
        self.replacement = False
        self._message_elements = wire.message_elements(self.workers)
        self._status_type = wire.status_type(self.workers)
        self._status_array = mx.nd.zeros((self._message_elements,), ctx=mx.cpu())
        self._closed = False

    def join(self, weights: int, statistics: int, limits: Limits, agreement: dict[str, Any]) -> None:
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
        )
        self._layout = greeting.layout()
        sizes = [wire.HEADER_ELEMENTS + bucket.stop - bucket.start for bucket in self._layout.buckets]
        self._arrays = [mx.nd.zeros((size,), ctx=mx.cpu()) for size in sizes]
        mx.nd.waitall()
        self._buffers = [host_view(array) for array in self._arrays]  # the same memory
        with self.patience("the greeting of"):
            self._kv._send_command_to_servers(GREETING_COMMAND, greeting.encode())
            keys = [self._layout.status_key(shard) for shard in range(self.servers)]
            self._kv.init(keys, [mx.nd.zeros((self._message_elements,)) for _ in keys])
            self._say(wire.NOTHING)
            mx.nd.waitall()
        statuses = [self.status(shard) for shard in range(self.servers)]
        # A worker that died may have been answered by some servers only: its last exchange is then done once more,
        # and those that have used it already leave it at that.
        self.exchanges = self._sequence = min(int(status["acknowledged"][self.rank]) for status in statuses)
        self.replacement = bool(statuses[0]["arrivals"][self.rank] > 1)

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
        return self.report(self.status(0), 0.0, 0.0)

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
        with self.patience("the goodbye to"):
            self._say(wire.LEAVE)
            mx.nd.waitall()
        mx.base.check_call(mx.base._LIB.MXKVStoreSetBarrierBeforeExit(self._kv.handle, ctypes.c_int(0)))

    # --- what PendingExchange uses -----------------------------------------------------------------------------

    def status(self, shard: int) -> Any:
        """The current status of a server (wire.status_type).

        Raises:
            JobAbortedError: some worker has ended the run because it failed.
            ExchangeError: this process has been declared dead and replaced.
        """
        with self.patience("the status of"):
            self._kv.pull(self._layout.status_key(shard), self._status_array)
            packed = self._status_array.asnumpy()
        status = wire.unpack(packed, self._status_type)
        if status["aborted"]:
            raise JobAbortedError(bytes(status["text"]).decode())
        if status["nonce"][self.rank] != self._nonce:
            raise ExchangeError(f"another process has taken over the slot of worker {self.rank}")
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
        for shard in range(self.servers):
            self._say_to(shard, kind, **fields)

    def _say_to(self, shard: int, kind: int, **fields: Any) -> None:
        record = wire.message(kind, rank=self.rank, nonce=self._nonce, sequence=self._sequence, **fields)
        packed = wire.pack(record, self._message_elements)
        self._kv.push(self._layout.status_key(shard), mx.nd.array(packed, dtype=np.float32))


class PendingExchange:
    """The handle of an exchange: polls the status of one server after the other, then pulls the model.

    It is done when all servers have used the payload; `result` pulls the model, which does not depend on any other
    worker any more.
    """

    def __init__(self, exchange: KVStoreExchange, model: Model, statistics: bool, sequence: int, begun: float) -> None:
        self._exchange = exchange
        self._model = model
        self._statistics = statistics
        self._sequence = sequence
        self._begun = begun
        self._statuses: list[Any] = []  # of the servers that are done, in order
        self._result: Result | None = None

    def done(self) -> bool:
        """Look once; raises JobAbortedError when the run has failed meanwhile."""
        exchange = self._exchange
        while len(self._statuses) < exchange.servers:
            self._latest = exchange.status(len(self._statuses))
            if self._latest["acknowledged"][exchange.rank] < self._sequence:
                return False
            self._statuses.append(self._latest)
        return True

    def result(self) -> Result:
        """Pull the model into place."""
        if self._result is None:
            if not self.done():
                raise NotDoneError("the servers have not used this payload yet")
            self._exchange.pull(self._model, self._statistics)
            wait = max(float(status["wait"][self._exchange.rank]) for status in self._statuses)
            transfer = max(0.0, time.perf_counter() - self._begun - wait)
            self._result = self._exchange.report(self._statuses[0], wait, transfer)
        return self._result

    def wait(self) -> Result:
        """Poll with short pauses, growing while nothing happens, until `result` is there."""
        pause = FIRST_PAUSE
        with self._exchange.patience("the other workers' commits at", "") as wait:
            while not self.done():
                wait.what = f"the commit of {self._missing()}"
                wait.check()
                time.sleep(pause)
                pause = min(pause * PAUSE_GROWTH, LONGEST_PAUSE)
        return self.result()

    def _missing(self) -> str:
        """Who has not committed in this round, for the user."""
        late = np.flatnonzero(self._latest["member"] & ~self._latest["committed"].astype(bool)).tolist()
        return f"worker {', '.join(map(str, late))}" if late else "all workers to be used by the server"
