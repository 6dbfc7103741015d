"""Messages that the coordinator refuses without a change of its state."""

import math
from collections.abc import Callable

import pytest

from esync.coordination.coordinator import ConflictError, Coordinator, InvalidError

REFUSED: dict[str, tuple[type[Exception], Callable[[Coordinator], object]]] = {
    "rank too large": (InvalidError, lambda job: job.apply(3, 1, 0.1, 1.0)),
    "rank negative": (InvalidError, lambda job: job.apply(-1, 1, 0.1, 1.0)),
    "k negative": (InvalidError, lambda job: job.apply(0, -1, 0.1, 1.0)),
    "c negative": (InvalidError, lambda job: job.apply(0, 9, -0.1, 1.0)),
    "c not a number": (InvalidError, lambda job: job.apply(0, 9, math.nan, 1.0)),
    "c infinite": (InvalidError, lambda job: job.apply(0, 9, math.inf, 1.0)),
    "te not a number": (InvalidError, lambda job: job.apply(0, 9, 0.1, 1.0, te=math.nan)),
    "te negative": (InvalidError, lambda job: job.apply(0, 9, 0.1, 1.0, te=-1.0)),
    "round negative": (InvalidError, lambda job: job.apply(0, 9, 0.1, 1.0, round=-2)),
    "question of an older round": (ConflictError, lambda job: job.apply(0, 9, 0.1, 1.0, round=1)),
    "question of a later round": (ConflictError, lambda job: job.apply(0, 9, 0.1, 1.0, round=3)),
    "question before the own RESET": (ConflictError, lambda job: job.apply(2, 9, 0.1, 1.0)),
    "same, naming the round": (ConflictError, lambda job: job.apply(2, 9, 0.1, 1.0, round=2)),
    "RESET, unknown rank": (InvalidError, lambda job: job.reset(3, 2, 1.0)),
    "RESET, te infinite": (InvalidError, lambda job: job.reset(2, 2, 1.0, te=math.inf)),
    "RESET of round 0": (ConflictError, lambda job: job.reset(0, 0, 1.0)),
    "RESET, negative round": (InvalidError, lambda job: job.reset(0, -1, 1.0)),
    "RESET of an older round": (ConflictError, lambda job: job.reset(2, 1, 1.0)),
    "RESET that skips a round": (ConflictError, lambda job: job.reset(0, 4, 1.0)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_message_changes_nothing(name):
    job = Coordinator(3, 0.02)
    for rank in range(3):
        job.apply(rank, 0, 0.1 * (rank + 1), now=0.0, te=5.0)
    for rank in (0, 1):  # rank 2 is not in round 2 yet
        job.reset(rank, 2, now=0.5, te=6.0)
    job.apply(0, 1, 0.1, now=0.6, te=7.0)
    before, progress = job.snapshot(), job.last_progress
    kind, call = REFUSED[name]
    with pytest.raises(kind) as refusal:
        call(job)
    assert type(refusal.value) is kind
    assert job.snapshot() == before
    assert job.last_progress == progress


@pytest.mark.parametrize(
    "arguments",
    [
        {"num_workers": 0},
        {"num_workers": -1},
        {"num_workers": 10**9},
        {"epsilon": -0.1},
        {"epsilon": math.nan},
        {"epsilon": math.inf},
        {"slowest_iterations": 0},
        {"smoothing": 0.0},
        {"smoothing": 1.5},
    ],
)
def test_coordinator_with_invalid_arguments_is_refused(arguments):
    with pytest.raises(InvalidError, match=next(iter(arguments))):
        Coordinator(**{"num_workers": 2, "epsilon": 0.1, **arguments})


def test_refusal_says_what_would_have_been_right():
    job = Coordinator(3, 0.0)
    with pytest.raises(InvalidError, match="unknown rank 7: this job has the ranks 0 to 2"):
        job.apply(7, 0, 0.1, 0.0)
    with pytest.raises(ConflictError, match="RESET for round 5 refused: the job is in round 1"):
        job.reset(0, 5, 0.0)
