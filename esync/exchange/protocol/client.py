"""The worker's side of the protocol, whatever store carries it.

An exchange sends the whole payload array by array, then its commit to every server, waits until all of them have used
it, and only then fetches the model. Receiving happens in the memory that was sent from, so one buffer of the model's
size is all it takes.
"""

import logging
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ... import config
from ...compression import NONE
from ...handles import NotDoneError
from ...rules import STATE_VECTORS
from ...sparse import Sparse
from ..base import NO_OFFERS, Exchange, JobAbortedError, Model, Payload, Result, SlotLostError, Source
from ..codecs.base import KeepsCommon
from ..codecs.choice import codec_of
from . import wire
from .greeting import Greeting, Resumed
from .layout import WEIGHTS, Bucket, Layout
from .ledger import Limits
from .mailbox import Mailboxes
from .resumption import Offers, Progress
from .specification import Specification
from .status import Status
from .store import LONGEST_PAUSE, Place, Store
from .takeover import exchanges_behind, in_round

log = logging.getLogger(__name__)


class ParameterServerExchange(Exchange):
    """The exchange over parameter servers.

    Args:
        specification: which rule the servers run, and how.
        store: carries the messages.

    Attributes:
        specification: as given.
        store: as given.
        sequence: number of the exchange under way, from 1.
        layout: how the model is cut (known after `join`).
    """

    def __init__(self, specification: Specification, store: Store) -> None:
        self.specification, self.store = specification, store
        self.rank, self.workers = store.rank, store.workers
        self.exchanges = self.sequence = 0
        self.replacement = False
        self.job, self.resume_at = 0, -1
        self._codec: Any = None  # of the weights, where they do not travel as they are
        self._hidden: HiddenExchange | None = None
        self._over = self._closed = self._met = False
        self._spoke = -math.inf
        self._fields: dict[str, Any] = {
            **{name: b"" if name == "text" else 0 for name in wire.MESSAGE.names or ()},
            "rank": store.rank,
            "nonce": store.nonce,
            "gradient_scale": 1,
        }

    # --- beginning --------------------------------------------------------------------------------------------------

    def join(
        self,
        sizes: Mapping[str, int],
        limits: Limits,
        agreement: dict[str, Any],
        offers: Offers = NO_OFFERS,
    ) -> None:
        """See `Exchange.join`."""
        store = self.store
        travelling = store.sizes(sizes)
        if not store.carries_values:
            self.specification = replace(self.specification, tensors=[travelling[WEIGHTS]])
        greeting = Greeting(
            rank=self.rank,
            nonce=store.nonce,
            slots=self.workers,
            sizes=travelling,
            servers=store.servers,
            bucket_elements=store.bucket_elements,
            specification=self.specification,
            limits=limits,
            agreement=agreement,
            lease=store.lease,
            address=store.address,
            offers=offers,
        )
        self.layout = greeting.layout()
        packed = self.specification.sparse or self.specification.compression != NONE
        self._codec = codec_of(self.specification, self.layout, self.workers, self.rank) if packed else None
        self._mailboxes = Mailboxes(store, self.layout, STATE_VECTORS.get(self.specification.rule, 0), self.say_to)
        if self.specification.overlap:
            self._parcel = Parcel(sizes)
        statuses = self._greet(greeting)
        if notice := statuses[0].notice:
            log.warning("%s", notice)
        self.replacement = statuses[0].arrivals > 1
        synchronous = statuses[0].synchronous
        if self.replacement and synchronous:
            statuses = self._fall_in(greeting, statuses)
        acknowledged, rounds = [each.acknowledged for each in statuses], [each.round for each in statuses]
        self.exchanges = self.sequence = exchanges_behind(acknowledged, rounds, synchronous)
        self.job, self.resume_at = statuses[0].job, statuses[0].resume_at

    def begin(self, vectors: Mapping[str, Source], model: Model) -> Result:
        """See `Exchange.begin`."""
        store, specification, layout = self.store, self.specification, self.layout
        every = frozenset(layout.sizes)
        shared = plan_of(layout, 0, every)
        with store.waiting("the model from"):
            if store.carries_values:
                for bucket in layout.buckets:
                    self._fill(bucket, 0, wire.NOTHING, vectors[bucket.vector])
            store.share([part.places for part in shared])
            received = self._receive(shared, model, keep=specification.private or self._keeps_common)
            if specification.private and store.carries_values:
                for bucket in layout.buckets:
                    self._fill(bucket, self._channel, wire.NOTHING, received[bucket.index])
                store.open([part.places for part in plan_of(layout, self._channel, every)])
            if self._codec is not None or specification.private:  # from now on the weights travel through other keys
                trained = plan_of(layout, 0, frozenset({WEIGHTS}))
                store.release([key for part in trained for key, _ in part.places])
        statuses = self._statuses()
        if self._keeps_common:
            # No round can end without this worker, so these are the steps that its model belongs to.
            self._codec.begin(self._common(model, received), [status.step for status in statuses])
        return self.report(sorted(statuses, key=lambda status: status.round), 0.0, 0.0)

    # --- exchanging -------------------------------------------------------------------------------------------------

    def start(self, payload: Payload, model: Model) -> "PendingExchange":
        """Send the payload and its commit; see `Exchange.start`."""
        store = self.store
        begun = store.now()
        store.hold()
        self.sequence += 1
        sent = [0] * store.servers
        for server, place in self._write(payload) if store.carries_values else self._sizes(payload):
            store.send(server, (place,))
            sent[server] += store.carries_values
        for server in range(store.servers):
            self.say_to(server, wire.COMMIT, buckets=sent[server], **payload.terms)
        if self.specification.overlap:
            self._hidden = HiddenExchange(self, model, payload.returned, begun, self._parcel)
            return self._hidden
        return PendingExchange(self, model, payload.returned, begun)

    def heartbeat(self) -> None:
        """See `Exchange.heartbeat`."""
        lease = self.store.lease
        if lease < math.inf and self.store.now() - self._spoke > min(lease / 4, config.HEARTBEAT_EVERY):
            self.say(wire.NOTHING)

    def stop(self) -> None:
        """See `Exchange.stop`; server 0 decides when the run ends."""
        if self._met:
            self.say_to(0, wire.STOP)

    def abort(self, reason: str) -> None:
        """See `Exchange.abort`; returns when the servers know."""
        self._cancel()
        with self.store.waiting("the bad news to"):
            self.say(wire.ABORT, text=wire.encode_text(reason))
            self.store.flush()

    def close(self) -> None:
        """Say goodbye; does not wait for the other workers."""
        if not self._closed:
            self._closed = True
            self._cancel()
            self.store.close(self._message(wire.DONE if self._over else wire.LEAVE))

    # --- checkpoints ------------------------------------------------------------------------------------------------

    def resume(self, progress: Progress) -> None:
        """See `Exchange.resume`."""
        self.exchanges = self.sequence = progress.exchanges
        resumed = Resumed(self.rank, self.store.nonce, progress.exchanges, progress.books)
        with self.store.waiting("the checkpoint's books to"):
            self.store.command(resumed)
        self._mailboxes.put(progress.state)

    def rule_state(self) -> list[np.ndarray | None]:
        """See `Exchange.rule_state`; one bucket after the other, through the servers' mailboxes."""
        return self._mailboxes.fetch()

    def version(self) -> int:
        """See `Exchange.version`."""
        return self._statuses()[0].version

    # --- what the handles and the mailboxes use ---------------------------------------------------------------------

    def look(self, status: Status) -> None:
        """Take notice of a status, and tell the servers now and then that this worker is alive.

        Raises:
            JobAbortedError: some worker has ended the run because it failed.
            SlotLostError: this process has been declared dead.
        """
        store = self.store
        if status.failure:
            raise JobAbortedError(status.failure)
        if status.nonce != store.nonce:
            raise SlotLostError(f"another process has taken over the slot of worker {self.rank}")
        if store.lease < math.inf:
            if self.rank not in status.members:
                raise SlotLostError(
                    f"worker {self.rank} was not heard for {store.lease:g} s, and the others have gone on without it; "
                    "start it again to take the slot back, with a longer --lease if its iterations take longer than "
                    "that"
                )
            self.heartbeat()

    def report(self, statuses: Sequence[Status], wait: float, transfer: float) -> Result:
        """What the statuses say, as a result: the first of them (of server 0, which decides when the run ends).

        A worker is apart as long as one of them says so: only when no server does any more, all have ended the round
        after which it is waited for again.
        """
        status = statuses[0]
        self._over = status.finished
        apart = (
            status.apart if len(statuses) == 1 else tuple(sorted({rank for each in statuses for rank in each.apart}))
        )
        return Result(
            round=status.round,
            version=status.version,
            samples=status.samples,
            wait=wait,
            transfer=transfer,
            finished=status.finished,
            used=status.used,
            elapsed=status.elapsed,
            members=status.members,
            step=status.step,
            synchronous=status.synchronous,
            fastest=status.fastest,
            samples_together=status.samples_together,
            apart=apart,
        )

    def pull(self, model: Model, statuses: Sequence[Status], wanted: Collection[str]) -> None:
        """Fetch the wanted vectors of this worker's model; the servers have used its payload."""
        self.store.hold()
        with self.store.waiting("the model from"):
            plan = plan_of(self.layout, self._channel, self._plain(wanted))
            if self._codec is None:
                self._receive(plan, model)
            else:
                self._receive(plan, model, [status.answer for status in statuses])

    def say(self, kind: int, **fields: Any) -> None:
        """Send a message to all servers; before the greeting they know nobody."""
        if self._met:
            self._spoke = self.store.now()
            for server in range(self.store.servers):
                self.say_to(server, kind, **fields)

    def say_to(self, server: int, kind: int, **fields: Any) -> None:
        """Send a message to one server."""
        self.store.send(server, (), self._message(kind, **fields))

    # --- helpers ----------------------------------------------------------------------------------------------------

    def _message(self, kind: int, **fields: Any) -> dict[str, Any]:
        return {**self._fields, "kind": kind, "sequence": self.sequence, **fields}

    def _greet(self, greeting: Greeting) -> list[Status]:
        with self.store.waiting("the greeting of"):
            self.store.greet(greeting)
            self._met = True
        return self._statuses()

    def _statuses(self) -> list[Status]:
        statuses = self.store.statuses()
        for status in statuses:
            self.look(status)
        return statuses

    def _fall_in(self, greeting: Greeting, statuses: list[Status]) -> list[Status]:
        """Join the rounds of a running job; the servers' statuses then.

        What the dead worker has committed everywhere counts, so the round that it is part of has to end first. Servers
        that go on without dead workers may have counted this one in from different rounds on: then it steps back and
        tries again.
        """
        store = self.store
        with store.waiting("the end of the round that the dead worker has committed in at", "") as wait:
            while True:
                if in_round([each.acknowledged for each in statuses], [each.committed for each in statuses]):
                    store.sleep(LONGEST_PAUSE)
                    statuses = self._statuses()
                elif store.lease < math.inf and len({each.round for each in statuses}) > 1:
                    store.command(replace(greeting, aside=True))
                    store.sleep(LONGEST_PAUSE)
                    statuses = self._greet(greeting)
                else:
                    return statuses
                wait.check()

    def _fill(self, bucket: Bucket, channel: int, kind: int, source: Source) -> Place:
        """Put a bucket's values from a source where they are sent from."""
        key, elements = self.layout.key(bucket, channel), wire.HEADER_ELEMENTS + bucket.stop - bucket.start
        array = self.store.room(key, elements)
        wire.stamp(array, kind, self.rank, self.store.nonce, self.sequence, bucket.index)
        source.read(bucket.start, bucket.stop, array[wire.HEADER_ELEMENTS :])
        return key, elements

    def _write(self, payload: Payload) -> Iterator[tuple[int, Place]]:
        """Put a payload where it is sent from, array by array: the server and the place of each."""
        codec, rooms = self._codec, dict[int, np.ndarray]()

        def room(key: int, elements: int) -> np.ndarray:
            rooms[key] = self.store.room(key, wire.HEADER_ELEMENTS + elements)
            return rooms[key][wire.HEADER_ELEMENTS :]

        if codec is not None:
            for server, key, place in codec.write(
                payload.vectors[WEIGHTS] if payload.step is None else payload.step, room
            ):
                array = rooms.pop(key)
                wire.stamp(array, wire.PAYLOAD, self.rank, self.store.nonce, self.sequence, place)
                yield server, (key, array.size)
        plain = self._plain(payload.vectors)
        for bucket in self.layout.buckets:
            if bucket.vector in plain:
                yield bucket.shard, self._fill(bucket, self._channel, wire.PAYLOAD, payload.vectors[bucket.vector])

    def _sizes(self, payload: Payload) -> Iterator[tuple[int, Place]]:
        """The same where no values are sent."""
        for server, part in enumerate(plan_of(self.layout, self._channel, self._plain(payload.vectors))):
            sizes = [] if self._codec is None else self._codec.sizes(server)
            for place in (*part.places, *_sized(sizes)):
                yield server, place

    def _receive(self, plan: "Sequence[Part]", model: Model, lengths: Sequence[int] = (), keep: bool = False) -> Any:
        """Fetch arrays, and write them to the model as they come.

        Args:
            plan: server → which buckets.
            model: where they are put.
            lengths: server → bytes of its packed answer; none: there are none.
            keep: whether to return copies: index of a bucket → a source of its values.
        """
        store, kept = self.store, dict[int, Flat]()
        answers: list[Sequence[Place]] = [()] * store.servers
        if lengths and store.carries_values:
            answers = [_with_headers(self._codec.wanted(server, length)) for server, length in enumerate(lengths)]
        elif lengths:
            answers = [_sized(self._codec.answer_sizes(server)) for server in range(store.servers)]
        fetched = [
            iter(store.fetch(server, [*part.places, *answers[server]] if answers[server] else part.places))
            for server, part in enumerate(plan)
        ]
        for server, arrays in enumerate(fetched):
            if not store.carries_values:
                for _ in arrays:
                    pass
                continue
            for bucket, array in zip(plan[server].buckets, arrays, strict=False):
                values = array[wire.HEADER_ELEMENTS :]
                model.write(bucket.vector, bucket.start, values)
                if keep:
                    kept[bucket.index] = Flat(values.copy(), bucket.start)
            if lengths:
                self._codec.read(server, arrays, lengths[server], model)
        return kept

    @property
    def _keeps_common(self) -> bool:
        return self._codec is not None and self._codec.keeps_common and self.store.carries_values

    def _common(self, model: Model, received: "Mapping[int, Flat]") -> dict[int, np.ndarray]:
        """Where the common weights are kept: index of a bucket → its values.

        Where the model has them already, so that no exchange has to copy them; in copies where it has none, or where
        they may be needed while an exchange is under way.
        """
        trained = [bucket for bucket in self.layout.buckets if bucket.vector == WEIGHTS]
        kept = model.common_weights() if isinstance(model, KeepsCommon) and not self.specification.overlap else None
        if kept is None:
            return {bucket.index: received[bucket.index].values for bucket in trained}
        return {bucket.index: kept[bucket.start : bucket.stop] for bucket in trained}

    def _cancel(self) -> None:
        """Nobody is interested in an exchange under way any more."""
        if self._hidden is not None:
            self._hidden.cancel()
            self._hidden = None

    def _plain(self, names: Collection[str]) -> frozenset[str]:
        """Those of these vectors that travel as they are."""
        return frozenset(names) if self._codec is None else frozenset(names) - {WEIGHTS}

    @property
    def _channel(self) -> int:
        return self.rank + 1 if self.specification.private else 0


class PendingExchange:
    """The handle of an exchange.

    It is done when all servers have used the payload; `result` then fetches the model, which does not depend on any
    other worker any more.
    """

    def __init__(self, exchange: ParameterServerExchange, model: Model, wanted: Collection[str], begun: float) -> None:
        self._exchange, self._model, self._wanted = exchange, model, wanted
        self._sequence, self._begun = exchange.sequence, begun
        self._statuses: list[Status] | None = None
        self._result: Result | None = None

    def done(self) -> bool:
        """Look once; raises JobAbortedError when the run has failed meanwhile."""
        if self._statuses is None:
            self._statuses = self._exchange.store.acknowledged(self._sequence, self._exchange.look)
        return self._statuses is not None

    def result(self) -> Result:
        """Fetch the model into place."""
        if self._result is None:
            if not self.done():
                raise NotDoneError("the servers have not used this payload yet")
            self._finish()
        assert self._result is not None
        return self._result

    def wait(self) -> Result:
        """Wait for the other workers, then for the model."""
        if self._result is None:
            self._finish()
        assert self._result is not None
        return self._result

    def _finish(self) -> None:
        """Wait for the servers, fetch the model, and sum up how it went."""
        exchange = self._exchange
        store = exchange.store
        if self._statuses is None:
            self._statuses = store.await_acknowledged(self._sequence, exchange.look)
        exchange.pull(self._model, self._statuses, self._wanted)
        wait = max(status.wait for status in self._statuses)
        self._result = exchange.report(self._statuses, wait, max(0.0, store.now() - self._begun - wait))


class HiddenExchange(PendingExchange):
    """The handle where the worker goes on meanwhile: done when the model has been received.

    So `result` only has to put it into place.
    """

    def __init__(
        self, exchange: ParameterServerExchange, model: Model, wanted: Collection[str], begun: float, parcel: "Parcel"
    ) -> None:
        super().__init__(exchange, parcel, wanted, begun)
        self._parcel, self._target, self._delivered = parcel, model, False
        self._task = exchange.store.spawn(self._finish)

    def done(self) -> bool:
        """Look without waiting."""
        return self._task.done()

    def result(self) -> Result:
        """Put the model into place, or raise what the exchange has failed with."""
        if not self._task.done():
            raise NotDoneError("the model is not there yet")
        return self.wait()

    def wait(self) -> Result:
        """Wait for the model."""
        self._task.wait()
        if not self._delivered:
            self._delivered = True
            self._parcel.deliver(self._target, self._wanted)
        assert self._result is not None
        return self._result

    def cancel(self) -> None:
        """This worker leaves: stop asking."""
        self._task.cancel()


class Parcel:
    """A model that has been received and waits to be put into place; see `exchange.Model`.

    Args:
        sizes: name of each vector → number of its values.
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._vectors = {name: np.empty(size, np.float32) for name, size in sizes.items()}

    def write(self, vector: str, start: int, values: np.ndarray) -> None:
        """Keep a copy."""
        self._vectors[vector][start : start + values.size] = values

    def add(self, step: Sparse) -> None:
        """See `exchange.Model`."""
        raise RuntimeError("sparse exchanges are not hidden")

    put = add

    def deliver(self, model: Model, wanted: Collection[str]) -> None:
        """Put these vectors into place."""
        for name in wanted:
            if self._vectors[name].size:
                model.write(name, 0, self._vectors[name])


@dataclass(frozen=True)
class Flat:
    """One bucket's values; see `exchange.Source`.

    Attributes:
        values: float32.
        start: place of the first one in the flat vector.
    """

    values: np.ndarray
    start: int

    def read(self, start: int, stop: int, out: np.ndarray) -> None:
        """See `exchange.Source`."""
        out[:] = self.values[start - self.start : stop - self.start]


class Part(NamedTuple):
    """The plain buckets of one server that an exchange sends or fetches."""

    buckets: tuple[Bucket, ...]
    places: tuple[Place, ...]


@lru_cache(maxsize=4096)
def plan_of(layout: Layout, channel: int, names: frozenset[str]) -> tuple[Part, ...]:
    """Server → its buckets of the vectors of these names."""
    parts = []
    for server in range(layout.servers):
        mine = tuple(each for each in layout.buckets if each.shard == server and each.vector in names)
        elements = [wire.HEADER_ELEMENTS + each.stop - each.start for each in mine]
        keys = [layout.key(each, channel) for each in mine]
        parts.append(Part(mine, tuple(zip(keys, elements, strict=True))))
    return tuple(parts)


def _with_headers(arrays: Iterable[Place]) -> list[Place]:
    return [(key, wire.HEADER_ELEMENTS + elements) for key, elements in arrays]


def _sized(sizes: Iterable[int]) -> list[Place]:
    """Places of arrays of which only the sizes are known."""
    return [(-1, wire.HEADER_ELEMENTS + elements) for elements in sizes]
