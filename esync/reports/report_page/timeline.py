"""Timelines of a run's devices: what each of them did when.

An exchange that goes on in the background (`--overlap`) takes no time of the device. Only the part
for which training stood still is shown, as waiting for the last worker's commit or as transferring.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ..summary_file import DeviceSummary, Summary
from .content import Block, Lane, Timeline
from .series import round_ends

#: Most blocks of a lane where the whole run is shown, and in the close-up.
BLOCKS, CLOSE_BLOCKS = 80, 120
#: Rounds of the slowest device in the close-up.
CLOSE_ROUNDS = 12
#: Most lanes; of more devices the first and the last ones are shown.
LANES, LAST_LANES = 40, 5


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


def timelines(title: str, summary: Summary) -> list[Timeline]:
    """Return a run's timeline and, where rounds had to be merged in it, one of its last rounds."""
    devices = [
        (f"{host} {name}", device, _blocks(device)) for host, group in summary.items() for name, device in group.items()
    ]
    left_out = ""
    if len(devices) > LANES:
        left_out = f"{len(devices) - LANES} of {len(devices)} devices are not shown."
        devices = devices[: LANES - LAST_LANES] + devices[-LAST_LANES:]
    end = max(blocks[-1].end for _, _, blocks in devices)
    merged = {name: _merged(blocks) for name, _, blocks in devices}
    most = max(-(-len(blocks) // BLOCKS) for _, _, blocks in devices)
    unit = devices[0][1].unit
    note = f"A block is up to {most} {unit}s together: their computing, waiting and transferring, added up."
    timeline = Timeline(
        title,
        [Lane(name, merged[name]) for name, _, _ in devices],
        " ".join(filter(None, (note if most > 1 else "", left_out))),
        0.0,
        end,
        unit,
    )
    if most == 1:
        return [timeline]
    begin = _close_begin([blocks for _, _, blocks in devices], end)
    lanes = [Lane(name, [block for block in blocks if block.end > begin]) for name, _, blocks in devices]
    return [timeline, Timeline(f"{title}: the last {unit}s", lanes, left_out, begin, end, unit)]


def _close_begin(lanes: Sequence[Sequence[Block]], end: float) -> float:
    """Return where the close-up begins, so that no lane has too many blocks."""
    longest = max(max(block.end - block.begin for block in blocks[-CLOSE_ROUNDS:]) for blocks in lanes)
    fastest = [blocks[-CLOSE_BLOCKS].begin for blocks in lanes if len(blocks) > CLOSE_BLOCKS]
    return max(0.0, end - CLOSE_ROUNDS * longest, *(begin for begin in fastest if begin < end))


def _blocks(device: DeviceSummary) -> list[Block]:
    blocks: list[Block] = []
    before, number_before = 0.0, 0
    for index, (number, end) in enumerate(zip(device.rounds_list, round_ends(device), strict=True)):
        parts = _parts(device, index)
        # After a gap in the log nobody knows when a round began; it lasted at least this long.
        begin = before if number == number_before + 1 else max(before, end - sum(parts))
        scale = min(1.0, max(0.0, end - begin) / sum(parts)) if sum(parts) > 0 else 0.0
        blocks.append(Block(number, number, min(begin, end), end, *(scale * part for part in parts)))
        before, number_before = end, number
    return blocks


def _merged(blocks: Sequence[Block]) -> list[Block]:
    """Return at most BLOCKS blocks, each of as many consecutive rounds as the others."""
    step = -(-len(blocks) // BLOCKS)
    groups = [blocks[start : start + step] for start in range(0, len(blocks), step)]
    return [
        Block(
            group[0].first,
            group[-1].last,
            group[0].begin,
            group[-1].end,
            sum(block.compute for block in group),
            sum(block.wait for block in group),
            sum(block.exchange for block in group),
        )
        for group in groups
    ]
