import pytest

from esync.exchange.protocol.resume_negotiation import Offer, Offers, choose

JOB, LATER = 11, 22


def model(round_: int, job: int = JOB, ordinal: int = 2, needs=(0, 1)) -> Offer:
    """Rank 0's part."""
    return Offer(round_, job, ordinal, needs)


def held(*parts: Offer) -> Offers:
    return Offers(resume=True, parts=parts)


def test_nobody_asks():
    assert choose({0: Offers(), 1: Offers()}) == -1


def test_nobody_has_anything():
    assert choose({0: held(), 1: held()}) == -1


def test_the_newest_that_all_have():
    offers = {0: held(model(30), model(20), model(10)), 1: held(Offer(20, JOB), Offer(10, JOB))}
    assert choose(offers) == 20


def test_parts_of_different_lives_are_not_mixed():
    offers = {0: held(model(20, LATER), model(10)), 1: held(Offer(20, JOB), Offer(10, JOB))}
    assert choose(offers) == 10


def test_who_was_no_member_then_is_not_needed():
    offers = {0: held(model(20, needs=(0, 2)), model(10)), 1: held(Offer(10, JOB)), 2: held(Offer(20, JOB))}
    assert choose(offers) == 20


def test_asynchronous_ones_need_nobody():
    assert choose({0: held(model(23, needs=(0,))), 1: held(Offer(17, JOB)), 2: held()}) == 23


@pytest.mark.parametrize(
    "offers",
    [
        {0: held(model(10, ordinal=1)), 1: held()},
        {0: held(), 1: held(Offer(10, JOB, 1))},
    ],
)
def test_a_job_that_died_during_its_first_checkpoint_begins_anew(offers):
    assert choose(offers) == -1


@pytest.mark.parametrize(
    ("offers", "held_by"),
    [
        ({0: held(model(20), model(10)), 1: held()}, "worker 0 has those of round 10, 20; worker 1 has none"),
        ({0: held(), 1: held(Offer(20, JOB, 2))}, "worker 0 has none; worker 1 has those of round 20"),
    ],
)
def test_lost_parts_are_not_passed_over(offers, held_by):
    with pytest.raises(ValueError, match=held_by):
        choose(offers)


def test_all_or_none_resume():
    with pytest.raises(ValueError, match="worker 1 was started with --resume and worker 0 without it"):
        choose({0: Offers(), 1: held()})


def test_a_problem_of_one_worker_stops_all():
    with pytest.raises(ValueError, match="worker 1: no such folder"):
        choose({0: held(), 1: Offers(True, problem="no such folder")})
