"""What devices tell a coordinator, as a text: when, who, and which answer is expected."""

import re

import pytest

from esync.coordination.coordinator import Coordinator
from esync.coordination.decision import ExchangeDecision

LINE = re.compile(
    r"(?P<now>[\d.]+) s: (?P<rank>\d) (?:"
    r"did (?P<k>\d+)(?: in (?P<seconds>[\d.]+))?(?:: (?:(?P<answer>READY|NOT READY)|lease (?P<lease>[\d.]+)))?"
    r"|RESET (?P<round>\d+)(?P<rejoin> rejoins)?(?: members (?P<members>[\d ]+))?)"
)


def started_coordinator(speeds: list[float], epsilon: float = 0.0, **options: int) -> Coordinator:
    """A coordinator whose devices all began round 1 at time 0 and told their capability."""
    coordinator = Coordinator(len(speeds), epsilon, **options)
    for rank, speed in enumerate(speeds):
        assert not coordinator.query(rank, None, 0, speed, now=0.0).ready
    return coordinator


def play(job: Coordinator, speeds: list[float], script: str, round: int = 0) -> None:
    """Send a coordinator the messages of a script, one a line, and check its answers.

    "0.9 s: 0 did 3: READY" is the question of rank 0 after its third iteration, each of which took as long as `speeds`
    say, unless there is "in 2.5" behind the number; "NOT READY" has no lease, "lease 1.5" says how long it is.
    "1.1 s: 0 RESET 2" begins round 2, with "rejoins" or "members 0 1" if need be. What follows a # is a comment.

    With `round`, which is that of the beginning, devices ask for leases; else as published ones do.
    """
    rounds = dict.fromkeys(range(len(speeds)), round)
    for line in filter(None, (line.partition("#")[0].strip() for line in script.splitlines())):
        message = LINE.fullmatch(line)
        assert message, line
        rank, now = int(message["rank"]), float(message["now"])
        if message["k"]:
            k, seconds = int(message["k"]), float(message["seconds"] or speeds[rank])
            if round:
                answer = job.query(rank, rounds[rank], k, seconds, now)
            else:
                answer = ExchangeDecision(job.query(rank, None, k, seconds, now).ready)
            expected = {"READY": ExchangeDecision(True), "NOT READY": ExchangeDecision(False), None: answer}
            if message["lease"]:
                assert answer.lease == pytest.approx(float(message["lease"])), line
            else:
                assert answer == expected[message["answer"]], line
        else:
            rounds[rank] = int(message["round"])
            members = {"members": list(map(int, message["members"].split()))} if message["members"] else {}
            job.reset(rank, rounds[rank], now, rejoin=bool(message["rejoin"]), **members)
