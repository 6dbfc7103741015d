import os
import signal

from ..support import child
from ..support.child import alive, ends

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


def test_child_dies_with_its_parent():
    with child.started("-c", PARENT, "0") as parent:
        pid = int(parent.stdout.readline())
        assert int(parent.stdout.readline()) == pid
        assert alive(pid)
        parent.kill()
        parent.wait()
        assert ends(pid)


def test_child_started_after_its_parents_death_dies_at_once():
    with child.started("-c", PARENT, "0.5") as parent:
        pid = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
        assert ends(pid)


def test_child_of_another_parent_dies_at_once():
    result = child.run("-c", "from esync.runtime.processes import die_with_parent\ndie_with_parent(1)\nprint('alive')")
    assert (result.returncode, result.stdout) == (1, "")


#: A parent that forks a child, from its main thread or another one; the child says its process id,
#: and the signal that it gets when that thread ends.
FORKING_PARENT = """
import ctypes, multiprocessing, os, sys, threading, time
from esync.runtime.processes import bind_children
PR_GET_PDEATHSIG = 2
def child():
    number = ctypes.c_int()
    ctypes.CDLL(None).prctl(PR_GET_PDEATHSIG, ctypes.byref(number))
    print(os.getpid(), number.value, flush=True)
    time.sleep(60)
bind_children()
process = multiprocessing.get_context("fork").Process(target=child)
print("ready", flush=True)
if sys.argv[1] == "thread":
    forking = threading.Thread(target=process.start)
    forking.start()
    forking.join()
else:
    process.start()
time.sleep(60)
"""


def test_multiprocessing_child_dies_with_its_parent():
    with child.started("-c", FORKING_PARENT, "main") as parent:
        pid = int(parent.stdout.readline().split()[0])
        parent.kill()
        parent.wait()
        assert ends(pid)


def test_multiprocessing_child_of_a_thread_does_not_die_with_the_thread():
    with child.started("-c", FORKING_PARENT, "thread") as parent:
        pid, number = map(int, parent.stdout.readline().split())
        os.kill(pid, signal.SIGKILL)
        assert number == 0
