import os
import subprocess
import sys

import pytest

from esync.runtime.processes import EVALUATING, niceness_of_emulated

#: What Linux says about a group is, for instance, "/autogroup-7 nice 4"; of a session in no group
#: it says nothing, and the child that leads a session of its own may be in one where this process
#: is not.
PROGRAM = """
import os
from pathlib import Path
from esync.runtime.processes import GROUP_NICENESS, set_niceness
def group():
    file = Path(GROUP_NICENESS.format("self"))
    said = file.read_text() if file.exists() else ""
    return said.split()[-1] if said.strip() else "none"
before = group()
set_niceness(4)
print(os.getpriority(os.PRIO_PROCESS, 0), before, group())
"""


def test_niceness_of_emulated_device_rises_with_its_step_time():
    levels = [niceness_of_emulated(seconds) for seconds in (0.1, 0.4, 0.95, 1.3, 4.1, 1000.0)]
    assert levels == sorted(levels)
    assert levels[0] == niceness_of_emulated(None) == 0
    assert levels[1] < levels[2] < levels[4]
    assert levels[-1] < EVALUATING


@pytest.mark.parametrize("leads", [True, False])
def test_niceness_of_the_group_is_changed_by_session_leaders_only(leads):
    before = os.getpriority(os.PRIO_PROCESS, 0)
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, start_new_session=leads, check=True, timeout=60
    )
    niceness, group_before, group_after = run.stdout.split()
    assert int(niceness) == min(19, before + 4)
    assert group_after == ("4" if leads and group_before != "none" else group_before)
