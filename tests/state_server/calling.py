"""Calls a state server as published workers do, and starts one as a process."""

import json
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlencode

ROOT = Path(__file__).parents[2]


def send(url: str, fields: dict | bytes | None = None, method: str | None = None, **headers: str):
    """Make one call on a connection of its own. Returns (status, JSON or None, headers)."""
    body = urlencode(fields).encode() if isinstance(fields, dict) else fields
    request = urllib.request.Request(url, body, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            status, text, got = response.status, response.read(), response.headers
    except urllib.error.HTTPError as error:
        status, text, got = error.code, error.read(), error.headers
    return status, json.loads(text) if text else None, got


class ServerProcess:
    """A server in a process of its own; `url` is the address that it printed, `output` all that it printed."""

    def __init__(self, *command: str, cwd: Path = ROOT) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *command], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.url, self.output = "", ""
        for line in self.process.stdout:
            self.output += line
            if found := re.search(r"http://\S+:\d+", line):
                self.url = found[0]
                break
        # From here on the pipe must be emptied, or a talkative server would come to a stop.
        self._reader = threading.Thread(target=self._read_on, daemon=True)
        self._reader.start()

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def _read_on(self) -> None:
        for line in self.process.stdout:
            self.output += line

    def end(self, signal: int) -> int:
        """Send a signal; return the exit code."""
        self.process.send_signal(signal)
        return self.wait()

    def wait(self, timeout: float = 10) -> int:
        """Return the exit code."""
        code = self.process.wait(timeout)
        self._reader.join(timeout)
        return code
