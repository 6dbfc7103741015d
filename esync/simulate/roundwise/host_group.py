"""Workers of a host that exchange as one, round by round; see `exchange.protocol.host_exchange`.

Each of them writes its payload to the memory that they share. The last one to do so adds the
payloads up and sends the sum. The first one that notices that it was used fetches the model and
writes it to the memory, from which the others read it.
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
        models: the same of each server's part of the model.

    Attributes:
        members: in the order in which they do the next step.
    """

    def __init__(self, members: Iterable[RoundwiseWorker], payload: float, models: Sequence[float]) -> None:
        self.members = list(members)
        self._payload, self._models = payload, models

    def gather(self) -> RoundwiseWorker:
        """Return the worker that sends the sum of the payloads, after noting when it does."""
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
        fetcher, *others = self.members
        there, now = [], 0.0
        for arrival, seconds in zip(arrived, self._models, strict=True):
            now = max(now, arrival) + 2 * seconds
            there.append(now)
        return [(now, fetcher), *((self._read(there, each.noticed), each) for each in others)]

    def _read(self, there: Sequence[float], now: float) -> float:
        """Return when a member that begins now has read all parts, each as soon as it is there."""
        for written, seconds in zip(there, self._models, strict=True):
            now = max(now, written) + seconds
        return now
