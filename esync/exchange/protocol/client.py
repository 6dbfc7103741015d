"""The worker's end of the protocol, whatever store carries it.

An exchange sends the whole payload array by array, then its commit to every server, waits until all
of them have used it, and only then fetches the model. Receiving happens in the memory that was sent
from, so one buffer of the model's size is all it takes.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import Any

import numpy as np
from typing_extensions import override

from ... import config
from ...rules import STATE_VECTORS
from ...runtime import progress
from ..base import NO_OFFERS, Exchange, JobAbortedError, ModelSink, Payload, Result, SlotLostError, Source
from ..codecs.base import KeepsCommon, WorkerCodec
from ..codecs.factory import worker_codec
from ..codecs.uncompressed import UncompressedDecoder, uncompressed_codec
from ..host_group import HostGroup
from . import wire
from .handshake import Handshake, Heartbeat, Resumed
from .host_exchange import HostExchange
from .layout import WEIGHTS, Layout
from .mailbox import Mailboxes
from .pending import OverlappedExchange, PendingExchange, ReceivedModel
from .replacement_recovery import completed_exchanges, round_has_commit, starting_status
from .resume_negotiation import Offers, ResumeState
from .round_state import Limits
from .specification import PerHostError, Specification
from .status import Status
from .store import LONGEST_PAUSE, Place, Store, heartbeat_interval

#: Stands for a key where arrays have no values.
NO_KEY = -1


class ParameterServerExchange(Exchange):
    """The exchange over parameter servers.

    Args:
        specification: the rule that the servers run, and its terms.
        store: carries the messages.
        make_codec: makes the codec of the weights from the specification, the layout, the number of
            workers and the rank.
        host_group: the memory that the workers of this host share; None: every worker exchanges for
            itself.

    Attributes:
        specification: as given, but for what the host group says.
        store: as given.
        sequence: number of the exchange under way, from 1.
        layout: how the model is cut into buckets (known after `join`).
    """

    def __init__(
        self,
        specification: Specification,
        store: Store,
        make_codec: Callable[[Specification, Layout, int, int], WorkerCodec] = worker_codec,
        host_group: HostGroup | None = None,
    ) -> None:
        if host_group is not None:
            specification = replace(specification, per_host=host_group.most)
        self.specification, self.store, self._host_group = specification, store, host_group
        self._host: HostExchange | None = None  # where this worker shares its host with others
        self.rank, self.workers = store.rank, store.workers
        self.exchanges = self.sequence = 0
        self.replacement = False
        self.job, self.resume_at, self.part = 0, -1, 0
        self._round = 0  # number of the round that the next payload is part of, where it is used together
        self._uninformed: list[int] = []  # servers that do not know which workers that round does not wait for
        self._excluded: tuple[int, ...] = ()  # those workers, as the first server says
        self._aside: tuple[int, ...] = ()  # workers that have said that rounds need not wait for them
        self._steps_aside = False  # whether this one is among them, or will be as soon as the servers know
        self._make_codec = make_codec
        self._overlapped: OverlappedExchange | None = None
        self._closed = self._met = self._lost = False
        self._spoke = self._looked = -math.inf
        self._fields: dict[str, Any] = {
            **wire.blank_message(specification.scalars),
            "rank": store.rank,
            "nonce": store.nonce,
        }

    # --- beginning --------------------------------------------------------------------------------

    @override
    def join(
        self,
        sizes: Mapping[str, int],
        limits: Limits,
        agreement: dict[str, Any],
        offers: Offers = NO_OFFERS,
    ) -> None:
        store = self.store
        travelling = store.sizes(sizes)
        if not store.carries_values:
            self.specification = replace(self.specification, tensors=[travelling[WEIGHTS]])
        handshake = Handshake(
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
            replacement=store.replacement,
            offers=offers,
        )
        self.layout = handshake.layout()
        self._codecs = {name: uncompressed_codec(self.layout, 0, name) for name in self.layout.sizes}
        self._codecs[WEIGHTS] = self._make_codec(self.specification, self.layout, self.workers, self.rank)
        self._mailboxes = Mailboxes(store, self.layout, STATE_VECTORS.get(self.specification.rule, 0), self.say_to)
        if self.specification.overlap:
            self._received = ReceivedModel(sizes)
        self._sized: dict[tuple[frozenset[str], bool], list[list[Place]]] = {}
        statuses = self._handshake(handshake)
        if notice := statuses[0].notice:
            progress.warn(notice, launcher=self.rank == 0)
        self.replacement = statuses[0].arrivals > 1
        if self.replacement and starting_status(statuses).synchronous:
            statuses = self._rejoin(statuses)
        acknowledged = [status.acknowledged for status in statuses]
        rounds = [status.rounds_together for status in statuses]
        self.exchanges = self.sequence = completed_exchanges(
            acknowledged, rounds, starting_status(statuses).synchronous
        )
        self.job, self.resume_at = statuses[0].job, statuses[0].resume_at
        self._join_host(statuses)

    @override
    def begin(self, vectors: Mapping[str, Source], model: ModelSink) -> Result:
        store, specification = self.store, self.specification
        common = {name: uncompressed_codec(self.layout, 0, name) for name in self.layout.sizes}
        shared = UncompressedDecoder(self.layout, 0)
        common[WEIGHTS] = common[WEIGHTS]._replace(decoder=shared)
        # The values that this worker has now, even where its model rounds them.
        keeps = specification.private or self._codecs[WEIGHTS].decoder.keeps_common
        received = ReceivedModel(self.layout.sizes) if store.carries_values and keeps else None
        with store.waiting("the model from"):
            if store.carries_values:
                store.init_shared(self._by_server(self._write(common, vectors, wire.NOTHING)))
                self._fetch(common, received or model, [0] * store.servers, range(store.servers))
            else:
                places = [_sizes_of(common.values(), server, answers=True) for server in range(store.servers)]
                store.init_shared(places)
                self._fetch_sizes(places)
            if received is not None:
                received.deliver(model, self.layout.sizes)
                if specification.private:
                    own = {WEIGHTS: uncompressed_codec(self.layout, specification.channel(WEIGHTS, self.rank), WEIGHTS)}
                    store.open(self._by_server(self._write(own, received.vectors, wire.NOTHING)))
            if keeps or specification.sparse:  # from now on the weights travel through other keys
                store.release([self.layout.key(bucket) for bucket in self.layout.of(WEIGHTS)])
        if received is not None and self._codecs[WEIGHTS].decoder.keeps_common:
            self._codecs[WEIGHTS].decoder.begin(self._common(model, received), shared.steps)
        statuses = self._statuses()
        return self.report(statuses, 0.0, 0.0, starting_status(statuses))

    # --- exchanging -------------------------------------------------------------------------------

    def start(self, payload: Payload, model: ModelSink) -> PendingExchange:
        """Send the payload and its commit; see `Exchange.start`."""
        store = self.store
        store.progressed()
        begun = store.now()
        store.inject_delay()
        self.sequence += 1
        sent = [0] * store.servers
        vectors: dict[str, Any] = dict(payload.vectors)
        if payload.step is not None:
            vectors[WEIGHTS] = payload.step
        own = {"round": self._round, "part": self.part, **payload.terms}
        waited_for = not (payload.discard or payload.unawaited)
        if payload.unawaited:
            own["round"] = 0  # the one that takes it in
            self._steps_aside = True
        elif waited_for and self._aside:
            own["includes"] = wire.encode_ranks(self._included(), wire.INCLUDED_BYTES)
        if self._host is not None and not waited_for:
            self._host.abstain()
        if self._host is not None and self._goes_with_host(payload):
            self._inform()
            self._host.start(vectors, self._message(wire.COMMIT, **own))
        else:
            if store.carries_values:
                for server, place in self._write(self._codecs, vectors, wire.PAYLOAD):
                    store.send(server, (place,))
                    sent[server] += 1
            else:
                for server, places in enumerate(self._sizes(vectors, answers=False)):
                    store.send(server, places)
            self._inform()
            for server in range(store.servers):
                self.say_to(server, wire.COMMIT, buckets=sent[server], **own)
        look = self.look if self._host is None else self._look_for_host
        if not self.specification.overlap:
            finish = partial(self._finish, model, payload, begun)
            return PendingExchange(store, self.sequence, look, finish)
        finish = partial(self._finish, self._received, payload, begun)
        deliver = partial(self._received.deliver, model, payload.returned)
        self._overlapped = OverlappedExchange(store, self.sequence, look, finish, deliver)
        return self._overlapped

    @override
    def step_aside(self, resting: bool = False) -> None:
        self._steps_aside = True
        if self._host is not None:
            self._host.abstain()
        self.say(wire.ASIDE, place=int(resting))

    @override
    def rest(self, seconds: float) -> bool:
        until = self.store.now() + seconds
        while True:
            first = self._statuses()[0]
            if first.finished or not _counted(first):
                return True
            left = until - self.store.now()
            if left <= 0:
                return False
            self.store.sleep(min(left, config.HEARTBEAT_EVERY))

    @override
    def heartbeat(self) -> None:
        self.store.progressed()
        self._beat()
        overlapped = self._overlapped is not None and not self._overlapped.done()  # its thread looks
        if self._met and self._watched and not overlapped and self.store.now() - self._looked > config.STATUS_EVERY:
            self._statuses()

    def stop(self) -> None:
        """See `Exchange.stop`; server 0 decides when the run ends."""
        if self._met:
            self.say_to(0, wire.STOP)

    def abort(self, reason: str) -> None:
        """See `Exchange.abort`; it returns when the servers know."""
        self._cancel()
        with self.store.waiting("the news of the abort to reach"):
            self.say(wire.ABORT, text=wire.encode_text(reason))
            self.store.flush()

    def close(self) -> None:
        """Say goodbye, without waiting for the other workers.

        A worker that has lost its slot leaves without a goodbye, which would tell servers that have
        not dropped it yet that its work is done.
        """
        if not self._closed:
            self._closed = True
            self._cancel()
            if self._host is not None:
                self._host.leave()
            self.store.close(None if self._lost else self._message(wire.DONE if self.store.finished else wire.LEAVE))

    # --- checkpoints ------------------------------------------------------------------------------

    @override
    def resume(self, state: ResumeState) -> None:
        self.exchanges = self.sequence = state.exchanges
        resumed = Resumed(self.rank, self.store.nonce, state.exchanges, state.progress)
        with self.store.waiting("the checkpoint's progress to reach"):
            self.store.command(resumed)
        self._mailboxes.put(state.rule_state, state.weights)

    def rule_state(self) -> list[np.ndarray | None]:
        """See `Exchange.rule_state`; buckets come one by one, through the servers' mailboxes."""
        return self._mailboxes.fetch()

    def server_weights(self) -> np.ndarray | None:
        """See `Exchange.server_weights`; they come through the mailboxes, too."""
        return self._mailboxes.fetch_weights() if self._codecs[WEIGHTS].decoder.lossy else None

    def assign(self, weights: np.ndarray) -> None:
        """See `Exchange.assign`; each worker sends the weights, since any may die before its commit."""
        self._mailboxes.assign(weights, self.sequence + 1)

    def unsent(self) -> dict[str, Any]:
        """See `Exchange.unsent`; the states are by the name of the vector."""
        states = {name: codec.encoder.state() for name, codec in self._codecs.items()}
        if self._host is not None:
            states[WEIGHTS] = self._host.unsent()
        return {name: state for name, state in states.items() if state}

    @override
    def restore_unsent(self, state: dict[str, Any]) -> None:
        for name, each in state.items():
            if self._host is not None and name == WEIGHTS:
                self._host.restore_unsent(each)
            elif "host" in each:
                raise ValueError(
                    "it has values that the workers of a host had not sent yet, and this worker exchanges by itself: "
                    "go on with the per_host that it was written with"
                )
            else:
                self._codecs[name].encoder.restore(each)

    @override
    def version(self) -> int:
        return self._statuses()[0].version

    # --- what the handles and the mailboxes use ---------------------------------------------------

    def look(self, status: Status) -> None:
        """Check a status, and send a heartbeat where one is due.

        Raises:
            JobAbortedError: some worker has ended the run because it failed.
            SlotLostError: this process has been declared dead.
        """
        store = self.store
        store.progressed()
        self._looked = store.now()
        if self._host is not None:
            self._host.note(status)
        if status.failure:
            raise JobAbortedError(status.failure)
        taken, dropped = status.nonce != store.nonce, store.lease < math.inf and self.rank not in status.members
        self._lost = taken or dropped
        if taken:
            raise SlotLostError(f"another process has taken over the slot of worker {self.rank}")
        if dropped:
            raise SlotLostError(
                f"worker {self.rank} was not heard for {store.lease:g} s (its process or machine stood still), or took "
                "no step for half of --round-timeout, and the others have gone on without it; start it again to take "
                "the slot back, with a longer --lease or --round-timeout where it needs that"
            )
        self._beat()

    def report(
        self, statuses: Sequence[Status], wait: float, transfer: float, deciding: Status | None = None
    ) -> Result:
        """Return the content of the servers' statuses as a result.

        Server 0 decides when the run ends, how commits are used, and which workers are excluded:
        the commit that asked for that may have reached some servers only, and the next payload
        tells the others which workers are excluded. Where servers are in different rounds, the next
        payload is part of the earliest one, and the workers that are excluded are those that this
        round does not wait for.

        Args:
            statuses: of all servers.
            wait: see `Result`.
            transfer: see `Result`.
            deciding: the status that counts; None: that of server 0.
        """
        status = statuses[0] if deciding is None else deciding
        self.store.finished = status.finished
        first, earliest = statuses[0], min(statuses, key=lambda each: each.rounds_together)
        self._round = earliest.rounds_together + 1
        self._excluded = first.excluded
        self._uninformed = [
            server
            for server, each in enumerate(statuses)
            if each.excluded != first.excluded and each.rounds_together == first.rounds_together
        ]
        self._aside = tuple(sorted({rank for each in statuses for rank in each.aside}))
        if self._host is not None and not self._steps_aside:
            self._host.ready(self._round)
        return Result(
            round=status.round,
            version=status.version,
            samples=status.samples,
            wait=wait,
            transfer=transfer,
            finished=status.finished,
            used=bool(status.use),
            elapsed=status.elapsed,
            exchanged_at=status.exchanged_at,
            members=status.members,
            needed=status.needed,
            whole=status.whole,
            step=status.step,
            synchronous=status.synchronous,
            fastest=status.fastest,
            scalars=status.scalars,
            samples_together=status.samples_together,
            excluded=earliest.excluded,
            aside=self._aside,
            resting=status.resting,
        )

    def say(self, kind: int, **fields: Any) -> None:
        """Send a message to all servers; before the handshake they do not know this worker."""
        if self._met:
            self._spoke = self.store.now()
            for server in range(self.store.servers):
                self.say_to(server, kind, **fields)

    def say_to(self, server: int, kind: int, **fields: Any) -> None:
        """Send a message to one server."""
        self.store.send(server, (), self._message(kind, **fields))

    # --- helpers ----------------------------------------------------------------------------------

    @property
    def _watched(self) -> bool:
        """Whether the servers monitor this worker."""
        return bool(self.store.address) or self.store.lease < math.inf

    def _beat(self) -> None:
        """Send the servers a heartbeat if one is due.

        With every message they check which other workers are alive.
        """
        if self._watched and self.store.now() - self._spoke > heartbeat_interval(self.store.lease):
            self.say(wire.NOTHING)

    def _send_heartbeat(self) -> None:
        """Tell the servers, from the background, that this worker is alive, while they need it."""
        if not self.store.finished:
            self.store.command(Heartbeat(self.rank, self.store.nonce))

    def _finish(self, model: ModelSink, payload: Payload, begun: float, statuses: Sequence[Status]) -> Result:
        """Fetch the wanted vectors from the servers, which have used the payload.

        Returns:
            The result of the exchange.
        """
        store, wanted = self.store, payload.returned
        if payload.back and statuses[0].use:
            self._steps_aside = False
        store.inject_delay()
        with store.waiting("the model from"):
            codecs = {name: codec for name, codec in self._codecs.items() if name in wanted}
            lengths = [status.answer for status in statuses]
            rest: Collection[int] = range(store.servers)
            missed = payload.discard or payload.unawaited  # rounds may have ended without this worker
            if missed and codecs[WEIGHTS].decoder.keeps_common:
                self._fetch_common(codecs, model)
                rest = ()
            elif self._host is not None:
                rest = self._host.fetch(codecs, model, lengths)
            if not rest:
                pass
            elif store.carries_values:
                self._fetch(codecs, model, lengths, rest)
            else:
                self._fetch_sizes(self._sizes(wanted, answers=True))
        wait = max(status.wait for status in statuses) + (self._host.waited if self._host is not None else 0.0)
        return self.report(statuses, wait, max(0.0, store.now() - begun - wait))

    def _message(self, kind: int, **fields: Any) -> dict[str, Any]:
        return {**self._fields, "kind": kind, "sequence": self.sequence, **fields}

    def _handshake(self, handshake: Handshake) -> list[Status]:
        with self.store.waiting("the handshake of"):
            self.store.send_handshake(handshake)
            self._met = True
        if self.store.lease < math.inf:
            self.store.start_heartbeats(self._send_heartbeat)
        return self._statuses()

    def _statuses(self) -> list[Status]:
        statuses = self.store.statuses()
        for status in statuses:
            self.look(status)
        return statuses

    def _rejoin(self, statuses: list[Status]) -> list[Status]:
        """Wait until this worker can take part in a round of a running job.

        What the dead worker has committed everywhere counts, so the round that it is part of has to
        end first.

        Returns:
            The servers' statuses then.
        """
        store = self.store
        with store.waiting("the end of the round that the dead worker has committed in at") as wait:
            while round_has_commit(
                [status.rounds_together for status in statuses], [status.committed for status in statuses]
            ):
                store.sleep(LONGEST_PAUSE)
                statuses = self._statuses()
                wait.check()
        return statuses

    def _join_host(self, statuses: Sequence[Status]) -> None:
        """Take this worker's place among those of its host, if there are others."""
        if self._host_group is None or len(self._host_group.ranks) == 1:
            return

        def write(vectors: Mapping[str, Any], attempt: int) -> Iterator[tuple[int, Place]]:
            return self._write(self._codecs, vectors, wire.PAYLOAD, attempt)

        host = HostExchange(
            self._host_group, self.store, self.specification, self.layout, self._codecs, write, self._sizes, self._beat
        )
        for status in statuses:
            host.note(status)
        if host.join(self.replacement):
            self._host = host

    def _goes_with_host(self, payload: Payload) -> bool:
        """Return whether a payload is added to those of this host's other workers.

        Raises:
            PerHostError: this mode has no rounds.
        """
        if payload.discard or payload.unawaited:
            return False
        if payload.together is None and not self.specification.synchronous:
            raise PerHostError("payloads that are used at once")
        return payload.together is not False

    def _look_for_host(self, status: Status) -> None:
        """Check a status (see `look`), and do what it asks for among the workers of this host."""
        self.look(status)
        if self._host is not None:
            self._host.look(status)

    def _inform(self) -> None:
        """Tell servers which workers the round does not wait for, where they do not know it."""
        for server in self._uninformed:
            self.say_to(server, wire.FOLLOW, round=self._round, text=wire.encode_ranks(self._excluded))

    def _write(
        self, codecs: Mapping[str, WorkerCodec], vectors: Mapping[str, Any], kind: int, attempt: int = 0
    ) -> Iterator[tuple[int, Place]]:
        """Put vectors where they are sent from; yield the server and the place of each array."""
        store, buffers = self.store, dict[int, np.ndarray]()

        def buffer(key: int, elements: int) -> np.ndarray:
            buffers[key] = store.buffer(key, wire.HEADER_ELEMENTS + elements)
            return buffers[key][wire.HEADER_ELEMENTS :]

        for name, codec in codecs.items():
            if name in vectors:
                for server, key, place in codec.encoder.write(vectors[name], buffer):
                    array = buffers.pop(key)
                    wire.stamp(array, kind, self.rank, store.nonce, self.sequence, place, attempt)
                    yield server, (key, array.size)

    def _by_server(self, places: Iterable[tuple[int, Place]]) -> list[list[Place]]:
        by_server: list[list[Place]] = [[] for _ in range(self.store.servers)]
        for server, place in places:
            by_server[server].append(place)
        return by_server

    def _fetch(
        self,
        codecs: Mapping[str, WorkerCodec],
        model: ModelSink,
        lengths: Sequence[int],
        servers: Collection[int],
    ) -> None:
        """Fetch vectors from servers, and write them to the model as they come.

        Args:
            codecs: of the vectors.
            model: takes the vectors.
            lengths: bytes of each server's answer, where its codec has to know.
            servers: their numbers.
        """
        store, under_way = self.store, []
        for server, length in enumerate(lengths):
            if server in servers:
                places = [wire.with_headers(codec.decoder.wanted(server, length)) for codec in codecs.values()]
                arrays = store.fetch(server, list(chain.from_iterable(places)))
                under_way.append((server, places, self._beating(arrays)))
        for server, places, arrays in under_way:
            for codec, part in zip(codecs.values(), places, strict=True):
                codec.decoder.read(server, islice(arrays, len(part)), lengths[server], model)

    def _fetch_common(self, codecs: Mapping[str, WorkerCodec], model: ModelSink) -> None:
        """Fetch vectors from all servers, the weights uncompressed.

        Compressed answers lead from one round to the next, so that they are of no use to a worker
        that has missed one.
        """
        store, shared = self.store, UncompressedDecoder(self.layout, 0)
        plain = {**codecs, WEIGHTS: codecs[WEIGHTS]._replace(decoder=shared)}
        if not store.carries_values:
            self._fetch_sizes([_sizes_of(plain.values(), server, answers=True) for server in range(store.servers)])
            return
        received = ReceivedModel(self.layout.sizes)
        self._fetch(plain, received, [0] * store.servers, range(store.servers))
        received.deliver(model, codecs)
        store.release([self.layout.key(bucket) for bucket in self.layout.of(WEIGHTS)])
        self._codecs[WEIGHTS].decoder.begin(self._common(model, received), shared.steps)

    def _included(self) -> list[int]:
        """Return the ranks whose unawaited commits the next round can take in.

        They are those that all servers have, but for servers that have used them already. Where a
        leader before has reached some servers only, this round is over there: a commit that they
        have not used in it may not be used on the others, or the run may end with it on some. It
        looks at the servers now, on the worker whose commit counts, so that they need not wait for
        the round after the next one.
        """
        statuses = self._statuses()
        leaders = {min(_counted(status), default=-1) for status in statuses}
        if self.rank not in leaders:
            return []
        found: list[int] = []
        for rank in sorted({rank for status in statuses for rank in status.aside}):
            slots = [(status.slot(rank), status.rounds_together >= self._round) for status in statuses]
            same = len({slot.acknowledged + slot.committed for slot, _ in slots}) == 1
            waits = any(slot.committed for slot, _ in slots)
            if same and waits and all(not slot.committed and slot.used if over else slot.committed or slot.used
                                      for slot, over in slots):  # fmt: skip
                found.append(rank)
        return found

    def _beating(self, arrays: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        """Yield arrays as they come, and send heartbeats in between.

        All of them may take longer than the lease.
        """
        for array in arrays:
            self._beat()
            yield array

    def _fetch_sizes(self, places: Sequence[Sequence[Place]]) -> None:
        """Wait as long as fetching arrays of these sizes takes; places are by server."""
        for arrays in [self.store.fetch(server, part) for server, part in enumerate(places)]:
            for _ in arrays:
                pass

    def _sizes(self, names: Collection[str], answers: bool) -> Sequence[Sequence[Place]]:
        """Return the sizes of these vectors' arrays, without values, by server.

        They are those in payloads, or in answers.
        """
        key = frozenset(names), answers
        if key not in self._sized:
            codecs = [codec for name, codec in self._codecs.items() if name in names]
            self._sized[key] = [_sizes_of(codecs, server, answers) for server in range(self.store.servers)]
        return self._sized[key]

    def _common(self, model: ModelSink, received: ReceivedModel) -> dict[int, np.ndarray]:
        """Return the memory of the common weights: index of a bucket → its values.

        It is the model's where the model has them already, so that no exchange has to copy them.
        Where it has none, or where they may be needed while an exchange is under way, it is that of
        the received model.
        """
        kept = model.common_weights() if isinstance(model, KeepsCommon) and not self.specification.overlap else None
        weights = received.vectors[WEIGHTS].values if kept is None else kept
        return {bucket.index: weights[bucket.start : bucket.stop] for bucket in self.layout.of(WEIGHTS)}

    def _cancel(self) -> None:
        """Cancel the exchange that is under way, if any."""
        if self._overlapped is not None:
            self._overlapped.cancel()
            self._overlapped = None


def _counted(status: Status) -> set[int]:
    """Return the ranks that a server's rounds wait for."""
    return set(status.members).difference(status.excluded, status.aside)


def _sizes_of(codecs: Iterable[WorkerCodec], server: int, answers: bool) -> list[Place]:
    """Return the places of the arrays that these codecs send to a server, or get from it."""
    sizes = (codec.decoder.answer_sizes(server) if answers else codec.encoder.sizes(server) for codec in codecs)
    return wire.with_headers((NO_KEY, elements) for part in sizes for elements in part)
