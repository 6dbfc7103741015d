"""Connections of strangers, which must not keep workers from being answered."""

import contextlib
import http.client
import json
import re
import resource
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from calling import JSON, ServerProcess, certificate

TOKEN = "correct-horse"
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}
PATIENCE = 2.0
#: The server under limits on its files (soft, hard) that closes silent connections after PATIENCE.
LIMITED = (
    "import resource, sys; from esync import config; from esync.state_server.__main__ import main; "
    f"config.STATE_SERVER_SILENCE = {PATIENCE}; "
    "resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard})); sys.exit(main(['--port', '0']))"
)
#: The same without limits, with the command line's arguments.
IMPATIENT = (
    "import sys; from esync import config; from esync.state_server.__main__ import main; "
    f"config.STATE_SERVER_SILENCE = {PATIENCE}; sys.exit(main())"
)


class Worker:
    """A worker's connection, which is kept open: any answer on another one would be an error."""

    def __init__(self, server: ServerProcess, context: ssl.SSLContext | None = None) -> None:
        if context is None:
            self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        else:
            self.connection = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=30, context=context)
        self.headers, self.iteration = {**JSON, **AUTHORIZED}, 0
        self.connection.connect()
        self.connection.auto_open = False

    def call(self, path: str, content: object) -> dict:
        self.connection.request("POST", f"/api/v1/jobs/mine{path}", json.dumps(content), self.headers)
        response = self.connection.getresponse()
        text = response.read()
        assert response.status == 200, text
        return json.loads(text)

    def begin(self) -> None:
        self.call("", {"num_workers": 2})

    def ask(self) -> None:
        asked = {"rank": 0, "round": 1, "iteration": self.iteration, "capability": 1.0}
        assert self.call("/query", asked)["ready"] is False
        self.iteration += 1


def connect(port: int) -> socket.socket:
    one = socket.create_connection(("127.0.0.1", port), timeout=30)
    one.settimeout(0)
    return one


def is_closed(one: socket.socket) -> bool:
    """Whether the server has ended that connection; what it said before is thrown away."""
    try:
        while one.recv(65536):
            pass
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        pass
    return True


@pytest.fixture
def strangers() -> Iterator[list[socket.socket]]:
    """Connections that are closed with the test; there may be thousands."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    some: list[socket.socket] = []
    yield some
    for one in some:
        one.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def files_limit(server: ServerProcess) -> list[str]:
    limits = Path(f"/proc/{server.worker}/limits").read_text()
    return re.search(r"Max open files\s+(\S+)\s+(\S+)", limits).groups()


@pytest.mark.parametrize(
    ("soft", "hard", "number"),
    [(1024, "resource.getrlimit(resource.RLIMIT_NOFILE)[1]", 1200), (300, 300, 80)],
    ids=["the usual soft limit", "a low hard limit"],
)
def test_silent_connections_in_thousands_stop_no_worker(start_process, strangers, soft, hard, number):
    if number + 200 > resource.getrlimit(resource.RLIMIT_NOFILE)[0]:
        pytest.skip(f"this process may not have {number} connections")
    server = start_process("-c", LIMITED.format(soft=soft, hard=hard), ESYNC_TOKEN=TOKEN)
    assert len(set(files_limit(server))) == 1
    before = Worker(server)
    before.begin()
    for count in range(number):
        strangers.append(connect(server.port))
        if count % 500 == 0:
            before.ask()
    after = Worker(server)
    after.ask()
    end = time.monotonic() + PATIENCE + 60
    while not all(is_closed(one) for one in strangers):
        before.ask()
        after.ask()
        assert time.monotonic() < end
        time.sleep(0.1)
    before.ask()
    after.ask()
    server.end_well()


@pytest.mark.parametrize("kind", ["insecure", "tls"])
def test_connection_without_complete_header_is_closed_after_seconds(start_process, strangers, tmp_path, kind):
    context, command = None, ["-c", IMPATIENT, "--port", "0"]
    if kind == "tls":
        cert, key = certificate(tmp_path)
        command += ["--certfile", str(cert), "--keyfile", str(key)]
        context = ssl.create_default_context(cafile=cert)
    else:
        command += ["--host", "0.0.0.0", "--insecure"]
    server = start_process(*command)
    worker = Worker(server, context=context)
    worker.begin()

    def say(text: bytes) -> socket.socket:
        one = socket.create_connection(("127.0.0.1", server.port), timeout=30)
        if context is not None and text != b"silent":
            one = context.wrap_socket(one, server_hostname="127.0.0.1")
        if text != b"silent":
            one.sendall(text)
        one.settimeout(0)
        strangers.append(one)
        return one

    line = b"POST /api/v1/jobs/mine/query HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    say(b"silent")
    say(b"P")
    slow_headers = say(line)
    half = say(line)
    if context is None:
        half.shutdown(socket.SHUT_WR)
        say(b"\x16\x03\x01 what TLS says first")
    end, number = time.monotonic() + PATIENCE + 60, 0
    while not all(is_closed(one) for one in strangers):
        assert time.monotonic() < end, [is_closed(one) for one in strangers]
        number += 1
        with contextlib.suppress(OSError):
            slow_headers.send(f"X-{number}: drip\r\n".encode())
        worker.ask()
        time.sleep(0.1)
    worker.ask()
    server.end_well()
