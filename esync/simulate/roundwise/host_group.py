"""Workers of a host that exchange as one, round by round; see `exchange.protocol.host_exchange`.

Each worker writes its payload to shared memory. The last one to do so sums the payloads and sends the
sum. The first one to learn that the sum was used fetches the model and writes it to the memory, from
which the others read it.
"""

from collections.abc import Iterable, Sequence
from operator import attrgetter

from .worker import RoundwiseWorker

_SENT, _NOTICED = attrgetter("sent"), attrgetter("noticed")


class RoundwiseHostGroup:
    """The workers of one host.

    Args:
        members: the workers, two or more.
        payload: seconds to read or to write one payload in memory.
        models: seconds to read or to write each server's part of the model.

    Attributes:
        members: the workers in the order of their next step.
    """

    def __init__(self, members: Iterable[RoundwiseWorker], payload: float, models: Sequence[float]) -> None:
        self.members = list(members)
        self._payload, self._models = payload, models

    def gather(self) -> RoundwiseWorker:
        """Return the worker that sends the sum of the payloads, and set the time at which it does."""
        members = self.members
        for member in members:
            member.sent = member.begun + 2 * self._payload
        members.sort(key=_SENT)
        carrier = members[-1]
        for member in members:
            member.carrier = carrier
            member.held = carrier.sent - member.sent
        carrier.sent += (len(members) + 1) * self._payload
        carrier.carried += 1
        return carrier

    def fetcher(self) -> RoundwiseWorker:
        """Return the worker that fetches the model."""
        self.members.sort(key=_NOTICED)
        return self.members[0]

    def hand_out(self, arrived: Sequence[float]) -> Sequence[tuple[float, RoundwiseWorker]]:
        """Return when each member has the model.

        Args:
            arrived: when each server's part has reached the worker that fetches it.
        """
        fetcher, *readers = self.members
        available, now = [], 0.0
        for arrival, seconds in zip(arrived, self._models, strict=True):
            now = max(now, arrival) + 2 * seconds
            available.append(now)
        return [(now, fetcher), *((self._read(available, member.noticed), member) for member in readers)]

    def _read(self, available: Sequence[float], now: float) -> float:
        """Return when a member that begins now has read all parts, each as soon as it is available."""
        for written, seconds in zip(available, self._models, strict=True):
            now = max(now, written) + seconds
        return now
