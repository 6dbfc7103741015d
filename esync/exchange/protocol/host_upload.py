"""Upload of the payloads of one host's workers: all contribute, one of them sends the sum.

For each vector, the payload of several workers is Σ factor · values, with the factors of its
weighting (`weighting.factor`); the servers add it without further factors. Packed weights are the
mean instead, which has the range of one worker's values; the servers multiply it by Σ factor.

The residual of packing belongs to the host. It is in shared memory, in two buffers that alternate:
when a commit begins, the other one becomes valid. A carrier works on a private copy, and writes it
back only while it holds the lock and is still the carrier. So a carrier that was suspended does no
harm when it continues.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..base import Source
from ..codecs.buckets import BucketEncoder
from ..host_group import NOBODY
from ..weighted_sum import WeightedSum
from ..weighting import factor
from . import wire
from .host_member import HostMember
from .layout import WEIGHTS, Layout
from .scalars import COMPRESSION
from .specification import Specification
from .status import Status
from .store import Store
from .transfer import Transfer


@dataclass
class Contribution:
    """The payload of this worker in the current round.

    Times are in seconds of the store's clock.

    Attributes:
        vectors: names, in the layout's order.
        fields: of its commit, except "buckets" and "index".
        round: number of the round.
        sequence: number of the exchange.
        since: time at which it was written.
        attempt: number of the next attempt to send arrays.
        sent_individually: servers to which this worker has sent it by itself.
        carrier: rank and nonce of the carrier that this worker waits for, and the time since then.
        begun: time at which this worker saw that the group's commit had begun.
    """

    vectors: tuple[str, ...]
    fields: dict[str, Any]
    round: int
    sequence: int
    since: float
    attempt: int = 0
    sent_individually: set[int] = field(default_factory=set)
    carrier: tuple[int, int, float] = (NOBODY, 0, math.inf)
    begun: float = math.inf


class HostUpload:
    """Sends this worker's payloads to the servers, in the sum of its host or alone.

    Args:
        member: this worker's entry in the table of its host.
        store: connection to the servers.
        specification: of the exchange.
        layout: how the model is cut into buckets.
        transfer: of vectors to the servers.

    Attributes:
        contribution: to the current round; None: there is none.
        encoder: of the weights, if it keeps a residual; else None.
    """

    def __init__(
        self, member: HostMember, store: Store, specification: Specification, layout: Layout, transfer: Transfer
    ) -> None:
        self._member, self._group, self._store = member, member.group, store
        self._scalars, self._weightings = specification.scalars, specification.weightings()
        self._layout, self._transfer = layout, transfer
        self.encoder: BucketEncoder | None = transfer.residual_encoder
        self._statuses: dict[int, Status] = {}  # server → its newest status
        self.contribution: Contribution | None = None
        self._individual_residual = False  # whether the encoder has a residual of this worker alone

    def start(self, vectors: Mapping[str, Source], fields: dict[str, Any]) -> None:
        """Contribute a payload; send the sum if no other worker of the host is awaited.

        Args:
            vectors: name → values.
            fields: of the commit.
        """
        names = tuple(name for name in self._layout.sizes if name in vectors)
        self._fill(vectors)
        contribution = Contribution(names, fields, int(fields["round"]), int(fields["sequence"]), self._store.now())
        self.contribution = contribution
        commit = wire.message(scalars=self._scalars, **fields)
        members: list[np.ndarray] = []
        with self._group.locked() as table:
            if self._member.owns_entry(table):
                entry = self._member.entry(table)
                entry["contributed"], entry["commit"] = contribution.round, commit
                entry["vectors"] = self._member.mask(names)
                entry["carrier"], entry["begun"] = NOBODY, 0
                members = self._form(table, contribution)
        if members:
            self._carry(members, contribution)

    def follow(self, status: Status) -> None:
        """Act on a server's status, which has been noted, during the exchange.

        This worker may become the carrier, or send its payload by itself. Workers of this host that
        have contributed are removed from `status.late`.
        """
        contribution = self.contribution
        if contribution is None or status.acknowledged >= contribution.sequence or status.nonce != self._store.nonce:
            return
        members: list[np.ndarray] = []
        alone = False
        with self._group.locked() as table:
            entry = self._member.entry(table)
            if not self._member.owns_entry(table) or entry["contributed"] != contribution.round:
                return
            if entry["begun"]:
                alone = status.server not in contribution.sent_individually
                alone = alone and self._is_lost(table, entry, status, contribution)
            elif not self._has_carrier(table, entry, contribution):
                members = self._form(table, contribution)
            contributed = table["workers"]["contributed"] == contribution.round
        ready = {rank for rank, is_ready in zip(self._group.ranks, contributed, strict=True) if is_ready}
        status.late = tuple(rank for rank in status.late if rank not in ready)
        if members:
            self._carry(members, contribution)
        elif alone:
            self._send_individually(status.server, contribution)

    def note(self, status: Status) -> None:
        """Remember a server's status."""
        self._statuses[status.server] = status

    def finish(self) -> tuple[Contribution | None, float]:
        """Remove the contribution after the servers have used it.

        Returns:
            The contribution, and the seconds that it has waited for those of the host's other
            workers.
        """
        contribution, self.contribution = self.contribution, None
        if contribution is None:
            return None, 0.0
        with self._group.locked() as table:
            entry = self._member.entry(table)
            if self._member.owns_entry(table) and entry["contributed"] == contribution.round and entry["begun"]:
                return contribution, max(0.0, float(entry["gathered"]) - contribution.since)
        return contribution, 0.0

    # --- checkpoints ------------------------------------------------------------------------------

    def unsent(self) -> dict[str, Any]:
        """Return the residual of the weights as a codec's state; see `Exchange.unsent`.

        The state of the host's first worker includes the host's residual.
        """
        encoder = self.encoder
        if encoder is None:
            return {}
        state: dict[str, Any] = {"rest": encoder.residual} if self._individual_residual else {}
        if self._member.position == 0:
            with self._group.locked() as table:
                generation = int(table["residual"])
            state["host"] = self._group.residual(generation % 2)
            state["ranks"] = list(self._group.ranks)
        return state

    def sent_individually(self) -> None:
        """Note that this worker has sent a payload by itself, so that the encoder has a residual of it."""
        self._individual_residual = self.encoder is not None

    def restore_unsent(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `unsent` has returned.

        Raises:
            KeyError, ValueError: the state does not fit this job.
        """
        encoder = self.encoder
        if encoder is None:
            raise ValueError("it has values that were not sent yet, and this codec keeps none")
        if "host" in state and tuple(state["ranks"]) != self._group.ranks:
            raise ValueError(
                f"it has values that workers {_listed(state['ranks'])}, which shared a host, had not sent yet, and now "
                f"workers {_listed(self._group.ranks)} share one: go on with the workers on each host as they were"
            )
        if "rest" in state:
            encoder.restore(state)
            self._individual_residual = True
        if "host" in state:
            with self._group.locked() as table:
                generation = int(table["residual"]) + 1  # carriers that have used the old one start again
                np.copyto(self._group.residual(generation % 2), state["host"])
                table["residual"] = generation

    # --- groups -----------------------------------------------------------------------------------

    def _is_awaited(self, rank: int, nonce: int) -> bool:
        """Return whether, by the newest statuses, rounds wait for this process."""
        for status in self._statuses.values():
            away = rank not in status.members or rank in status.excluded or rank in status.aside
            if away or status.slot(rank).nonce != nonce:
                return False
        return True

    def _form(self, table: Any, contribution: Contribution) -> list[np.ndarray]:
        """Make this worker the carrier of all that have contributed, unless others are awaited.

        Returns:
            Copies of the members' entries in the table; empty if others are awaited.
        """
        hung = self._store.now() - contribution.since > self._store.lease
        members: list[int] = []
        vectors = self._member.entry(table)["vectors"]
        for position, rank in enumerate(self._group.ranks):
            entry = table["workers"][position]
            if position == self._member.position:
                members.append(position)
            elif self._group.alive(rank) and self._is_awaited(rank, int(entry["nonce"])):
                if entry["contributed"] == contribution.round:
                    if entry["carrier"] == NOBODY and entry["vectors"] == vectors:
                        members.append(position)
                elif 0 < entry["next_round"] <= contribution.round and not hung:
                    return []
        for position in members:
            entry = table["workers"][position]
            entry["carrier"], entry["carrier_nonce"] = self._group.rank, self._store.nonce
            entry["gathered"] = self._store.now()
        return [table["workers"][position].copy() for position in members]

    def _has_carrier(self, table: Any, entry: Any, contribution: Contribution) -> bool:
        """Return whether this worker has a carrier that is alive; if not, dissolve its group."""
        carrier, nonce = int(entry["carrier"]), int(entry["carrier_nonce"])
        if carrier == NOBODY:
            return False
        now = self._store.now()
        if contribution.carrier[:2] != (carrier, nonce):
            contribution.carrier = carrier, nonce, now
        if self._member.is_present(table, carrier, nonce) and now - contribution.carrier[2] <= self._store.lease:
            return True
        self._free(table, contribution, carrier, nonce)
        return False

    def _free(self, table: Any, contribution: Contribution, carrier: int, nonce: int) -> None:
        """Dissolve the group of a carrier whose commit has not begun."""
        for entry in table["workers"]:
            group = entry["contributed"], entry["begun"], entry["carrier"], entry["carrier_nonce"]
            if group == (contribution.round, 0, carrier, nonce):
                entry["carrier"] = NOBODY

    def _is_lost(self, table: Any, entry: Any, status: Status, contribution: Contribution) -> bool:
        """Return whether this worker has to send a server its own payload: the group's may never count there."""
        slots = [status.slot(rank) for rank in self._group.ranks]
        if slots[self._member.position].committed:
            return False
        if not self._member.is_present(table, int(entry["carrier"]), int(entry["carrier_nonce"])):
            return True
        contribution.begun = min(contribution.begun, self._store.now())
        if self._store.now() - contribution.begun > self._store.lease:
            return True
        return any(
            nonce and (slot.nonce != nonce or not slot.member or slot.committed or slot.acknowledged >= sequence)
            for slot, nonce, sequence in zip(slots, entry["members"], entry["sequences"], strict=True)
        )

    # --- sending ----------------------------------------------------------------------------------

    def _fill(self, vectors: Mapping[str, Source]) -> None:
        """Write this worker's payload to the shared memory."""
        for name, source in vectors.items():
            array = self._group.contribution(self._group.rank, name)
            if array.size:
                source.read(0, array.size, array)
        if self._individual_residual and WEIGHTS in vectors and (encoder := self.encoder) is not None:
            weights = self._group.contribution(self._group.rank, WEIGHTS)
            weights += encoder.residual
            encoder.residual[:] = 0
            self._individual_residual = False
        self._group.moved(2 * self._elements(vectors))

    def _carry(self, members: Sequence[Any], contribution: Contribution) -> None:
        """Send the payload of a group, record that its commit begins, and send the commits."""
        group, store = self._group, self._store
        encoder = self.encoder if WEIGHTS in contribution.vectors else None
        generation = 0
        if encoder is not None:
            # A copy, because another worker may become the carrier in the meantime.
            with group.locked() as table:
                generation = int(table["residual"])
            np.copyto(encoder.residual, group.residual(generation % 2))
        try:
            sums = self._sums(contribution, members)
            attempt, sent = self._send_arrays(contribution, sums, range(store.servers))
            begun = self._begin_commit(contribution, members, None if encoder is None else encoder.residual, generation)
        finally:
            if encoder is not None:
                encoder.residual[:] = 0
        if not begun:
            return
        others = [member["commit"].copy() for member in members if member["commit"]["rank"] != group.rank]
        for commit in others:
            commit["kind"] = wire.MEMBER
        for server in range(store.servers):
            store.send(server, (), {**contribution.fields, "buckets": sent[server], "index": attempt}, others)

    def _begin_commit(
        self, contribution: Contribution, members: Sequence[Any], residual: np.ndarray | None, generation: int
    ) -> bool:
        """Record that a group's commit begins, unless the others have gone on without this carrier.

        Args:
            contribution: of this worker.
            members: their entries when the group was formed.
            residual: of the group's payload; becomes the host's residual.
            generation: number of the residual that was added to the payload.

        Returns:
            Whether the commit may be sent.
        """
        group = self._group
        positions = [group.ranks.index(int(member["commit"]["rank"])) for member in members]
        with group.locked() as table:
            entry = self._member.entry(table)
            carrier = (group.rank, self._store.nonce)
            carries = (entry["carrier"], entry["carrier_nonce"]) == carrier and self._member.owns_entry(table)
            if not carries or entry["begun"]:
                return False  # the others have gone on without this worker
            another_group_used_residual = residual is not None and table["residual"] != generation
            if another_group_used_residual or any(
                table["workers"][position]["nonce"] != member["nonce"]  # the member has been replaced
                for position, member in zip(positions, members, strict=True)
            ):
                self._free(table, contribution, *carrier)
                return False
            for position in positions:
                entry = table["workers"][position]
                entry["begun"], entry["members"], entry["sequences"] = 1, 0, 0
                for other, member in zip(positions, members, strict=True):
                    entry["members"][other] = member["nonce"]
                    entry["sequences"][other] = member["commit"]["sequence"]
            if residual is not None:
                np.copyto(group.residual((generation + 1) % 2), residual)
                table["residual"] = generation + 1
        return True

    def _sums(self, contribution: Contribution, members: Sequence[Any]) -> dict[str, Source]:
        """Return the vectors of a group's payload: sums, except for packed weights, a mean."""
        sums: dict[str, Source] = {}
        ranks = [int(member["commit"]["rank"]) for member in members]
        samples = [int(member["commit"]["samples"]) for member in members]
        for name in contribution.vectors:
            factors = [factor(self._weightings[name], count) for count in samples]
            arrays = [self._group.contribution(rank, name) for rank in ranks]
            if len(members) == 1:
                sums[name] = WeightedSum(arrays, [1.0])
            else:
                packed = name == WEIGHTS and self.encoder is not None
                sums[name] = WeightedSum(arrays, factors, sum(factors) if packed else 1.0)
        self._group.moved((len(members) + 1) * self._elements(contribution.vectors))
        return sums

    def _send_individually(self, server: int, contribution: Contribution) -> None:
        """Send this worker's payload and its commit to one server."""
        contribution.sent_individually.add(server)
        encoder = self.encoder
        before = None if encoder is None else encoder.residual.copy()
        vectors = {
            name: WeightedSum([self._group.contribution(self._group.rank, name)], [1.0])
            for name in contribution.vectors
        }
        attempt, sent = self._send_arrays(contribution, vectors, [server])
        if encoder is not None and before is not None:
            self._individual_residual = True
            for bucket in self._layout.of(WEIGHTS):
                if bucket.shard != server:
                    encoder.residual[bucket.start : bucket.stop] = before[bucket.start : bucket.stop]
        self._store.send(server, (), {**contribution.fields, "buckets": sent[server], "index": attempt})

    def _send_arrays(
        self, contribution: Contribution, vectors: Mapping[str, Any], servers: Collection[int]
    ) -> tuple[int, list[int]]:
        """Send the arrays of a payload to these servers.

        Returns:
            The attempt's number, and the number of arrays that were sent to each server.
        """
        attempt, compression = contribution.attempt, contribution.fields.get(COMPRESSION, 0)
        contribution.attempt += 1
        return attempt, self._transfer.send(vectors, contribution.sequence, servers, attempt, compression)

    def _elements(self, names: Iterable[str]) -> int:
        return sum(self._layout.sizes[name] for name in names)


def _listed(ranks: Iterable[int]) -> str:
    return ", ".join(map(str, ranks))
