"""A state server on this machine."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from .program import ROOT


@contextmanager
def state_server() -> Iterator[int]:
    """Run a state server without a job; yield its port."""
    environment = {name: value for name, value in os.environ.items() if name != "ESYNC_TOKEN"}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "esync.state_server", "--port", "0", "--state-dir", folder]
        process = subprocess.Popen(
            command, cwd=ROOT, env={**environment, "PYTHONUNBUFFERED": "1"}, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if match := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                    yield int(match[1])
                    return
            raise RuntimeError(f"the state server ended without listening, exit code {process.wait()}")
        finally:
            process.terminate()
            process.wait()
            process.stdout.close()
