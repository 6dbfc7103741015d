"""What devices tell a coordinator, as a text: when, who, and which answer is expected."""

import re

from esync.coordination.coordinator import Coordinator

LINE = re.compile(
    r"(?P<now>[\d.]+) s: (?P<rank>\d) (?:did (?P<k>\d+)(?: in (?P<seconds>[\d.]+))?(?:: (?P<answer>READY|NOT READY))?"
    r"|RESET (?P<round>\d+)(?P<rejoin> rejoins)?(?: members (?P<members>[\d ]+))?)"
)


def begun(speeds: list[float], epsilon: float = 0.0, **options: int) -> Coordinator:
    """A coordinator whose devices all began round 1 at time 0 and told their capability."""
    coordinator = Coordinator(len(speeds), epsilon, **options)
    for rank, speed in enumerate(speeds):
        assert not coordinator.apply(rank, 0, speed, now=0.0)
    return coordinator


def play(job: Coordinator, speeds: list[float], script: str) -> None:
    """Send a coordinator the messages of a script, one a line, and check its answers.

    "0.9 s: 0 did 3: READY" is the question of rank 0 after its third iteration, each of which took as long as `speeds`
    say, unless there is "in 2.5" behind the number; "1.1 s: 0 RESET 2" begins round 2, with "rejoins" or
    "members 0 1" if need be. What follows a # is a comment.
    """
    for line in filter(None, (line.partition("#")[0].strip() for line in script.splitlines())):
        message = LINE.fullmatch(line)
        assert message, line
        rank, now = int(message["rank"]), float(message["now"])
        if message["k"]:
            answer = job.apply(rank, int(message["k"]), float(message["seconds"] or speeds[rank]), now)
            assert message["answer"] in (None, "READY" if answer else "NOT READY"), line
        else:
            members = {"members": list(map(int, message["members"].split()))} if message["members"] else {}
            job.reset(rank, int(message["round"]), now, rejoin=bool(message["rejoin"]), **members)
