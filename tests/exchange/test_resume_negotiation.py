from typing import Any

import pytest

from esync.exchange.protocol.resume_negotiation import Offer, Offers, WholeCheckpointTracker, choose

JOB, LATER = 11, 22


def held(*parts: tuple[Any, ...]) -> Offers:
    """The offer of a worker: the round of each part, its job, whether one was whole before, and who is needed."""
    return Offers(resume=True, parts=[Offer(*part) for part in parts])


def model(
    round_: int, job: int = JOB, complete_before: bool = True, needs: tuple[int, ...] = (0, 1)
) -> tuple[Any, ...]:
    """Rank 0's part."""
    return round_, job, complete_before, needs


#: Name → what each rank has, and the round from which the job goes on; -1: it begins anew.
CHOICES = {
    "without --resume": ([Offers(), Offers()], -1),
    "the newest round that all have": ([held(model(30), model(20), model(10)), held((20, JOB), (10, JOB))], 20),
    "no parts of different jobs": ([held(model(20, LATER), model(10)), held((20, JOB), (10, JOB))], 10),
    "no part of a worker that was no member": (
        [held(model(20, needs=(0, 2)), model(10)), held((10, JOB)), held((20, JOB))], 20
    ),
    "of rank 0 only in asynchronous runs": ([held(model(23, needs=(0,))), held((17, JOB)), held()], 23),
    "death during the first checkpoint": ([held(model(10, complete_before=False)), held()], -1),
    "death of rank 0 during the first checkpoint": ([held(), held((10, JOB))], -1),
}  # fmt: skip


@pytest.mark.parametrize(("offers", "round_"), CHOICES.values(), ids=CHOICES)
def test_resume_chooses_the_round_to_go_on_from(offers: list[Offers], round_: int) -> None:
    assert choose(dict(enumerate(offers))) == round_


@pytest.mark.parametrize(
    ("offers", "message"),
    [
        ([held(model(20), model(10)), held()], "worker 0 has those of round 10, 20; worker 1 has none"),
        ([held(), held((20, JOB, True))], "worker 0 has none; worker 1 has those of round 20"),
        ([Offers(), held()], "worker 1 was started with --resume and worker 0 without it"),
        ([held(), Offers(True, problem="no such folder")], "worker 1: no such folder"),
        ([Offers(True, problem="no such folder")] * 7, "^worker 0, 1, 2, 3, 4 and 2 more: no such folder$"),
    ],
)
def test_resume_that_is_impossible_is_refused_by_name(offers: list[Offers], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        choose(dict(enumerate(offers)))


def test_checkpoint_of_which_a_worker_has_skipped_its_part_is_not_whole():
    """A worker once had to have every part up to its newest one."""
    tracker = WholeCheckpointTracker()
    tracker.used({0: 0, 1: 0}, 3, (0, 1))
    tracker.used({0: 3, 1: 3}, 6, (0, 1))
    tracker.used({0: 6}, 6, None)
    assert tracker.round == 3
    tracker.used({1: 8}, 8, None)  # it has looked so late that it was told round 8, not round 6
    assert tracker.round == 3
    tracker.used({0: 9}, 9, None)
    assert tracker.round == 9  # of commits that are used at once, worker 0's part is enough


def test_checkpoint_whose_parts_are_told_one_after_the_other_is_whole_with_the_last():
    tracker = WholeCheckpointTracker()
    tracker.used({0: 0, 1: 0}, 2, (0, 1))
    tracker.used({0: 2, 1: 0}, 3, (0, 1))
    assert tracker.round == 0
    tracker.used({0: 3, 1: 2}, 4, (0, 1))
    assert tracker.round == 2


def test_checkpoint_with_a_part_of_a_replaced_worker_is_not_whole():
    tracker = WholeCheckpointTracker()
    tracker.used({0: 0, 1: 0}, 2, (0, 1))
    tracker.used({1: 2}, 2, None)
    tracker.joined(1)
    tracker.used({0: 2}, 2, None)
    assert tracker.round == 0
