"""The worker's end of the protocol, over any store.

An exchange sends the payload array by array, then a commit to every server. When all servers have
used it, the worker fetches the model, into the memory that the payload was sent from. So one buffer
of the model's size is enough.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from typing_extensions import override

from ... import config
from ...runtime import progress
from ..base import NO_OFFERS, Exchange, ModelSink, Payload, Result, Source
from ..codecs.factory import worker_codec
from ..codecs.uncompressed import uncompressed_codec
from ..host_group import HostGroup
from . import wire
from .handshake import Handshake, Heartbeat, Resumed
from .host_exchange import HostExchange
from .layout import WEIGHTS
from .mailbox import Mailboxes
from .pending import OverlappedExchange, PendingExchange, ReceivedModel
from .replacement_recovery import completed_exchanges, round_has_commit, starting_status
from .resume_negotiation import Offers, ResumeState
from .round_state import Limits
from .specification import PerHostError, Specification
from .status import Status
from .status_reader import StatusReader, awaited_ranks
from .store import LONGEST_PAUSE, Store, heartbeat_interval
from .transfer import SizeTransfer, ValueTransfer


class ParameterServerExchange(Exchange):
    """The exchange over parameter servers.

    Args:
        specification: of the exchange.
        store: connection to the servers.
        host_group: the memory that the workers of this host share; None: every worker exchanges for
            itself.

    Attributes:
        specification: as given, with `per_host` of the host group.
        store: as given.
        sequence: number of the current exchange, from 1.
        layout: how the model is cut into buckets; set by `join`.
        transfer: of vectors, to and from the servers; set by `join`.
    """

    def __init__(
        self,
        specification: Specification,
        store: Store,
        host_group: HostGroup | None = None,
    ) -> None:
        if host_group is not None:
            specification = replace(specification, per_host=host_group.max_size)
        self.specification, self.store, self._host_group = specification, store, host_group
        self._host: HostExchange | None = None  # None: this worker exchanges for itself
        self.rank, self.workers = store.rank, store.workers
        self.exchanges = self.sequence = 0
        self.replacement = False
        self.job, self.resume_at, self.part = 0, -1, 0
        self._statuses = StatusReader(store, self._observe)
        self._aside = False  # whether this worker has requested that rounds not wait for it
        self._overlapped: OverlappedExchange | None = None
        self._closed = self._introduced = False
        self._contacted_at = -math.inf  # when this worker last sent all servers a message
        self._fields: dict[str, Any] = {
            **wire.blank_message(specification.scalars),
            "rank": store.rank,
            "nonce": store.nonce,
        }

    # --- start ------------------------------------------------------------------------------------

    @override
    def join(
        self,
        sizes: Mapping[str, int],
        limits: Limits,
        agreement: dict[str, Any],
        offers: Offers = NO_OFFERS,
    ) -> None:
        store = self.store
        sent_sizes = store.sizes(sizes)
        transfer_class = ValueTransfer if store.carries_values else SizeTransfer
        if not store.carries_values:  # the tensors of a model of that size are not known
            self.specification = replace(self.specification, tensors=[sent_sizes[WEIGHTS]])
        handshake = Handshake(
            rank=self.rank,
            nonce=store.nonce,
            slots=self.workers,
            sizes=sent_sizes,
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
        codecs = {name: uncompressed_codec(self.layout, 0, name) for name in self.layout.sizes}
        codecs[WEIGHTS] = worker_codec(self.specification, self.layout, self.workers, self.rank)
        self.transfer = transfer_class(self.specification, store, self.layout, codecs, self._beat)
        self._mailboxes = Mailboxes(store, self.layout, self.specification.state_vectors, self.send_to)
        if self.specification.overlap:
            self._received = ReceivedModel(sizes)
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
        if any(self.rank in status.aside for status in statuses):
            self._abstain()  # as the worker whose slot this is

    @override
    def begin(self, vectors: Mapping[str, Source], model: ModelSink) -> Result:
        with self.store.waiting("the model from"):
            self.transfer.begin(vectors, model)
        statuses = self._statuses.read()
        return self._result(statuses, 0.0, 0.0, starting_status(statuses))

    # --- exchanges --------------------------------------------------------------------------------

    def start(self, payload: Payload, model: ModelSink) -> PendingExchange:
        """Send the payload and its commit; see `Exchange.start`."""
        store = self.store
        store.progressed()
        begun = store.now()
        store.inject_delay()
        self.sequence += 1
        vectors: dict[str, Any] = dict(payload.vectors)
        if payload.step is not None:
            vectors[WEIGHTS] = payload.step
        control = payload.control
        fields = {"round": self._statuses.round, "part": self.part, **payload.fields}
        if control.in_later_round:
            fields["round"] = 0  # the round that includes it is not known yet
            self._aside = True
        elif control.in_this_round and self._statuses.aside:
            fields["includes"] = wire.encode_ranks(self._statuses.includable(), wire.INCLUDED_BYTES)
        if self._host is not None and not control.in_this_round:
            self._host.abstain()
        if self._host is not None and self._joins_host_payload(payload):
            self._inform()
            self._host.upload.start(vectors, self._message(wire.COMMIT, **fields))
        else:
            sent = self.transfer.send(vectors, self.sequence, compression=payload.compression_number)
            if self._host is not None and not control.in_this_round and vectors:
                self._host.upload.sent_individually()
            self._inform()
            for server in range(store.servers):
                self.send_to(server, wire.COMMIT, buckets=sent[server], **fields)
        check = self._statuses.check if self._host is None else self._check_for_host
        if not self.specification.overlap:
            finish = partial(self._finish, model, payload, begun)
            return PendingExchange(store, self.sequence, check, finish)
        finish = partial(self._finish, self._received, payload, begun)
        deliver = partial(self._received.deliver, model, payload.returned)
        self._overlapped = OverlappedExchange(store, self.sequence, check, finish, deliver)
        return self._overlapped

    @override
    def step_aside(self, resting: bool = False) -> None:
        self._abstain()
        self.send_to_all(wire.ASIDE, index=int(resting))

    @override
    def rest(self, seconds: float) -> bool:
        deadline = self.store.now() + seconds
        while True:
            first = self._statuses.read()[0]
            if first.finished or not awaited_ranks(first):
                return True
            remaining = deadline - self.store.now()
            if remaining <= 0:
                return False
            self.store.sleep(min(remaining, config.HEARTBEAT_EVERY))

    @override
    def heartbeat(self) -> None:
        self.store.progressed()
        self._beat()
        overlapped = self._overlapped is not None and not self._overlapped.done()  # its thread reads the statuses
        if self._introduced and self._watched and not overlapped and self._statuses.stale:
            self._statuses.read()

    def stop(self) -> None:
        """See `Exchange.stop`; server 0 decides when the run ends."""
        if self._introduced:
            self.send_to(0, wire.STOP)

    def abort(self, reason: str) -> None:
        """See `Exchange.abort`; it returns when the servers have the message."""
        self._cancel()
        with self.store.waiting("the news of the abort to reach"):
            self.send_to_all(wire.ABORT, text=wire.encode_text(reason))
            self.store.flush()

    def close(self) -> None:
        """Send the servers a goodbye and disconnect, without waiting for the other workers.

        A worker that has lost its slot sends none: for servers that have not dropped it yet, a
        goodbye would mean that it has done its work.
        """
        if not self._closed:
            self._closed = True
            self._cancel()
            if self._host is not None:
                self._host.leave()
            self.store.close(
                None if self._statuses.lost else self._message(wire.DONE if self.store.finished else wire.LEAVE)
            )

    # --- checkpoints ------------------------------------------------------------------------------

    @override
    def resume(self, state: ResumeState) -> None:
        self.exchanges = self.sequence = state.exchanges
        resumed = Resumed(self.rank, self.store.nonce, state.exchanges, state.progress)
        with self.store.waiting("the checkpoint's progress to reach"):
            self.store.command(resumed)
        self._mailboxes.put(state.rule_state, state.weights)

    def rule_state(self) -> list[np.ndarray | None]:
        """See `Exchange.rule_state`; buckets are sent one by one, through the servers' mailboxes."""
        return self._mailboxes.fetch()

    def server_weights(self) -> np.ndarray | None:
        """See `Exchange.server_weights`; they are sent through the mailboxes, too."""
        return self._mailboxes.fetch_weights() if self.transfer.codecs[WEIGHTS].decoder.lossy else None

    def assign(self, weights: np.ndarray, vector: str = WEIGHTS) -> None:
        """See `Exchange.assign`; every worker sends the weights, because any may die before its commit."""
        self._mailboxes.assign(weights, self.sequence + 1, vector)

    def unsent(self) -> dict[str, Any]:
        """See `Exchange.unsent`; returns name of a vector → state of its encoder."""
        states = {name: codec.encoder.state() for name, codec in self.transfer.codecs.items()}
        if self._host is not None:
            states[WEIGHTS] = self._host.upload.unsent()
        return {name: state for name, state in states.items() if state}

    @override
    def restore_unsent(self, state: dict[str, Any]) -> None:
        for name, unsent in state.items():
            if self._host is not None and name == WEIGHTS:
                self._host.upload.restore_unsent(unsent)
            elif "host" in unsent:
                raise ValueError(
                    "it has values that the workers of a host had not sent yet, and this worker exchanges by itself: "
                    "go on with the per_host that it was written with"
                )
            else:
                self.transfer.codecs[name].encoder.restore(unsent)

    @override
    def version(self) -> int:
        return self._statuses.read()[0].version

    @override
    def newest_round(self) -> int:
        return self._statuses.read()[0].round

    # --- messages ---------------------------------------------------------------------------------

    def send_to_all(self, kind: int, **fields: Any) -> None:
        """Send a message to all servers; before the handshake, do nothing."""
        if self._introduced:
            self._contacted_at = self.store.now()
            for server in range(self.store.servers):
                self.send_to(server, kind, **fields)

    def send_to(self, server: int, kind: int, **fields: Any) -> None:
        """Send a message to one server."""
        self.store.send(server, (), self._message(kind, **fields))

    # --- helpers ----------------------------------------------------------------------------------

    def _abstain(self) -> None:
        """Take no part in the exchanges of this host."""
        self._aside = True
        if self._host is not None:
            self._host.abstain()

    @property
    def _watched(self) -> bool:
        """Whether the servers monitor this worker."""
        return bool(self.store.address) or self.store.lease < math.inf

    def _beat(self) -> None:
        """Send the servers a heartbeat if one is due, on which they also check the other workers."""
        if self._watched and self.store.now() - self._contacted_at > heartbeat_interval(self.store.lease):
            self.send_to_all(wire.NOTHING)

    def _send_heartbeat(self) -> None:
        """Send the servers a heartbeat from the background, until the run is finished."""
        if not self.store.finished:
            self.store.command(Heartbeat(self.rank, self.store.nonce))

    def _finish(self, model: ModelSink, payload: Payload, begun: float, statuses: Sequence[Status]) -> Result:
        """Fetch the requested vectors from the servers, which have used the payload."""
        store = self.store
        if payload.control.use == wire.BACK and statuses[0].use:
            self._aside = False
        store.inject_delay()
        with store.waiting("the model from"):
            requested = payload.returned
            names = [name for name in self.layout.sizes if name in requested]
            forms = [status.answer for status in statuses]
            may_have_missed_rounds = not payload.control.in_this_round
            if may_have_missed_rounds and self.transfer.codecs[WEIGHTS].decoder.keeps_common:
                self.transfer.fetch_common(names, model)
            else:
                servers: Collection[int] = range(store.servers)
                if self._host is not None:
                    servers = self._host.fetch(names, model, forms)
                if servers:
                    self.transfer.fetch(names, model, forms, servers)
        wait = max(status.wait for status in statuses) + (self._host.waited if self._host is not None else 0.0)
        deciding = starting_status(statuses) if payload.position else None
        return self._result(statuses, wait, max(0.0, store.now() - begun - wait), deciding)

    def _message(self, kind: int, **fields: Any) -> dict[str, Any]:
        return {**self._fields, "kind": kind, "sequence": self.sequence, **fields}

    def _handshake(self, handshake: Handshake) -> list[Status]:
        with self.store.waiting("the handshake of"):
            self.store.send_handshake(handshake)
            self._introduced = True
        if self.store.lease < math.inf:
            self.store.start_heartbeats(self._send_heartbeat)
        return self._statuses.read()

    def _observe(self, status: Status) -> None:
        """Pass a status on to the host's exchange, and send a heartbeat if one is due."""
        if self._host is not None:
            self._host.upload.note(status)
        self._beat()

    def _result(
        self, statuses: Sequence[Status], wait: float, transfer: float, deciding: Status | None = None
    ) -> Result:
        """Return the result in the statuses, and announce the next round to the host's workers."""
        result = self._statuses.result(statuses, wait, transfer, deciding)
        if self._host is not None and not self._aside:
            self._host.ready(self._statuses.round)
        return result

    def _rejoin(self, statuses: list[Status]) -> list[Status]:
        """Wait for the end of a round to which the dead worker has contributed, if any.

        Returns:
            The servers' statuses after it.
        """
        store = self.store
        with store.waiting("the end of the round that the dead worker has committed in at") as wait:
            while round_has_commit(
                [status.rounds_together for status in statuses], [status.committed for status in statuses]
            ):
                store.sleep(LONGEST_PAUSE)
                statuses = self._statuses.read()
                wait.check()
        return statuses

    def _join_host(self, statuses: Sequence[Status]) -> None:
        """Join the exchanges of this worker's host, if it has other workers."""
        if self._host_group is None or len(self._host_group.ranks) == 1:
            return
        host = HostExchange(self._host_group, self.store, self.specification, self.layout, self.transfer, self._beat)
        for status in statuses:
            host.upload.note(status)
        if host.join(self.replacement):
            self._host = host

    def _joins_host_payload(self, payload: Payload) -> bool:
        """Return whether a payload is added to those of this host's other workers.

        Raises:
            PerHostError: this mode has no rounds.
        """
        control = payload.control
        if control.use == wire.AS_AGREED and not self.specification.synchronous:
            raise PerHostError("payloads that are used at once")
        return control.in_this_round and control.use != wire.AT_ONCE

    def _check_for_host(self, status: Status) -> None:
        """Check a status, and act on it in the exchange of this host."""
        self._statuses.check(status)
        if self._host is not None:
            self._host.upload.follow(status)

    def _inform(self) -> None:
        """Send the excluded workers to servers that do not know them."""
        for server in self._statuses.uninformed:
            self.send_to(
                server, wire.FOLLOW, round=self._statuses.round, text=wire.encode_ranks(self._statuses.excluded)
            )

    def _cancel(self) -> None:
        """Cancel the overlapped exchange, if any."""
        if self._overlapped is not None:
            self._overlapped.cancel()
            self._overlapped = None
