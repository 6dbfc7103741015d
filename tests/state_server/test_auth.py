"""Access to the state server: token, host names, foreign web pages, TLS."""

import base64
import contextlib
import http.client
import json
import socket
import ssl
import urllib.request

import pytest
from calling import certificate, send
from django.conf import settings
from django.http import HttpResponse
from django.test import RequestFactory

from esync.coordination import JobSettings
from esync.coordination.client import StateServerClient, StateServerError
from esync.runtime.errors import ExpectedError
from esync.state_server import auth
from esync.state_server.__main__ import parse_arguments
from esync.state_server.api import api
from esync.state_server.middleware import AccessMiddleware
from esync.state_server.serving import _server
from tests.support import child

TOKEN = "correct-horse"
SERVE = ("-m", "esync.state_server", "--port", "0")
RUNSERVER = ("SimpleStateServer/manage.py", "runserver", "--noreload")
ALL = [
    *(("GET", "/"), ("POST", "/init/"), ("POST", "/apply/"), ("POST", "/reset/"), ("GET", "/metrics")),
    *(
        (method.upper(), path.replace("{job}", "a"))
        for path, methods in api.get_openapi_schema(path_prefix="/api/v1/")["paths"].items()
        for method in methods
    ),
]


def basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"me:{password}".encode()).decode()


def test_call_without_the_token_is_refused(url, monkeypatch):
    monkeypatch.setattr(settings, "TOKEN", TOKEN)
    wrong = [{}, *({"Authorization": text} for text in ("", "Bearer x", "Bearer", f"bearer{TOKEN}", TOKEN, "Bearer ä"))]
    wrong += [{"Authorization": text} for text in (f"Bearer {TOKEN}x", basic("x"), "Basic !")]
    for method, path in [*ALL, ("GET", "/nowhere"), ("PUT", "/"), ("POST", "/api/v1/jobs/a")]:
        for headers in wrong if path in ("/", "/apply/") else wrong[:3]:
            status, answer, got = send(url + path, b"" if method != "GET" else None, method=method, **headers)
            assert status == 401, (method, path, headers)
            assert "ESYNC_TOKEN" in answer["error"]
            assert TOKEN not in str(answer)
            assert "WWW-Authenticate" in got
    assert send(f"{url}/init/", {"num_workers": 1}, Authorization=f"Bearer {TOKEN}")[0] == 200
    assert send(f"{url}/", Authorization=f"bearer {TOKEN}")[0] == 200  # names of schemes are in any case
    assert send(f"{url}/", Authorization=basic(TOKEN))[0] == 200  # a browser, which may read …
    assert send(f"{url}/init/", {"num_workers": 1}, Authorization=basic(TOKEN))[0] == 401  # … but not write


@pytest.mark.parametrize("command", [(*SERVE, "--host", "::"), (*RUNSERVER, "0:0")])
def test_server_for_other_machines_without_token_does_not_start(command, tmp_path):
    refused = child.run(*command, timeout=60, ESYNC_STATE_DIR=str(tmp_path / "state"))
    assert refused.returncode == 1
    assert "lets other machines in: set ESYNC_TOKEN" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    ("command", "token", "status"),
    [
        ((*SERVE, "--host", "0.0.0.0"), TOKEN, 401),
        ((*RUNSERVER, "0.0.0.0:0"), TOKEN, 401),
        ((*RUNSERVER, "0.0.0.0:0", "--insecure"), "", 200),
    ],
)
def test_server_for_other_machines_starts_with_token_or_insecure(start_process, command, token, status):
    server = start_process(*command, ESYNC_TOKEN=token)
    assert send(server.url.replace("0.0.0.0", "127.0.0.1"))[0] == status


@pytest.mark.parametrize("token", ["short", "with blank inside", "ä" * 10])
def test_token_that_is_unusable_is_refused_and_not_printed(monkeypatch, token):
    monkeypatch.setenv("ESYNC_TOKEN", token)
    with pytest.raises(auth.TokenRequiredError, match="8 to 200 printable") as refusal:
        auth.check_token("127.0.0.1", insecure=False)
    assert token not in str(refusal.value)


def test_loopback_addresses_are_recognized():
    assert all(map(auth.is_loopback, ["127.0.0.1", "localhost", "::1", "127.1.2.3"]))
    assert not any(map(auth.is_loopback, ["0.0.0.0", "::", "10.0.0.1", ""]))


def gate(method: str = "GET", **headers: str) -> int:
    """The status with which a request is refused, or 200."""
    request = RequestFactory().generic(
        method, "/", **{f"HTTP_{name.upper()}": value for name, value in headers.items()}
    )
    return AccessMiddleware(lambda request: HttpResponse())(request).status_code


@pytest.fixture
def named(monkeypatch) -> None:
    """This server is called localhost and cloud2."""
    monkeypatch.setattr(settings, "HOST_NAMES", {"localhost", "cloud2"})


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:80", "cloud2:10010", "cloud2.", "127.0.0.1", "10.1.2.3:10010", "[::1]:1", ""]
)
def test_host_names_of_this_server_are_accepted(named, host):
    assert gate(host=host) == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "10.1.2.3.evil.example:10010", "1.2.3", "2130706433", "[::1", "a:b:c", "localhost@x"]
)
def test_host_names_of_others_are_refused(named, host):
    assert gate(host=host) == 400


def test_post_from_a_foreign_web_page_is_refused():
    assert gate("POST", host="localhost:1", origin="http://localhost:1") == 200
    assert gate("POST", host="localhost:1", origin="http://evil.example") == 403
    assert gate("POST", host="localhost:1", origin="null") == 403
    assert gate("GET", host="localhost:1", origin="http://evil.example") == 200  # it cannot read the answer


def test_tls_server_and_client_agree(start_process, tmp_path, monkeypatch):
    cert, key = certificate(tmp_path)
    server = start_process(*SERVE, "--certfile", str(cert), "--keyfile", str(key))
    assert server.url.startswith("https://127.0.0.1:")
    trusting = ssl.create_default_context(cafile=cert)
    with urllib.request.urlopen(f"{server.url}/api/v1/jobs", context=trusting, timeout=20) as response:
        assert json.loads(response.read())["jobs"] == []
    with pytest.raises((OSError, http.client.HTTPException)):
        urllib.request.urlopen(server.url.replace("https", "http"), timeout=20)
    monkeypatch.setenv("ESYNC_STATE_SERVER_CA", str(cert))
    with StateServerClient("127.0.0.1", server.port, patience=20.0) as client:
        client.init(JobSettings(1, 0.02))
        assert client.address.startswith("https://")
        assert client.ask(0, 0.1).wait().ready is False
    monkeypatch.setenv("ESYNC_STATE_SERVER_CA", "system")
    with (
        StateServerClient("127.0.0.1", server.port, patience=0.1) as client,
        pytest.raises(StateServerError, match="CERTIFICATE_VERIFY_FAILED"),
    ):
        client.init(JobSettings(1, 0.02))
    monkeypatch.setenv("ESYNC_STATE_SERVER_CA", str(key))
    with pytest.raises(ExpectedError, match="should be a file of certificates"):
        StateServerClient("127.0.0.1", server.port)


def test_unusable_certificate_is_refused_in_one_line(tmp_path):
    (tmp_path / "bad.pem").write_text("nonsense")
    for file in ("bad.pem", "missing.pem"):
        with pytest.raises(ExpectedError, match=f"the certificate {tmp_path / file} and its key"):
            _server("127.0.0.1", 0, tmp_path / file, None)
    refused = child.run(*SERVE, "--certfile", str(tmp_path / "bad.pem"), ESYNC_STATE_DIR=str(tmp_path))
    assert (refused.returncode, len(refused.stderr.splitlines())) == (1, 1)
    with pytest.raises(SystemExit):
        parse_arguments(["--keyfile", "x"])


def test_request_that_is_endless_or_no_http_is_refused(start_process):
    server = start_process(*SERVE)
    for text in (
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: o*RV@m\r\n\r\n",
        b"POST /apply/ HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        b"no HTTP at all\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"x" * 2_000_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: %s\r\n" % (number, b"x" * 1000) for number in range(2000)) + b"\r\n",
    ):
        with (
            socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection,
            contextlib.suppress(OSError),
        ):
            connection.sendall(text)
            response = http.client.HTTPResponse(connection)
            response.begin()
            assert 400 <= response.status < 500, text[:60]
    assert send(f"{server.url}/", **{f"X-{number}": "x" * 1000 for number in range(20)})[0] == 200
