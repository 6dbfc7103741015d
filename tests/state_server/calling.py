"""Calls a state server as workers do, and starts one as a process."""

import http.client
import json
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlencode

from tests.support.child import environment, until  # noqa: F401 - used by tests

ROOT = Path(__file__).parents[2]
JSON = {"Content-Type": "application/json"}


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


def content(url: str, fields: dict | None = None, **headers: str):
    """The JSON that a call answers."""
    return send(url, fields, **headers)[1]


def states(job: str) -> list[str]:
    """Those of a job's workers."""
    return [worker["state"] for worker in content(job)["workers"]]


def rows(job: str, kind: str = "rounds", query: str = "") -> list[dict]:
    """What the history has of a job so far."""
    status, answer, _ = send(f"{job}/{kind}{query}")
    return answer[kind] if status == 200 else []


def get(url: str, path: str, **headers: str) -> tuple[int, bytes, dict[str, str]]:
    """One GET that follows nothing; headers by lower-case names."""
    host = url.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=10)
    connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body, {name.lower(): value for name, value in answer.getheaders()}


def port_of(url: str) -> int:
    return int(url.rsplit(":", 1)[1])


def certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate for 127.0.0.1 and its key."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=me -days 1 -addext subjectAltName=IP:127.0.0.1"
    subprocess.run([*command.split(), "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


def post(url: str, content: object, **headers: str):
    """Make one call of the JSON API. Returns (status, JSON or None, headers)."""
    return send(url, json.dumps(content).encode(), **JSON, **headers)


def ask(job: str, rank: int, iteration: int, capability: float, **headers: str) -> dict:
    """A worker's question in round 1, which is not refused; the answer."""
    asked = {"rank": rank, "round": 1, "iteration": iteration, "capability": capability}
    status, answer, _ = post(f"{job}/query", asked, **headers)
    assert status == 200, answer
    return answer


def begin(url: str, name: str, speeds: list[float], epsilon: float = 0.02) -> str:
    """Begin a job whose workers tell their speeds; return its address."""
    job = f"{url}/api/v1/jobs/{name}"
    assert post(job, {"num_workers": len(speeds), "epsilon": epsilon})[0] == 200
    for rank, speed in enumerate(speeds):
        assert ask(job, rank, 0, speed)["ready"] is False
    return job


def report(rank: int = 0, round: int = 1, **changes: object) -> dict:
    """A worker's account of a round."""
    return {
        "rank": rank, "round": round, "device": "gpu0", "host": "cloud1", "local_iterations": 7, "samples": 448,
        "seconds": 2.0, "compute": 1.5, "wait": 0.3, "exchange": 0.2, "bytes_sent": 100, "bytes_received": 200,
        **changes,
    }  # fmt: skip


class ServerProcess:
    """A server in a process of its own.

    `url` is the address that it printed, `output` everything that it printed.
    """

    def __init__(self, *command: str, cwd: Path = ROOT, **variables: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *command],
            cwd=cwd,
            env=environment(PYTHONUNBUFFERED="1", **variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.url, self.output = "", ""
        for line in self.process.stdout:
            self.output += line
            if match := re.search(r"https?://\S+:\d+", line):
                self.url = match[0]
                break
        # From here on the pipe must be emptied, or a talkative server would come to a stop.
        self._reader = threading.Thread(target=self._read_on, daemon=True)
        self._reader.start()

    @property
    def port(self) -> int:
        return port_of(self.url)

    @property
    def worker(self) -> int:
        """The process that answers: the only child of the started one."""
        pid = self.process.pid
        (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(child)

    def _read_on(self) -> None:
        for line in self.process.stdout:
            self.output += line

    def end(self, number: int) -> int:
        """Send a signal; return the exit code."""
        self.process.send_signal(number)
        return self.wait()

    def end_well(self) -> None:
        """Send SIGTERM, and check that it ends as it should."""
        assert self.end(signal.SIGTERM) == 0
        assert "Traceback" not in self.output

    def wait(self, timeout: float = 10) -> int:
        """Return the exit code."""
        code = self.process.wait(timeout)
        self._reader.join(timeout)
        return code
