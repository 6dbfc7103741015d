"""Timelines of a run's devices: what each of them did when, with as many blocks as a page can show."""

from collections.abc import Sequence

from ..phases import Block, blocks_of
from ..summary_file import Summary
from .content import Lane, Timeline

#: Most blocks of a lane where the whole run is shown, and in the close-up.
BLOCKS, CLOSE_BLOCKS = 80, 120
#: Rounds of the slowest device in the close-up.
CLOSE_ROUNDS = 12
#: Most lanes; of more devices the first and the last ones are shown.
LANES, LAST_LANES = 40, 5


def timelines(title: str, summary: Summary) -> list[Timeline]:
    """Return a run's timeline and, where rounds had to be merged in it, one of its last rounds."""
    devices = [
        (f"{host} {name}", device, blocks_of(device))
        for host, group in summary.items()
        for name, device in group.items()
    ]
    left_out = ""
    if len(devices) > LANES:
        left_out = f"{len(devices) - LANES} of {len(devices)} devices are not shown."
        devices = devices[: LANES - LAST_LANES] + devices[-LAST_LANES:]
    end = max(blocks[-1].end for _, _, blocks in devices)
    merged = {name: _merged(blocks) for name, _, blocks in devices}
    maximum = max(-(-len(blocks) // BLOCKS) for _, _, blocks in devices)
    unit = devices[0][1].unit
    note = f"A block is up to {maximum} {unit}s together: their computing, waiting and transferring, added up."
    timeline = Timeline(
        title,
        [Lane(name, merged[name]) for name, _, _ in devices],
        " ".join(filter(None, (note if maximum > 1 else "", left_out))),
        0.0,
        end,
        unit,
    )
    if maximum == 1:
        return [timeline]
    begin = _close_begin([blocks for _, _, blocks in devices], end)
    lanes = [Lane(name, [block for block in blocks if block.end > begin]) for name, _, blocks in devices]
    return [timeline, Timeline(f"{title}: the last {unit}s", lanes, left_out, begin, end, unit)]


def _close_begin(lanes: Sequence[Sequence[Block]], end: float) -> float:
    """Return where the close-up begins, so that no lane has too many blocks."""
    longest = max(max(block.end - block.begin for block in blocks[-CLOSE_ROUNDS:]) for blocks in lanes)
    fastest = [blocks[-CLOSE_BLOCKS].begin for blocks in lanes if len(blocks) > CLOSE_BLOCKS]
    return max(0.0, end - CLOSE_ROUNDS * longest, *(begin for begin in fastest if begin < end))


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
