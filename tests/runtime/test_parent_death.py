import os
import signal
import sys
import time

import pytest

from ..support import child

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel")

#: A parent that starts a child which ties itself to it; the child says its process id.
PARENT = """
import os, subprocess, sys, time
CHILD = '''
import os, sys, time
from esync.runtime.processes import die_with_parent
time.sleep(float(sys.argv[2]))
die_with_parent(int(sys.argv[1]))
print(os.getpid(), flush=True)
time.sleep(60)
'''
process = subprocess.Popen(
    [sys.executable, "-c", CHILD, str(os.getpid()), sys.argv[1]], stdout=subprocess.PIPE, text=True
)
print("ready")
print(process.pid, flush=True)
print(process.stdout.readline(), flush=True)
time.sleep(60)
"""


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def dies(pid: int) -> bool:
    deadline = time.monotonic() + 20
    while alive(pid):
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            return False
        time.sleep(0.02)
    return True


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_child_dies_with_its_parent(number):
    with child.started("-c", PARENT, "0") as parent:
        pid = int(parent.stdout.readline())
        assert int(parent.stdout.readline()) == pid
        assert alive(pid)
        parent.send_signal(number)
        parent.wait()
        assert dies(pid)


def test_a_child_that_comes_too_late_dies_at_once():
    with child.started("-c", PARENT, "0.5") as parent:
        pid = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
        assert dies(pid)


def test_a_child_whose_parent_is_another_one_dies_at_once():
    result = child.run("-c", "from esync.runtime.processes import die_with_parent\ndie_with_parent(1)\nprint('alive')")
    assert (result.returncode, result.stdout) == (1, "")
