"""Fuzzed messages to a state server process: valid HTTP, valid and invalid content.

`pytest -m long` sends 10,000 of them.
"""

import http.client
import json
import random
import signal
import string
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from calling import ServerProcess, begin, post, report, send, until

JOBS = ["default", "a", "b-1", "c.d", "e_f", "../a", "", "x" * 65, "ä", "%00"]
ODD: list[Any] = [
    None, True, -1, 0, 1, 2, 3, 7, 9999, 10**9 - 1, 10**9, 10**19, -0.0, 0.5, 1e-300, 1e9, 1e300, "1", "", "x", "\0",
    "\x1b[2J", "ä\u2028", "1e400", "NaN", [], [0], [0, 0], [10**6], {}, {"a": 1}, "y" * 300,
]  # fmt: skip
WATCHING = {"policy": "elastic", "window": 1000, "stride": 5, "raise_after": 1, "clear_after": 1, "floor": 0.9}
#: Path → a body that makes sense.
CALLS: dict[str, dict[str, Any]] = {
    "": {"num_workers": 3, "epsilon": 0.02, "slowest_iterations": 1, "run": "r", "watching": WATCHING},
    "/query": {"rank": 0, "round": 1, "iteration": 1, "capability": 0.1, "round_trip": 0.001},
    "/steps": {"rank": 0, "since": 0, "steps": 10, "seconds": 1.0},
    "/reset": {"rank": 0, "round": 2, "rejoin": False, "members": [0, 1, 2]},
    "/report": report(),
    "/end": {"reason": "done"},
}
FORMS: dict[str, dict[str, Any]] = {
    "/init/": {"num_workers": 3, "epsilon": 0.02, "slowest_iterations": 1, "run": "r"},
    "/apply/": {"r": 0, "k": 1, "c": 0.1, "te": 1.0, "t": 1},
    "/reset/": {"r": 0, "t": 2, "te": 1.0, "rejoin": 0, "members": "0,1,2"},
}


class Drawn:
    """Draws requests: (method, path, headers, body)."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)

    def request(self) -> tuple[str, str, dict[str, str], Any]:
        kind = self._draw.random()
        if kind < 0.6:
            return self._json()
        if kind < 0.9:
            return self._form()
        return self._anything()

    def _fields(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The same with nothing or some of it made odd, moved on, left out or added."""
        changed = dict(fields)
        for name in fields:
            luck = self._draw.random()
            if luck < 0.1:
                changed[name] = self._draw.choice(ODD)
            elif luck < 0.4 and type(fields[name]) in (int, float):
                changed[name] = self._draw.choice([0, 1, 2, 3, 4, 5]) * (fields[name] or 1)
            elif luck < 0.43:
                del changed[name]
        if self._draw.random() < 0.03:
            changed[self._text()] = self._draw.choice(ODD)
        return changed

    def _json(self) -> tuple[str, str, dict[str, str], Any]:
        call = self._draw.choice([*CALLS, "/query", "/query", "/reset", "/steps", "/report"])
        body: Any = json.dumps(self._fields(CALLS[call])).encode()
        luck = self._draw.random()
        if luck < 0.03:
            body = body[: self._draw.randrange(len(body))]
        elif luck < 0.05:
            body = body + b" " * self._draw.choice([1, 16_384, 100_000])
        elif luck < 0.07:
            body = b"[" * 10_000
        elif luck < 0.1:
            body = iter([body[:3], body[3:]])  # in chunks
        kind = self._draw.choice(["application/json"] * 20 + ["", "text/plain", "application/json; charset=x"])
        return "POST", f"/api/v1/jobs/{self._job()}{call}", {"Content-Type": kind}, body

    def _form(self) -> tuple[str, str, dict[str, str], Any]:
        call = self._draw.choice([*FORMS, "/apply/", "/apply/"])
        body = urlencode(self._fields(FORMS[call])).encode()
        if self._draw.random() < 0.05:
            body += self._draw.choice([b"&r=1", b"&&&", b"&\xff=%ff", b"&a=1" * 60])
        return "POST", call, {"Content-Type": "application/x-www-form-urlencoded"}, body

    def _anything(self) -> tuple[str, str, dict[str, str], Any]:
        method = self._draw.choice(["GET", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "HEAD"])
        path = self._draw.choice(["/", "/init/", "/dashboard/", "/api/v1/openapi.json", f"/{quote(self._text())}"])
        names = ["Host", "Origin", "Accept", "Authorization", "Connection"]
        values = ["", "x", "127.0.0.1", "text/html", "http://evil.example", "Basic !", "close", "websocket", "y" * 5000]
        chosen = {name: self._draw.choice(values) for name in self._draw.sample(names, 2)}
        if self._draw.random() < 0.1:
            chosen = {"Upgrade": "websocket", "Connection": "Upgrade"}
        return method, path, chosen, self._draw.choice([None, b"", b"x", b"\0" * 100])

    def _job(self) -> str:
        return quote(self._draw.choice([*JOBS, *JOBS[:5], *JOBS[:5]]))

    def _text(self) -> str:
        return "".join(self._draw.choice([*string.printable, "\x9b", "ä"]) for _ in range(self._draw.randrange(12)))


def resident(server: ServerProcess) -> int:
    """KiB of memory that the server has."""
    for line in Path(f"/proc/{server.worker}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("no such process")


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("number", [600, pytest.param(10_000, marks=pytest.mark.long)])
def test_fuzzed_messages_neither_end_nor_grow_the_server_process(start_process, number):
    server = start_process("-m", "esync.state_server", "--port", "0")
    until(lambda: send(f"{server.url}/api/v1/jobs")[1]["history"])
    protected = begin(server.url, "protected", speeds=[1000.0, 2000.0])
    drawn, statuses, memory = Drawn(number), Counter(), []
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    for count in range(number):
        method, path, headers, body = drawn.request()
        try:
            chunked = body is not None and not isinstance(body, bytes)
            connection.request(method, path, body, headers, encode_chunked=chunked)
            response = connection.getresponse()
            response.read()
        except (http.client.HTTPException, ConnectionError):
            # A body that is too large is answered and the connection closed before all of it is
            # sent.
            connection.close()
            statuses["closed"] += 1
            continue
        statuses[response.status] += 1
        assert response.status < 500, (method, path, headers, body)
        if count % 100 == 0:
            memory.append(resident(server))
    connection.close()
    memory.append(resident(server))
    print(f"{number} messages, answers by status: {dict(statuses)}; memory in KiB: {memory}")
    assert statuses["closed"] < number / 20
    assert {200, 400, 404, 405, 409, 413} <= set(statuses)
    assert memory[-1] - memory[len(memory) // 3] < 30_000
    assert server.process.poll() is None
    asked = {"rank": 1, "round": 1, "iteration": 1, "capability": 2000.0}
    assert post(f"{protected}/query", asked)[1]["ready"] is True
    assert server.end(signal.SIGTERM) == 0
    assert "Traceback" not in server.output
