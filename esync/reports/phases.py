"""What a device did in each round and when: computing, waiting for other workers, transferring.

An exchange that goes on in the background (`--overlap`) takes no time of the device. Only the part
for which training stood still is shown, as waiting for the last worker's commit or as transferring.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from .summary_file import DeviceSummary


@dataclass(frozen=True)
class Block:
    """One round of a device, or several consecutive ones.

    Attributes:
        first, last: numbers of the rounds.
        begin, end: from the start of the run.
        compute, wait, exchange: durations, together at most `end` − `begin`.
    """

    first: int
    last: int
    begin: float
    end: float
    compute: float
    wait: float
    exchange: float

    @property
    def edges(self) -> tuple[float, float, float, float]:
        """Begin of computing, end of computing, end of waiting, and end of transferring.

        The order is that of the algorithm; a log has the durations only. What is left of the round
        (questions, loading) lies between the iterations, and comes first here, as on the page.
        """
        begin = max(self.begin, self.end - self.compute - self.wait - self.exchange)
        computed = min(self.end, begin + self.compute)
        return begin, computed, min(self.end, computed + self.wait), self.end


@dataclass(frozen=True)
class TimeUse:
    """Seconds that a device spent computing, waiting for other workers, and transferring.

    Waits that the log does not have count as transfer; `hidden` are those of exchanges that went on
    while the device computed.
    """

    compute: float
    wait: float
    exchange: float
    hidden: float

    def shares(self, seconds: float) -> tuple[float, float, float]:
        """Return computing, waiting and transferring as shares of a time."""
        total = seconds or 1.0
        return self.compute / total, self.wait / total, self.exchange / total


def time_use(device: DeviceSummary) -> TimeUse:
    """Return what a device spent its time with in the whole run."""
    rounds = [_parts(device, index) for index in range(len(device.rounds_list))]
    compute, wait, exchange = (sum(column) for column in zip(*rounds, strict=True))
    exchanges = sum(filter(None, device.wait_list)) + sum(filter(None, device.transfer_list))
    return TimeUse(compute, wait, exchange, max(0.0, exchanges - wait - exchange))


def _parts(device: DeviceSummary, index: int) -> tuple[float, float, float]:
    """Return computing, waiting and transferring in one round.

    Waits that the log does not have count as transfer.
    """
    standstill = device.aggregate_time_list[index]
    wait = min((device.wait_list[index] if device.wait_list else 0.0) or 0.0, standstill)
    compute = device.computing_time_list[index] if device.computing_time_list else 0.0
    return compute, wait, standstill - wait


def round_ends(device: DeviceSummary) -> Sequence[float]:
    """Return the end of each round of a device, in seconds since the start of the run."""
    return device.total_time_list or device.elapsed_time_list


def blocks_of(device: DeviceSummary) -> list[Block]:
    """Return the rounds of a device as blocks in time, none of which overlap."""
    blocks: list[Block] = []
    before, number_before = 0.0, 0
    ends = accumulate(round_ends(device), max)  # logs of two runs in one folder may fall back
    for index, (number, end) in enumerate(zip(device.rounds_list, ends, strict=True)):
        parts = _parts(device, index)
        # After a gap in the log nobody knows when a round began; it lasted at least this long.
        begin = before if number == number_before + 1 else max(before, end - sum(parts))
        scale = min(1.0, (end - begin) / sum(parts)) if sum(parts) > 0 else 0.0
        blocks.append(Block(number, number, begin, end, *(scale * part for part in parts)))
        before, number_before = end, number
    return blocks
