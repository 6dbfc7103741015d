"""The published calls over real HTTP, as published workers make them.

They use the form encoding of the library `requests`.
"""

import socket
import time

import pytest
from calling import content, send

from esync import config
from esync.coordination.coordinator import Coordinator


def test_published_calls_play_a_round(default_job):
    te = time.time()
    assert content(f"{default_job}/apply/", {"r": 2, "k": 1, "c": 2.1, "te": te}) == {"ready": 1}
    assert content(f"{default_job}/apply/", {"r": 0, "k": 9, "c": 0.1, "te": te}) == {"ready": 1}
    assert content(f"{default_job}/apply/", {"r": 1, "k": 1, "c": 1.1, "te": te}) == {"ready": 1}
    for rank in range(3):
        assert send(f"{default_job}/reset/", {"r": rank, "t": 2, "te": te})[:2] == (200, None)
    shown = content(f"{default_job}/")
    assert (shown["num_workers"], shown["t"], shown["epsilon"]) == (3, 2, 0.02)
    assert shown["records"] == [[0, 0, 0.1, te, False, 2], [1, 0, 1.1, te, False, 2], [2, 0, 2.1, te, False, 2]]


def test_published_calls_show_but_do_not_use_the_workers_wall_clock(default_job):
    """By the published rule, a slowest device with a wrong clock made all READY, or nobody."""
    for te in (time.time() - 3600, time.time() + 3600):
        send(f"{default_job}/apply/", {"r": 2, "k": 0, "c": 2.1, "te": te})
        assert content(f"{default_job}/apply/", {"r": 0, "k": 1, "c": 0.1, "te": te}) == {"ready": 0}


def test_published_calls_before_init_are_refused(url):
    assert content(f"{url}/")["records"] == []
    for call in ("apply", "reset"):
        status, answer, headers = send(f"{url}/{call}/", {"r": 0, "k": 0, "c": 0.1, "te": 1, "t": 1})
        assert (status, headers["Retry-After"]) == (409, "1")
        assert "/init/" in answer["error"]


def test_published_init_has_the_published_defaults(url):
    send(f"{url}/init/", {"num_workers": 2})
    shown = content(f"{url}/")
    assert shown["epsilon"] == 0.5
    assert shown["slowest_iterations"] == 1


def test_published_init_replaces_a_silent_job(default_job, monkeypatch):
    status, answer, headers = send(f"{default_job}/init/", {"num_workers": 7})
    assert status == 409
    assert "another training is running" in answer["error"]
    assert 1 <= int(headers["Retry-After"]) <= 1 + 3 * 2.1  # the slowest takes 2.1 s for an iteration
    assert content(f"{default_job}/")["num_workers"] == 3
    monkeypatch.setattr(config, "JOB_ALIVE", 0.0)
    monkeypatch.setattr(config, "JOB_ALIVE_ITERATIONS", 0)
    assert send(f"{default_job}/init/", {"num_workers": 7})[0] == 200
    assert content(f"{default_job}/")["num_workers"] == 7


APPLY = {"r": 0, "k": 1, "c": 0.1, "te": 1}
RESET = {"r": 0, "t": 2, "te": 1}
NO_NUMBERS = ("", "x", "-1", "nan", "1e400")
MALFORMED = [  # call, fields, what the answer must name
    *(("apply", {**APPLY, name: text}, name) for name in APPLY for text in NO_NUMBERS),
    *(("reset", {**RESET, name: text}, name) for name in RESET for text in NO_NUMBERS),
    *(("apply", {key: APPLY[key] for key in APPLY if key != name}, f"{name}: Field required") for name in APPLY),
    *(("reset", {key: RESET[key] for key in RESET if key != name}, f"{name}: Field required") for name in RESET),
    ("apply", {**APPLY, "r": 3}, "unknown rank 3: this job has the ranks 0 to 2"),
    *(("apply", {**APPLY, "k": text}, "k: Input should be ") for text in ("1.5", "9" * 30, "0x1", "inf")),
    ("reset", {**RESET, "r": 1000}, "unknown rank 1000"),
    ("init", {}, "num_workers: Field required"),
    ("init", {"num_workers": 0}, "num_workers"),
    ("init", {"num_workers": 10**8}, "num_workers"),
    ("init", {"num_workers": 2, "epsilon": "nan"}, "epsilon"),
    ("init", {"num_workers": 2, "epsilon": -1}, "epsilon"),
]


def test_published_call_with_malformed_field_names_it_and_changes_nothing(default_job):
    before = content(f"{default_job}/")
    for call, fields, named in MALFORMED:
        status, answer, _ = send(f"{default_job}/{call}/", fields)
        assert status == 400, (call, fields)
        assert named in answer["error"]
    assert content(f"{default_job}/") == before


def test_published_call_for_another_round_changes_nothing(default_job):
    before = content(f"{default_job}/")
    for call, fields in (("reset", {**RESET, "t": 3}), ("reset", {**RESET, "t": 0})):
        status, answer, headers = send(f"{default_job}/{call}/", fields)
        assert (status, headers["Retry-After"]) == (409, None)
        assert "the job is in round 1" in answer["error"]
    assert content(f"{default_job}/") == before


@pytest.mark.parametrize("body", [b"r=0&k=1&c=0.1&te=1&r=1", b"\xff=\xfe", b"&".join([b"a=1"] * 60), b""])
def test_published_call_with_unreadable_form_is_refused(default_job, body):
    before = content(f"{default_job}/")
    status, answer, _ = send(f"{default_job}/apply/", body)
    assert status == 400
    assert answer["error"]
    assert content(f"{default_job}/") == before


def test_published_call_with_other_body_is_refused(default_job):
    status, answer, _ = send(f"{default_job}/apply/", b'{"r": 0}', **{"Content-Type": "application/json"})
    assert status == 400
    assert "form-encoded" in answer["error"]
    status, answer, _ = send(f"{default_job}/apply/", b"r=0&pad=" + b"x" * config.STATE_SERVER_MAX_BODY)
    assert status == 413
    assert str(config.STATE_SERVER_MAX_BODY) in answer["error"]


def test_published_calls_with_other_methods_and_paths_are_refused(default_job):
    for path, method, allowed in (("/apply/", "GET", "POST"), ("/", "POST", "GET, HEAD"), ("/init/", "PUT", "POST")):
        status, answer, headers = send(default_job + path, method=method)
        assert (status, headers["Allow"]) == (405, allowed)
        assert answer["error"] == f"{path} takes {allowed} only"
    status, answer, _ = send(f"{default_job}/aply/")
    assert (status, answer["error"].partition(";")[0]) == (404, "no such path: '/aply/'")


def test_published_call_that_fails_unexpectedly_logs_but_does_not_send_details(default_job, monkeypatch, caplog):
    def fail(*arguments, **named):
        raise RuntimeError("secret detail")

    monkeypatch.setattr(Coordinator, "query", fail)
    status, answer, _ = send(f"{default_job}/apply/", APPLY)
    assert status == 500
    assert "secret" not in answer["error"]
    assert "secret detail" in caplog.text


def test_published_call_whose_body_ends_too_soon_is_refused(url):
    """A number that lacks its last digit is one, too."""
    place = url.removeprefix("http://")
    host, _, port = place.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        head = f"POST /init/ HTTP/1.1\r\nHost: {place}\r\nContent-Type: application/x-www-form-urlencoded\r\n"
        connection.sendall(f"{head}Content-Length: 14\r\n\r\nnum_workers=1".encode())
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1000).startswith(b"HTTP/1.1 400 ")
    assert content(f"{url}/")["num_workers"] == 0
