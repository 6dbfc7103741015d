import os
import subprocess
import sys

import pytest

from esync.priority import EVALUATING, GROUP_NICENESS, of_emulated

PROGRAM = """
import os
from esync.priority import GROUP_NICENESS, stand_back
stand_back(4)
print(os.getpriority(os.PRIO_PROCESS, 0))
print(GROUP_NICENESS.read_text() if GROUP_NICENESS.exists() else "")
"""


def niceness(group: str) -> str:
    """Of what Linux says about a group, for instance "/autogroup-7 nice 4"; a kernel without groups says nothing."""
    return group.split()[-1] if group.strip() else "none"


def test_the_slower_the_emulated_device_the_more_it_can_wait():
    levels = [of_emulated(seconds) for seconds in (0.1, 0.4, 0.95, 1.3, 4.1, 1000.0)]
    assert levels == sorted(levels)
    assert levels[0] == of_emulated(None) == 0
    assert levels[1] < levels[2] < levels[4]
    assert levels[-1] < EVALUATING


@pytest.mark.parametrize("leads", [True, False])
def test_only_who_leads_a_session_changes_the_niceness_of_its_group(leads):
    before = os.getpriority(os.PRIO_PROCESS, 0)
    had = niceness(GROUP_NICENESS.read_text() if GROUP_NICENESS.exists() else "")
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, start_new_session=leads, check=True, timeout=60
    )
    own, _, group = run.stdout.partition("\n")
    assert int(own) == min(19, before + 4)
    assert niceness(group) == ("4" if leads and had != "none" else had)
