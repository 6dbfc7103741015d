"""Which rank a worker asks for."""

import pytest

from esync.membership.rendezvous.rank_request import requested_rank
from esync.runtime.environment import EnvironmentProblemError


@pytest.mark.parametrize(("text", "rank"), [(" ", None), ("1", 1)])
def test_wanted_rank_is_that_of_the_environment(text, rank):
    assert requested_rank(2, {"ESYNC_SLOT": text}) == rank
    assert requested_rank(2, {}) is None


@pytest.mark.parametrize("text", ["2", "-1", "one"])
def test_wanted_rank_that_is_none_is_refused_by_name(text):
    with pytest.raises(EnvironmentProblemError, match=rf"ESYNC_SLOT is '?{text}'?, but should be a "):
        requested_rank(2, {"ESYNC_SLOT": text})
