"""Download of the model to the workers of one host: one of them fetches it to shared memory for all."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

from ..base import ModelSink, SlotLostError
from .host_member import HostMember
from .store import LONGEST_PAUSE, Store
from .transfer import Answer, Transfer

#: States of a server's answer in shared memory.
ABSENT, COMPLETE, NO_ROOM = 0, 1, 2


class HostDownload:
    """Brings the servers' answers to this worker through the shared memory of its host.

    Args:
        member: this worker's entry in the table of its host.
        store: connection to the servers.
        transfer: of vectors from the servers.
        beat: sends the servers a heartbeat if one is due.
    """

    def __init__(self, member: HostMember, store: Store, transfer: Transfer, beat: Callable[[], None]) -> None:
        self._member, self._group, self._store = member, member.group, store
        self._transfer, self._beat = transfer, beat

    def fetch(self, round_: int, names: Sequence[str], model: ModelSink, forms: Sequence[int]) -> set[int]:
        """Write the answer to an exchange to the model.

        Args:
            round_: number of the exchange's round.
            names: of the requested vectors, in the layout's order.
            model: receives them.
            forms: of each server's answer; see `Decoder.answer_arrays`.

        Returns:
            Servers whose answers this worker has to fetch for itself.

        Raises:
            SlotLostError: the other workers have gone on without this one.
        """
        servers = set(range(self._store.servers))
        requested = self._member.mask(names)
        answer = self._transfer.answer(names, model, forms)
        unshared: set[int] = set()
        read: set[int] = set()
        settled = 0
        since = self._store.now()
        with self._store.waiting("the worker of this host that fetches the model from") as wait:
            while settled < len(servers):
                state, fetches = self._claim(round_, requested, hung=self._store.now() - since > self._store.lease)
                if state is None:
                    return servers - read
                if fetches:
                    absent = [server for server in servers if state[server] == ABSENT]
                    self._copy(absent, answer, round_)
                    read.update(absent)
                for server in sorted(servers - read - unshared):
                    if state[server] == COMPLETE:
                        self._read(server, answer, round_)
                        read.add(server)
                    elif state[server] == NO_ROOM:
                        unshared.add(server)
                before, settled = settled, len(read) + len(unshared)
                if before == settled < len(servers):
                    self._beat()
                    self._group.wait(LONGEST_PAUSE)
                    wait.check()
        return unshared

    def _claim(self, round_: int, requested: int, hung: bool) -> tuple[list[int] | None, bool]:
        """Become the worker that fetches a round's answer, if no other one does.

        Args:
            round_: number of the round.
            requested: the vectors, as a mask.
            hung: whether the wait for the worker that fetches has been too long.

        Returns:
            State of each server's answer; None if this worker has to fetch answers for itself.
            Whether this worker fetches the absent answers.
        """
        with self._group.locked() as table:
            if not self._member.owns_entry(table) or table["round"] > round_:
                return None, False
            if table["round"] < round_:
                if table["round"] and ABSENT in table["complete"] and self._another_fetches(table):
                    return None, False  # it may be slow, and overwrite this answer later
                table["round"], table["returned"], table["complete"] = round_, requested, ABSENT
                table["fetcher"], table["fetcher_nonce"] = self._member.rank, self._member.nonce
                return [ABSENT] * self._store.servers, True
            state = table["complete"].tolist()
            if requested & ~int(table["returned"]):
                return None, False
            if ABSENT not in state:
                return state, False
            if self._another_fetches(table):
                return (None if hung else state), False
            table["fetcher"], table["fetcher_nonce"] = self._member.rank, self._member.nonce
            return state, True

    def _copy(self, servers: Sequence[int], answer: Answer, round_: int) -> None:
        """Fetch the answers of these servers to the model and to the shared memory."""
        requests = [self._transfer.request(server, answer) for server in servers]
        for server, arrays in zip(servers, requests, strict=True):
            shared, elements = self._group.answer(server), answer.elements(server)
            room = self._transfer.shared_elements(elements) <= shared.size
            self._transfer.decode(server, _copied(arrays, shared) if room else arrays, answer)
            self._group.moved(2 * elements)
            with self._group.locked() as table:
                if table["round"] == round_ and self._is_fetcher(table):
                    table["complete"][server] = COMPLETE if room else NO_ROOM

    def _another_fetches(self, table: Any) -> bool:
        """Return whether the newest answer is fetched by another worker, which is alive."""
        present = self._member.is_present(table, int(table["fetcher"]), int(table["fetcher_nonce"]))
        return present and not self._is_fetcher(table)

    def _is_fetcher(self, table: Any) -> bool:
        return (table["fetcher"], table["fetcher_nonce"]) == (self._member.rank, self._member.nonce)

    def _read(self, server: int, answer: Answer, round_: int) -> None:
        """Read a server's answer from the shared memory."""
        shared = self._group.answer(server)

        def arrays() -> Iterator[np.ndarray]:
            start = 0
            for _, elements in chain.from_iterable(answer.specs[server]):
                yield shared[start : start + elements]
                start += elements

        self._transfer.decode(server, arrays(), answer)
        self._group.moved(answer.elements(server))
        with self._group.locked() as table:
            if table["round"] != round_:
                raise SlotLostError(
                    f"the other workers of its host have gone on without worker {self._member.rank}, which read the "
                    "model too slowly; start it again to take the slot back"
                )


def _copied(arrays: Iterable[np.ndarray], shared: np.ndarray) -> Iterator[np.ndarray]:
    """Yield arrays as they arrive, and append them to the shared memory."""
    start = 0
    for array in arrays:
        shared[start : start + array.size] = array
        start += array.size
        yield array
