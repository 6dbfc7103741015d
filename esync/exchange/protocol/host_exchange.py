"""Exchanges of the workers of one host as one: one payload and one answer for all of them.

A worker writes its payload into shared memory (`host_group`). Whoever finds that all of its host
that can be expected have done so becomes the *carrier* of a group: it adds their payloads up, in
rank order, and sends the sum with one message that has the commits of all. After the round one of
them fetches the answer, and the others read it from shared memory.

Correctness lies with the servers, which count every commit once or never, so a group may be of any
size, and a worker that is in none exchanges for itself:

* Whoever dies before its carrier has noted that the commit has begun has sent nothing that counts;
  another one becomes the carrier of those that are alive.
* From then on all of the group may be counted. A server takes all or none; a worker that finds that
  a server has not counted it, and that the group's commit may never come or not be taken, sends its
  payload to that server by itself. What comes twice is not counted twice.

Payloads of several workers are Σ factor · values of each vector, with the factors of its weighting
(`weighting.factor`); the servers add them as they are. Packed weights are the mean, which has the
range of one worker's values; the servers multiply it by Σ factor. What packing cannot express
belongs to the host: it is in shared memory, in two buffers, of which the other one counts as soon
as a commit has begun. A carrier works on a copy of its own, and puts it there only while it holds
the lock and finds that it still is the carrier: one that has hung spoils nothing when it goes on.
"""

import logging
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from ... import config
from .. import blockwise
from ..base import ModelSink, SlotLostError, Source
from ..codecs.buckets import BucketEncoder
from ..host_group import NOBODY, HostGroup, HostMemoryPlan, table_type
from ..weighting import factor
from . import wire
from .layout import WEIGHTS, Layout
from .specification import Specification
from .status import Status
from .store import LONGEST_PAUSE, ArraySpec, Store
from .transfer import Transfer

log = logging.getLogger(__name__)

#: States of a server's answer in shared memory.
ABSENT, COMPLETE, NO_ROOM = 0, 1, 2


class WeightedSum:
    """The sum of several arrays, each times a factor; see `base.Source`.

    It is Σ factor · values in float32, added in the order given, then divided.

    Args:
        arrays: float32, of one size.
        factors: one for each.
        divisor: of the sum.
    """

    def __init__(self, arrays: Sequence[np.ndarray], factors: Sequence[float], divisor: float = 1.0) -> None:
        self.size = arrays[0].size
        self._arrays, self._factors = arrays, [np.float32(each) for each in factors]
        self._divisor = np.float32(divisor)

    def read(self, start: int, stop: int, out: np.ndarray) -> None:
        """See `base.Source`; each array is read once."""
        scaled = np.empty(min(config.RULE_BLOCK, stop - start), np.float32)
        for place in blockwise.places(start, stop):
            total, spare = out[place.start - start : place.stop - start], scaled[: place.stop - place.start]
            for number, (array, own) in enumerate(zip(self._arrays, self._factors, strict=True)):
                values = array[place]
                if number == 0:
                    np.multiply(values, own, out=total)
                elif own == 1:
                    total += values
                else:
                    total += np.multiply(values, own, out=spare)
            if self._divisor != 1:
                total /= self._divisor


@dataclass
class Contribution:
    """What this worker exchanges in the round under way.

    Attributes:
        vectors: names, in the layout's order.
        fields: of its commit, but for those that say which arrays it has.
        round: number of the round.
        sequence: number of the exchange.
        since: when it was written.
        attempt: number of the next attempt to send arrays.
        alone: servers to which it was sent by itself.
        carrier: rank and nonce of the carrier that this worker waits for, and since when.
        begun: when this worker saw that the group's commit had begun.
    """

    vectors: tuple[str, ...]
    fields: dict[str, Any]
    round: int
    sequence: int
    since: float
    attempt: int = 0
    alone: set[int] = field(default_factory=set)
    carrier: tuple[int, int, float] = (NOBODY, 0, math.inf)
    begun: float = math.inf


@dataclass(frozen=True)
class Answer:
    """The servers' answers to one exchange, by server.

    Attributes:
        round: number of the round.
        names: of the vectors that are wanted.
        model: takes them.
        lengths: bytes of each server's answer, where its codec has to know.
        specs: of each server's arrays, by vector.
    """

    round: int
    names: Sequence[str]
    model: ModelSink
    lengths: Sequence[int]
    specs: Sequence[Sequence[Sequence[ArraySpec]]]

    def elements(self, server: int) -> int:
        """Return the values of a server's arrays, their headers included."""
        return sum(elements for part in self.specs[server] for _, elements in part)


class HostExchange:
    """One worker's exchanges with its host.

    Args:
        group: the memory that the workers of the host share.
        store: to the servers.
        specification: of the exchange.
        layout: how the model is cut into buckets.
        transfer: of vectors, to and from the servers.
        beat: sends the servers a heartbeat where one is due.

    Attributes:
        waited: seconds that this worker's newest payload has waited for those of its host, before
            they were sent.
    """

    def __init__(
        self,
        group: HostGroup,
        store: Store,
        specification: Specification,
        layout: Layout,
        transfer: Transfer,
        beat: Callable[[], None],
    ) -> None:
        self._group, self._store, self._specification = group, store, specification
        self._layout, self._transfer, self._beat = layout, transfer, beat
        self._weightings = specification.weightings()
        self._names = tuple(layout.sizes)
        self._place = group.ranks.index(group.rank)
        self._statuses: dict[int, Status] = {}  # server → the newest one
        self._contribution: Contribution | None = None
        self.waited = 0.0
        self._owes = False  # whether this worker's own encoder keeps something

    # --- beginning and end ------------------------------------------------------------------------

    def join(self, replacement: bool) -> bool:
        """Take this worker's place on its host.

        Args:
            replacement: whether the job runs already. Otherwise all workers are in the first round.

        Returns:
            Whether there is such a place; see `HostGroup.join`.
        """
        group, layout = self._group, self._layout
        record = wire.message_type(self._specification.scalars)
        shared = self._transfer.shared_elements
        answers = [0] * layout.servers
        for bucket in layout.buckets:
            answers[bucket.shard] += wire.HEADER_ELEMENTS + bucket.stop - bucket.start
        plan = HostMemoryPlan(
            contributions={name: shared(size) for name, size in layout.sizes.items()},
            residual=layout.sizes[WEIGHTS] if self._encoder is not None else 0,
            answers=[shared(elements) for elements in answers],
            table=table_type(len(group.ranks), layout.servers, record),
        )
        if not group.join(plan):
            log.warning("worker %d exchanges by itself: its place among the workers of this host is taken", group.rank)
            return False
        with group.locked() as table:
            own = table["workers"][self._place]
            table["workers"][self._place] = np.zeros((), own.dtype)
            own["nonce"], own["carrier"] = self._store.nonce, NOBODY
            own["next_round"] = 0 if replacement else 1
        return True

    def ready(self, round_: int) -> None:
        """Note that this worker will take part in this round or in a later one."""
        self._set_next(round_)

    def abstain(self) -> None:
        """Note that this worker is not to be waited for in the rounds that follow."""
        self._contribution = None
        self._set_next(0)

    def leave(self) -> None:
        """See `HostGroup.leave`."""
        self._group.leave()

    # --- payloads ---------------------------------------------------------------------------------

    def start(self, vectors: Mapping[str, Source], fields: dict[str, Any]) -> None:
        """Contribute a payload, and send the group's if all others have contributed.

        Args:
            vectors: name → values.
            fields: of the commit.
        """
        names = tuple(name for name in self._names if name in vectors)
        self._fill(vectors)
        self._contribution = mine = Contribution(
            names, fields, int(fields["round"]), int(fields["sequence"]), self._store.now()
        )
        record = wire.message(scalars=self._specification.scalars, **fields)
        with self._group.locked() as table:
            own = table["workers"][self._place]
            chosen = self._is_mine(own)
            if chosen:
                own["contributed"], own["vectors"], own["commit"] = mine.round, self._mask(names), record
                own["carrier"], own["begun"] = NOBODY, 0
                members = self._form(table, mine)
        if chosen and members:
            self._carry(members)

    def look(self, status: Status) -> None:
        """Do what a server's status asks for while the exchange is under way.

        It may make this worker the carrier, or have it send its payload by itself. In the status,
        the workers of this host that have contributed are not late.
        """
        self.note(status)
        mine = self._contribution
        if mine is None or status.acknowledged >= mine.sequence or status.nonce != self._store.nonce:
            return
        members: list[np.ndarray] = []
        alone = False
        with self._group.locked() as table:
            own = table["workers"][self._place]
            if not self._is_mine(own) or own["contributed"] != mine.round:
                return
            if own["begun"]:
                alone = status.server not in mine.alone and self._is_lost(table, own, status, mine)
            elif self._has_carrier(table, own, mine):
                pass
            else:
                members = self._form(table, mine)
            here = [
                rank
                for rank, each in zip(self._group.ranks, table["workers"], strict=True)
                if each["contributed"] == mine.round
            ]
        status.late = tuple(rank for rank in status.late if rank not in here)
        if members:
            self._carry(members)
        elif alone:
            self._send_alone(status.server, mine)

    def note(self, status: Status) -> None:
        """Remember a server's status."""
        self._statuses[status.server] = status

    # --- answers ----------------------------------------------------------------------------------

    def fetch(self, names: Sequence[str], model: ModelSink, lengths: Sequence[int]) -> set[int]:
        """Write the answer to the exchange to the model, by way of the shared memory.

        Args:
            names: of the vectors that are wanted, in the layout's order.
            model: takes them.
            lengths: bytes of each server's answer, where its codec has to know.

        Returns:
            Servers whose answers this worker has to fetch for itself.

        Raises:
            SlotLostError: the others have gone on without this worker.
        """
        mine = self._contribution
        everywhere = set(range(self._store.servers))
        self.waited = 0.0
        if mine is None:
            return everywhere
        self._contribution = None
        with self._group.locked() as table:
            own_record = table["workers"][self._place]
            if self._is_mine(own_record) and own_record["contributed"] == mine.round and own_record["begun"]:
                self.waited = max(0.0, float(own_record["gathered"]) - mine.since)
        wanted = self._mask(names)
        answer = Answer(mine.round, names, model, lengths, self._transfer.answer_arrays(names, lengths))
        own: set[int] = set()
        done: set[int] = set()
        known = 0
        since = self._store.now()
        with self._store.waiting("the worker of this host that fetches the model from") as wait:
            while len(done) + len(own) < self._store.servers:
                state, fetches = self._claim(mine.round, wanted, hung=self._store.now() - since > self._store.lease)
                if state is None:
                    return everywhere - done
                if fetches:
                    rest = [server for server in everywhere if state[server] == ABSENT]
                    self._copy(rest, answer)
                    done.update(rest)
                for server in sorted(everywhere - done - own):
                    if state[server] == COMPLETE:
                        self._read(server, answer)
                        done.add(server)
                    elif state[server] == NO_ROOM:
                        own.add(server)
                before, known = known, len(done) + len(own)
                if before == known < self._store.servers:
                    self._beat()
                    self._group.wait(LONGEST_PAUSE)
                    wait.check()
        return own

    # --- checkpoints ------------------------------------------------------------------------------

    def unsent(self) -> dict[str, Any]:
        """Return what the encoder of the weights keeps, as a codec's state; see `Exchange.unsent`.

        The host's residual goes with its first worker.
        """
        encoder = self._encoder
        if encoder is None:
            return {}
        state: dict[str, Any] = {"rest": encoder.rest} if self._owes else {}
        if self._place == 0:
            with self._group.locked() as table:
                generation = int(table["residual"])
            state["host"] = self._group.residual(generation % 2)
            state["ranks"] = list(self._group.ranks)
        return state

    def restore_unsent(self, state: Mapping[str, Any]) -> None:
        """Go on with what `unsent` has returned.

        Raises:
            KeyError, ValueError: it is that of something else.
        """
        encoder = self._encoder
        if encoder is None:
            raise ValueError("it has values that were not sent yet, and this codec keeps none")
        if "host" in state and tuple(state["ranks"]) != self._group.ranks:
            raise ValueError(
                f"it has values that workers {_listed(state['ranks'])}, which shared a host, had not sent yet, and now "
                f"workers {_listed(self._group.ranks)} share one: go on with the workers on each host as they were"
            )
        if "rest" in state:
            encoder.restore(state)
            self._owes = True
        if "host" in state:
            with self._group.locked() as table:
                generation = int(table["residual"]) + 1  # whoever has encoded with what was there does it again
                np.copyto(self._group.residual(generation % 2), state["host"])
                table["residual"] = generation

    # --- helpers: groups --------------------------------------------------------------------------

    @property
    def _encoder(self) -> BucketEncoder | None:
        """The encoder of the weights, where it keeps what it could not express."""
        return self._transfer.residual_encoder

    def _mask(self, names: Collection[str]) -> int:
        return sum(1 << place for place, name in enumerate(self._names) if name in names)

    def _is_mine(self, own: Any) -> bool:
        return bool(own["nonce"] == self._store.nonce)

    def _set_next(self, round_: int) -> None:
        with self._group.locked() as table:
            own = table["workers"][self._place]
            if self._is_mine(own):
                own["next_round"] = round_

    def _takes_part(self, rank: int, nonce: int) -> bool:
        """Return whether, as far as is known here, rounds wait for the process with this rank."""
        for status in self._statuses.values():
            away = rank not in status.members or rank in status.excluded or rank in status.aside
            if away or status.slot(rank).nonce != nonce:
                return False
        return True

    def _form(self, table: Any, mine: Contribution) -> list[np.ndarray]:
        """Make this worker the carrier of all who have contributed, unless others are awaited.

        Returns:
            The members' records in the table; empty where others are awaited.
        """
        hung = self._store.now() - mine.since > self._store.lease
        members: list[int] = []
        own = table["workers"][self._place]
        for place, rank in enumerate(self._group.ranks):
            each = table["workers"][place]
            if place == self._place:
                members.append(place)
            elif self._group.alive(rank) and self._takes_part(rank, int(each["nonce"])):
                if each["contributed"] == mine.round:
                    if each["carrier"] == NOBODY and each["vectors"] == own["vectors"]:
                        members.append(place)
                elif 0 < each["next_round"] <= mine.round and not hung:
                    return []
        for place in members:
            each = table["workers"][place]
            each["carrier"], each["carrier_nonce"] = self._group.rank, self._store.nonce
            each["gathered"] = self._store.now()
        return [table["workers"][place].copy() for place in members]

    def _has_carrier(self, table: Any, own: Any, mine: Contribution) -> bool:
        """Return whether this worker has a carrier that is at work; if not, free its group."""
        carrier, nonce = int(own["carrier"]), int(own["carrier_nonce"])
        if carrier == NOBODY:
            return False
        now = self._store.now()
        if mine.carrier[:2] != (carrier, nonce):
            mine.carrier = carrier, nonce, now
        if self._is_there(table, carrier, nonce) and now - mine.carrier[2] <= self._store.lease:
            return True
        self._free(table, mine, carrier, nonce)
        return False

    def _free(self, table: Any, mine: Contribution, carrier: int, nonce: int) -> None:
        """Dissolve a carrier's group, whose commit has not begun."""
        for each in table["workers"]:
            group = each["contributed"], each["begun"], each["carrier"], each["carrier_nonce"]
            if group == (mine.round, 0, carrier, nonce):
                each["carrier"] = NOBODY

    def _is_there(self, table: Any, rank: int, nonce: int) -> bool:
        place = self._group.ranks.index(rank)
        return bool(table["workers"][place]["nonce"] == nonce) and self._group.alive(rank)

    def _is_lost(self, table: Any, own: Any, status: Status, mine: Contribution) -> bool:
        """Return whether a server may never count this worker by its group's commit."""
        slots = [status.slot(rank) for rank in self._group.ranks]
        if slots[self._place].committed:
            return False
        if not self._is_there(table, int(own["carrier"]), int(own["carrier_nonce"])):
            return True
        mine.begun = min(mine.begun, self._store.now())
        if self._store.now() - mine.begun > self._store.lease:
            return True
        return any(
            nonce and (slot.nonce != nonce or not slot.member or slot.committed or slot.acknowledged >= sequence)
            for slot, nonce, sequence in zip(slots, own["members"], own["sequences"], strict=True)
        )

    def _carry(self, members: Sequence[Any]) -> None:
        """Send the payload of a group, note that its commit has begun, and send the commits."""
        mine, group, store = self._contribution, self._group, self._store
        assert mine is not None
        encoder = self._encoder if WEIGHTS in mine.vectors else None
        generation = 0
        if encoder is not None:
            # In this worker's own memory: others may take its place while it is at work.
            with group.locked() as table:
                generation = int(table["residual"])
            np.copyto(encoder.rest, group.residual(generation % 2))
        try:
            attempt, sent = self._send_arrays(mine, self._sums(mine, members), range(store.servers))
            begun = self._begin_commit(mine, members, None if encoder is None else encoder.rest, generation)
        finally:
            if encoder is not None:
                encoder.rest[:] = 0
        if not begun:
            return
        others = [member["commit"].copy() for member in members if member["commit"]["rank"] != group.rank]
        for each in others:
            each["kind"] = wire.MEMBER
        for server in range(store.servers):
            store.send(server, (), {**mine.fields, "buckets": sent[server], "place": attempt}, others)

    def _begin_commit(
        self, mine: Contribution, members: Sequence[Any], rest: np.ndarray | None, generation: int
    ) -> bool:
        """Note that a group's commit begins, unless the others have gone on without this carrier.

        Args:
            mine: what this worker exchanges.
            members: their records when the group was formed.
            rest: what the group's payload could not express; becomes the host's residual.
            generation: number of the residual that went into the payload.

        Returns:
            Whether the commit may be sent.
        """
        group, store = self._group, self._store
        places = [group.ranks.index(int(each["commit"]["rank"])) for each in members]
        with group.locked() as table:
            own = table["workers"][self._place]
            carried = (group.rank, store.nonce)
            if (own["carrier"], own["carrier_nonce"]) != carried or not self._is_mine(own) or own["begun"]:
                return False  # the others have gone on without this worker
            used = rest is not None and table["residual"] != generation  # by another group of this host
            if used or any(
                table["workers"][place]["nonce"] != each["nonce"] for place, each in zip(places, members, strict=True)
            ):
                self._free(table, mine, *carried)  # or one of them has been replaced
                return False
            for place in places:
                now = table["workers"][place]
                now["begun"], now["members"], now["sequences"] = 1, 0, 0
                for member, other in zip(places, members, strict=True):
                    now["members"][member] = other["nonce"]
                    now["sequences"][member] = other["commit"]["sequence"]
            if rest is not None:
                np.copyto(group.residual((generation + 1) % 2), rest)
                table["residual"] = generation + 1
        return True

    def _sums(self, mine: Contribution, members: Sequence[Any]) -> dict[str, Source]:
        """Return the vectors of a group's payload: sums, but for the mean of packed weights."""
        sums: dict[str, Source] = {}
        ranks = [int(member["commit"]["rank"]) for member in members]
        samples = [int(member["commit"]["samples"]) for member in members]
        for name in mine.vectors:
            factors = [factor(self._weightings[name], number) for number in samples]
            arrays = [self._group.contribution(rank, name) for rank in ranks]
            if len(members) == 1:
                sums[name] = WeightedSum(arrays, [1.0])
            else:
                packed = name == WEIGHTS and self._encoder is not None
                sums[name] = WeightedSum(arrays, factors, sum(factors) if packed else 1.0)
        self._group.moved((len(members) + 1) * self._elements(mine.vectors))
        return sums

    def _elements(self, names: Iterable[str]) -> int:
        return sum(self._layout.sizes[name] for name in names)

    def _send_alone(self, server: int, mine: Contribution) -> None:
        """Send this worker's own payload and its commit to one server."""
        mine.alone.add(server)
        encoder = self._encoder
        before = None if encoder is None else encoder.rest.copy()
        vectors = {
            name: WeightedSum([self._group.contribution(self._group.rank, name)], [1.0]) for name in mine.vectors
        }
        attempt, sent = self._send_arrays(mine, vectors, [server])
        if encoder is not None and before is not None:
            self._owes = True
            for bucket in self._layout.of(WEIGHTS):
                if bucket.shard != server:
                    encoder.rest[bucket.start : bucket.stop] = before[bucket.start : bucket.stop]
        self._store.send(server, (), {**mine.fields, "buckets": sent[server], "place": attempt})

    def _send_arrays(
        self, mine: Contribution, vectors: Mapping[str, Any], servers: Collection[int]
    ) -> tuple[int, list[int]]:
        """Send the arrays of a payload to these servers.

        Returns:
            The attempt's number, and the number of arrays that were sent to each server.
        """
        attempt = mine.attempt
        mine.attempt += 1
        return attempt, self._transfer.send(vectors, mine.sequence, servers, attempt)

    def _fill(self, vectors: Mapping[str, Source]) -> None:
        """Write this worker's payload into the shared memory."""
        for name, source in vectors.items():
            array = self._group.contribution(self._group.rank, name)
            if array.size:
                source.read(0, array.size, array)
        if self._owes and WEIGHTS in vectors and (encoder := self._encoder) is not None:
            own = self._group.contribution(self._group.rank, WEIGHTS)
            own += encoder.rest
            encoder.rest[:] = 0
            self._owes = False
        self._group.moved(2 * self._elements(vectors))

    # --- helpers: answers -------------------------------------------------------------------------

    def _claim(self, round_: int, wanted: int, hung: bool) -> tuple[list[int] | None, bool]:
        """Become the worker that fetches a round's answer, if there is none.

        Args:
            round_: number of the round.
            wanted: which vectors.
            hung: whether whoever fetches it has been waited for for too long.

        Returns:
            The state of each server's answer, None where this worker has to fetch its own; and
            whether this worker fetches what is absent.
        """
        with self._group.locked() as table:
            if not self._is_mine(table["workers"][self._place]) or table["round"] > round_:
                return None, False
            if table["round"] < round_:
                if table["round"] and ABSENT in table["complete"] and self._another_fetches(table):
                    return None, False  # one that has hung may go on at any time, and write over this answer
                table["round"], table["returned"], table["complete"] = round_, wanted, ABSENT
                table["fetcher"], table["fetcher_nonce"] = self._group.rank, self._store.nonce
                return [ABSENT] * self._store.servers, True
            state = [int(each) for each in table["complete"]]
            if wanted & ~int(table["returned"]):
                return None, False
            if ABSENT not in state:
                return state, False
            if self._another_fetches(table):
                return (None if hung else state), False
            table["fetcher"], table["fetcher_nonce"] = self._group.rank, self._store.nonce
            return state, True

    def _copy(self, servers: Sequence[int], answer: Answer) -> None:
        """Fetch the answers of these servers for all workers of the host."""
        under_way = [self._transfer.request(server, answer.specs[server]) for server in servers]
        for server, arrays in zip(servers, under_way, strict=True):
            shared, elements = self._group.answer(server), answer.elements(server)
            room = self._transfer.shared_elements(elements) <= shared.size
            self._decode(server, _copied(arrays, shared) if room else arrays, answer)
            self._group.moved(2 * elements)
            with self._group.locked() as table:
                if table["round"] == answer.round and self._is_fetcher(table):
                    table["complete"][server] = COMPLETE if room else NO_ROOM

    def _another_fetches(self, table: Any) -> bool:
        """Return whether the worker that fetches the newest answer is another one, and is there."""
        there = self._is_there(table, int(table["fetcher"]), int(table["fetcher_nonce"]))
        return there and not self._is_fetcher(table)

    def _is_fetcher(self, table: Any) -> bool:
        return (table["fetcher"], table["fetcher_nonce"]) == (self._group.rank, self._store.nonce)

    def _read(self, server: int, answer: Answer) -> None:
        """Read a server's answer from the shared memory."""
        shared = self._group.answer(server)

        def arrays() -> Iterator[np.ndarray]:
            at = 0
            for _, elements in chain.from_iterable(answer.specs[server]):
                yield shared[at : at + elements]
                at += elements

        self._decode(server, arrays(), answer)
        self._group.moved(answer.elements(server))
        with self._group.locked() as table:
            if table["round"] != answer.round:
                raise SlotLostError(
                    f"the other workers of its host have gone on without worker {self._group.rank}, which read the "
                    "model too slowly; start it again to take the slot back"
                )

    def _decode(self, server: int, arrays: Iterable[np.ndarray], answer: Answer) -> None:
        self._transfer.decode(server, arrays, answer.specs[server], answer.names, answer.lengths[server], answer.model)


def _copied(arrays: Iterable[np.ndarray], shared: np.ndarray) -> Iterator[np.ndarray]:
    """Yield arrays as they arrive, copied one behind the other into the shared memory."""
    start = 0
    for array in arrays:
        shared[start : start + array.size] = array
        start += array.size
        yield array


def _listed(ranks: Iterable[int]) -> str:
    return ", ".join(map(str, ranks))
