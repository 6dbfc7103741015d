"""Messages that the coordinator refuses without a change of its state."""

import pytest

from esync.coordination.coordinator import ConflictError, Coordinator, InvalidError

QUERY = {"rank": 0, "round": None, "iteration": 9, "capability": 0.1, "now": 1.0}
RESET = {"rank": 2, "round": 2, "now": 1.0}
REFUSED = [
    (InvalidError, {**QUERY, "rank": 3}),
    (InvalidError, {**QUERY, "rank": -1}),
    (ConflictError, {**QUERY, "round": 1}),  # of an older round
    (ConflictError, {**QUERY, "round": 3}),
    (ConflictError, {**QUERY, "rank": 2}),  # before its own RESET
    (ConflictError, {**QUERY, "rank": 2, "round": 2}),
    (InvalidError, {**RESET, "rank": 7}),
    (InvalidError, {**RESET, "members": [0, 7]}),
    (ConflictError, {**RESET, "round": 0}),
    (ConflictError, {**RESET, "round": 1}),
    (ConflictError, {**RESET, "round": 5}),  # skips rounds
]
#: What the message says would have been right.
RIGHT = {InvalidError: "ranks 0 to 2", ConflictError: "the job is in round 2"}


@pytest.mark.parametrize(("kind", "arguments"), REFUSED)
def test_refused_message_changes_nothing(kind, arguments):
    job = Coordinator(3, 0.02)
    for rank in range(3):
        job.query(rank, None, 0, 0.1 * (rank + 1), now=0.0, te=5.0)
    for rank in (0, 1):  # rank 2 is not in round 2 yet
        job.reset(rank, 2, now=0.5, te=6.0)
    job.query(0, None, 1, 0.1, now=0.6, te=7.0)
    before, progress = job.snapshot(), job.last_progress
    with pytest.raises(kind, match=RIGHT[kind]) as refusal:
        (job.query if "iteration" in arguments else job.reset)(**arguments)
    assert type(refusal.value) is kind
    assert job.snapshot() == before
    assert job.last_progress == progress
