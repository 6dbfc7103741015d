import pytest

from esync.exchange.protocol.resume_negotiation import Offer, Offers, WholeCheckpointTracker, choose

JOB, LATER = 11, 22


def model(round_: int, job: int = JOB, whole_before: bool = True, needs=(0, 1)) -> Offer:
    """Rank 0's part."""
    return Offer(round_, job, whole_before, needs)


def held(*parts: Offer) -> Offers:
    return Offers(resume=True, parts=parts)


def test_resume_without_resume_flag_begins_anew():
    assert choose({0: Offers(), 1: Offers()}) == -1


def test_resume_chooses_the_newest_round_that_all_have():
    offers = {0: held(model(30), model(20), model(10)), 1: held(Offer(20, JOB), Offer(10, JOB))}
    assert choose(offers) == 20


def test_resume_does_not_mix_parts_of_different_jobs():
    offers = {0: held(model(20, LATER), model(10)), 1: held(Offer(20, JOB), Offer(10, JOB))}
    assert choose(offers) == 10


def test_resume_needs_no_part_of_a_worker_that_was_no_member():
    offers = {0: held(model(20, needs=(0, 2)), model(10)), 1: held(Offer(10, JOB)), 2: held(Offer(20, JOB))}
    assert choose(offers) == 20


def test_resume_of_asynchronous_checkpoint_needs_rank_0_only():
    assert choose({0: held(model(23, needs=(0,))), 1: held(Offer(17, JOB)), 2: held()}) == 23


@pytest.mark.parametrize(
    "offers",
    [
        {0: held(model(10, whole_before=False)), 1: held()},
        {0: held(), 1: held(Offer(10, JOB))},
    ],
)
def test_resume_after_death_during_the_first_checkpoint_begins_anew(offers):
    assert choose(offers) == -1


@pytest.mark.parametrize(
    ("offers", "held_by"),
    [
        ({0: held(model(20), model(10)), 1: held()}, "worker 0 has those of round 10, 20; worker 1 has none"),
        ({0: held(), 1: held(Offer(20, JOB, True))}, "worker 0 has none; worker 1 has those of round 20"),
    ],
)
def test_resume_with_lost_parts_names_who_holds_what(offers, held_by):
    with pytest.raises(ValueError, match=held_by):
        choose(offers)


def test_resume_flag_on_some_workers_only_is_refused():
    with pytest.raises(ValueError, match="worker 1 was started with --resume and worker 0 without it"):
        choose({0: Offers(), 1: held()})


def test_resume_with_problem_of_one_worker_stops_all():
    with pytest.raises(ValueError, match="worker 1: no such folder"):
        choose({0: held(), 1: Offers(True, problem="no such folder")})


def test_checkpoint_of_which_a_worker_has_skipped_its_part_is_not_whole():
    """A worker once had to have every part up to its newest one."""
    tracker = WholeCheckpointTracker()
    for round_ in (3, 6):
        tracker.used({0: 0, 1: 0} if round_ == 3 else {0: 3, 1: 3}, round_, together=True)
    tracker.used({0: 6}, 6, together=False)
    assert tracker.round == 3
    tracker.used({1: 8}, 8, together=False)  # it has looked so late that it was told round 8, not round 6
    assert tracker.round == 3
    tracker.used({0: 9}, 9, together=False)
    assert tracker.round == 9  # of commits that are used at once, worker 0's part is enough


def test_checkpoint_whose_parts_are_told_one_after_the_other_is_whole_with_the_last():
    tracker = WholeCheckpointTracker()
    tracker.used({0: 0, 1: 0}, 2, together=True)
    tracker.used({0: 2, 1: 0}, 3, together=True)
    assert tracker.round == 0
    tracker.used({0: 3, 1: 2}, 4, together=True)
    assert tracker.round == 2


def test_checkpoint_with_a_part_of_a_replaced_worker_is_not_whole():
    tracker = WholeCheckpointTracker()
    tracker.used({0: 0, 1: 0}, 2, together=True)
    tracker.used({1: 2}, 2, together=False)
    tracker.joined(1)
    tracker.used({0: 2}, 2, together=False)
    assert tracker.round == 0
