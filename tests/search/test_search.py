"""Random schedules of deaths.

`python -m tests.search` runs more of them, and repeats a single one.
"""

import os

import pytest

from .faults import FAULTS, Fault
from .known import known
from .schedule import KINDS, Death, draw, with_words
from .search import Finding, failure, search, shrink

#: Of each kind; with --long as many more as --schedules says.
SCHEDULES = 20


def check(kind: str, schedules: int, jobs: int = 1) -> None:
    found = [each for chunk in search([kind], 0, schedules, jobs) for each in chunk.failures]
    new = [finding for finding in found if not known(kind, finding.error)]
    assert not new, "\n".join(f"{described(finding)}\n" for finding in new[:3])


def described(finding: Finding) -> str:
    smallest = shrink(finding.schedule)
    return f"{finding.error}\n  {finding.schedule.command}\n  {smallest.command}\n    {failure(smallest).error}"


@pytest.mark.parametrize("kind", KINDS)
def test_random_schedules_of_deaths_break_no_run(kind: str) -> None:
    check(kind, SCHEDULES)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_random_schedules_of_deaths_in_large_numbers_break_no_run(kind: str, pytestconfig: pytest.Config) -> None:
    check(kind, pytestconfig.getoption("--schedules"), os.cpu_count() or 1)


@pytest.mark.parametrize(
    "command",
    [
        # The servers' own counts ended the run on some of them, which left out commits that server
        # 0 still used.
        "private-elastic 2009 --deaths commit+13:machine --calm 1013",
        # Rank 0 died when its commit of the last round had reached one server, which then left a slow
        # worker's commit unused; its replacement named that one to the other server, which used it.
        "tiered 20",
        "tiered 20 --workers 2 --machines 1 --rounds 1 --deaths commit+0:worker --calm 0",
        # With three servers, rank 0 died twice around its commit: the round that one server had
        # ended without a slow worker's commit was ended with it on another.
        "tiered 50005",
        "tiered 50005 --machines 1 --rounds 3 --deaths commit+2:worker,commit+5:worker --calm 1005",
        # A job had the number of the job before, and its parts of a checkpoint were taken for that
        # one's.
        "sync 3709",
        # A replacement that found the run finished wrote the last part again, which was there
        # already, and meanwhile it was not.
        "sync 5381 --servers 1 --rounds 3 --every 2 --momentum 0 --deaths part+90:power --calm 0",
        "async 5802 --rounds 4 --deaths part+99:machine,474:worker:1 --calm 474",
        "ssp 5896",
        "sync 5643",
        "sync 5643 --rounds 2 --every 1 --stop 0 --deaths join+18:machine:0 --calm 1018",
        # Newcomers took the slots of workers that had left the finished run, and nobody took that
        # of worker 0, which had died before it wrote the final model.
        "sync 5818 --machines 1 --rounds 1 --every 1 --momentum 0 --deaths part+28:worker --calm 0",
        "sync 5818",
        # A worker looked so late that it wrote no part of round 6, and its next one was taken for a
        # sign that it had: the whole checkpoint of round 3 was deleted.
        "hosts-switch 116 --machines 2 --rounds 9 --deaths - --calm 1000",
    ],
)
def test_schedule_that_once_failed_passes(command: str) -> None:
    kind, seed, *words = command.split()
    chosen = {name[2:]: value for name, value in zip(words[::2], words[1::2], strict=True)}
    assert failure(with_words(draw(kind, int(seed)), chosen)).error == ""


@pytest.mark.parametrize("kind", ["sync", "async-elastic"])
def test_schedule_repeats_its_history(kind: str) -> None:
    one, again, other = (failure(draw(kind, seed)) for seed in (3, 3, 4))
    assert one == again
    assert one.history != other.history
    assert len(one.history) > 100


def test_schedule_command_names_the_same_schedule() -> None:
    drawn = draw("switch", 7)
    assert drawn.command == "python -m tests.search switch 7"
    words = {"workers": "1", "momentum": "0.5", "deaths": "12:worker:0,90:power,part+3:hang", "calm": "40"}
    other = with_words(drawn, words)
    assert other.deaths == (Death(12, "worker", 0), Death(90, "power"), Death(3, "hang", moment="part"))
    assert (other.workers, other.calm) == (1, 40)
    assert other.command.startswith("python -m tests.search switch 7 --")
    said = dict(zip(*[iter(other.command.split()[5:])] * 2, strict=True))
    assert with_words(drawn, {name[2:]: value for name, value in said.items()}) == other


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_fault_can_be_put_back(fault: Fault) -> None:
    with fault.put_back():
        pass


@pytest.mark.long
@pytest.mark.parametrize("fault", [pytest.param(each, id=name) for name, each in FAULTS.items() if not each.missed])
def test_fault_put_back_is_found(fault: Fault) -> None:
    assert fault.found(1000) is not None
