"""A plan that is interrupted leaves nothing behind, however impatient its user is."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.support import child

pytestmark = pytest.mark.timeout(180)

#: Ignores SIGTERM, and tells its process id.
STUBBORN = """
import os, pathlib, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
path = pathlib.Path(sys.argv[1])
path.with_suffix(".new").write_text(str(os.getpid()))
path.with_suffix(".new").rename(path)
time.sleep(600)
"""


def test_program_that_ignores_sigterm_is_gone_after_many_interrupts(tmp_path: Path) -> None:
    localhost = {"host": "localhost"}
    content = {
        "scheduler": localhost,
        "servers": [localhost],
        "state_server": localhost,
        "workers": [{**localhost, "device": "cpu"}],
    }
    file, program, pid_file = tmp_path / "cluster.yaml", tmp_path / "stubborn.py", tmp_path / "pid"
    file.write_text(yaml.safe_dump(content))
    program.write_text(STUBBORN)
    words = [sys.executable, "-m", "esync.planning", str(file), "--", sys.executable, str(program), str(pid_file)]
    plan = subprocess.Popen(words, env=child.environment(TMPDIR=str(tmp_path)), start_new_session=True)
    pid = 0
    try:
        child.until(pid_file.exists, 90, "the program has not started")
        pid = int(pid_file.read_text())
        while plan.poll() is None:
            plan.send_signal(signal.SIGINT)
            time.sleep(0.1)
        child.until(lambda: not Path("/proc", str(pid)).exists(), 90, "the program is still there")
        assert plan.returncode in (1, -signal.SIGINT)  # Python hears no more in its last moments
        assert list(tmp_path.glob("esync-plan-*")) == []
    finally:
        plan.kill()
        plan.wait()
        if pid and Path("/proc", str(pid)).exists():
            os.kill(pid, signal.SIGKILL)
