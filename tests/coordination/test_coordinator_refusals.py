"""Messages that the coordinator refuses without a change of its state."""

import math

import pytest

from esync.coordination.coordinator import ConflictError, Coordinator, InvalidError

APPLY = {"rank": 0, "iteration": 9, "capability": 0.1, "now": 1.0}
RESET = {"rank": 2, "round": 2, "now": 1.0}
REFUSED = [
    *(
        (InvalidError, {**APPLY, **changes})
        for changes in (
            *({"rank": 3}, {"rank": -1}, {"iteration": -1}, {"round": -2}, {"te": math.nan}, {"te": -1.0}),
            *({"capability": -0.1}, {"capability": math.nan}, {"capability": math.inf}),
        )
    ),
    (ConflictError, {**APPLY, "round": 1}),  # of an older round
    (ConflictError, {**APPLY, "round": 3}),
    (ConflictError, {**APPLY, "rank": 2}),  # before its own RESET
    (ConflictError, {**APPLY, "rank": 2, "round": 2}),
    (InvalidError, {**RESET, "rank": 7}),
    (InvalidError, {**RESET, "te": math.inf}),
    (InvalidError, {**RESET, "members": [0, 7]}),
    (InvalidError, {**RESET, "round": -1}),
    (ConflictError, {**RESET, "round": 0}),
    (ConflictError, {**RESET, "round": 1}),
    (ConflictError, {**RESET, "round": 5}),  # skips rounds
]
#: What the message says would have been right.
RIGHT = {InvalidError: "negative|finite|ranks 0 to 2", ConflictError: "the job is in round 2"}


@pytest.mark.parametrize(("kind", "arguments"), REFUSED)
def test_refused_message_changes_nothing(kind, arguments):
    job = Coordinator(3, 0.02)
    for rank in range(3):
        job.apply(rank, 0, 0.1 * (rank + 1), now=0.0, te=5.0)
    for rank in (0, 1):  # rank 2 is not in round 2 yet
        job.reset(rank, 2, now=0.5, te=6.0)
    job.apply(0, 1, 0.1, now=0.6, te=7.0)
    before, progress = job.snapshot(), job.last_progress
    with pytest.raises(kind, match=RIGHT[kind]) as refusal:
        (job.apply if "iteration" in arguments else job.reset)(**arguments)
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
    ],
)
def test_coordinator_with_invalid_arguments_is_refused(arguments):
    with pytest.raises(InvalidError, match=next(iter(arguments))):
        Coordinator(**{"num_workers": 2, "epsilon": 0.1, **arguments})
