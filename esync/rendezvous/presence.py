"""Who has gone: what the scheduler concludes from the connections that it sees, one look after the other."""

from collections.abc import Collection, Iterable

from .messages import EMPTY, Node

Address = tuple[str, int]

#: Looks at which a process that has been there must be missing before it counts as gone.
LOOKS = 2
#: Looks that a member of the cluster has to show itself for the first time; one that dies at once never does.
FIRST_LOOKS = 25


class Presence:
    """Counts for each process at how many looks in a row it has been missing.

    A process that waits for its place may be slow to be reached: it is missed only after it has been seen. One that
    has been given a place has been heard, so it is missed from then on.
    """

    def __init__(self) -> None:
        self._missing: dict[Address, int] = {}

    def look(self, known: Iterable[Node], there: Collection[Address]) -> list[Address]:
        """Take one look.

        Args:
            known: the processes that the cluster knows now; others are forgotten.
            there: addresses to which a connection stands.

        Returns:
            Addresses of those that have gone, the oldest departure first.
        """
        before, self._missing = self._missing, {}
        for node in known:
            address = (node.host, node.port)
            if address in there:
                self._missing[address] = 0
            elif address in before:
                self._missing[address] = before[address] + 1
            elif node.id != EMPTY:
                self._missing[address] = LOOKS - FIRST_LOOKS
        longest_first = sorted(self._missing.items(), key=lambda item: -item[1])
        return [address for address, looks in longest_first if looks >= LOOKS]
