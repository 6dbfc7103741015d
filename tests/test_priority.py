import os
import subprocess
import sys
from pathlib import Path

import pytest

from esync.priority import EVALUATING, of_emulated

PROGRAM = """
import os
from pathlib import Path
from esync.priority import stand_back
stand_back(4)
print(os.getpriority(os.PRIO_PROCESS, 0))
group = Path("/proc/self/autogroup")
print(group.read_text().split()[-1] if group.exists() else "none")
"""


def test_the_slower_the_emulated_device_the_more_it_can_wait():
    levels = [of_emulated(seconds) for seconds in (0.1, 0.4, 0.95, 1.3, 4.1, 1000.0)]
    assert levels == sorted(levels)
    assert levels[0] == of_emulated(None) == 0
    assert levels[1] < levels[2] < levels[4]
    assert levels[-1] < EVALUATING


@pytest.mark.parametrize("leads", [True, False])
def test_only_who_leads_a_session_changes_the_niceness_of_its_group(leads):
    before = os.getpriority(os.PRIO_PROCESS, 0)
    group = Path("/proc/self/autogroup")
    had = group.read_text().split()[-1] if group.exists() else "none"
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, start_new_session=leads, check=True, timeout=60
    )
    own, groups = run.stdout.split()
    assert int(own) == min(19, before + 4)
    assert groups == ("4" if leads and had != "none" else had)
