"""The JSON API over real HTTP."""

import re
import time

import pytest
from calling import JSON, ask, begin, content, post, report, send, states

from esync import config


def test_api_job_shows_worker_states(mine):
    assert states(mine) == ["computing", "computing", "computing"]
    ask(mine, 2, 1, 2.1)
    assert states(mine) == ["computing", "computing", "waiting"]
    ask(mine, 0, 9, 0.1)
    ask(mine, 1, 1, 1.1)
    assert states(mine) == ["exchanging", "exchanging", "exchanging"]
    post(f"{mine}/reset", {"rank": 1, "round": 2})
    assert states(mine) == ["exchanging", "computing", "exchanging"]
    worker = content(mine)["workers"][1]
    assert abs(worker["heard"] - time.time()) < 60
    assert (worker["round"], worker["local_iterations"], worker["capability"]) == (2, 0, 1.1)


def test_api_job_shows_dropped_and_replaced_workers(mine):
    for rank in (2, 1, 0):
        ask(mine, rank, 9, 0.1)
    assert post(f"{mine}/reset", {"rank": 0, "round": 2, "present": "3"})[0] == 200
    assert states(mine) == ["computing", "exchanging", "dropped"]
    assert post(f"{mine}/reset", {"rank": 2, "round": 2, "rejoin": True})[0] == 200
    assert states(mine) == ["computing", "exchanging", "computing"]
    assert post(f"{mine}/reset", {"rank": 0, "round": 2, "present": "5"})[0] == 200
    assert states(mine) == ["computing", "dropped", "computing"]
    assert post(f"{mine}/reset", {"rank": 0, "round": 2, "present": "81"})[0] == 400
    for wrong in ({"present": "0x5"}, {"present": ""}):
        assert post(f"{mine}/reset", {"rank": 0, "round": 2, **wrong})[0] == 400


def test_api_begin_is_idempotent_for_a_run_and_refused_to_another(url):
    job, terms = f"{url}/api/v1/jobs/mine", {"num_workers": 2, "epsilon": None, "run": "a"}
    status, first, _ = post(job, terms)
    assert (status, first["name"], first["run"], first["round"]) == (200, "mine", "a", 1)
    assert first["state"] == "waiting for workers"
    ask(job, 0, 0, 1.0)
    assert post(job, terms)[1]["id"] == first["id"]
    status, answer, headers = post(job, {**terms, "run": "b"})
    assert (status, headers["Retry-After"]) == (409, "5")
    assert "another training is running as job 'mine'" in answer["error"]
    assert post(f"{job}/end", {"reason": "enough"})[:2] == (200, {})
    shown = content(job)
    assert (shown["state"], shown["reason"]) == ("ended", "enough")
    assert post(job, {**terms, "run": "b"})[1]["id"] != first["id"]


def test_api_default_job_is_that_of_the_published_calls(url):
    job = begin(url, "default", [0.5, 1.5])
    assert content(f"{url}/")["num_workers"] == 2
    assert content(f"{url}/apply/", {"r": 1, "k": 1, "c": 1.5, "te": 1}) == {"ready": 1}
    assert send(f"{url}/reset/", {"r": 1, "t": 2, "te": 1})[0] == 200
    assert content(job)["round"] == 2


def test_api_jobs_are_listed(url):
    begin(url, "one", [0.5])
    begin(url, "two", [0.5, 1.5])
    listed = content(f"{url}/api/v1/jobs")["jobs"]
    assert [(job["name"], job["num_workers"]) for job in listed] == [("two", 2), ("one", 1)]


def test_api_report_is_shown(mine):
    parts = {"recall/3": 0.0}
    assert post(f"{mine}/report", report(rank=1, accuracy=0.75, accuracy_round=1, parts=parts))[:2] == (200, {})
    assert content(mine)["totals"]["parts"] == parts
    workers = content(mine)["workers"]
    assert workers[0]["last_report"] is None
    body = report(rank=1, accuracy=0.75, accuracy_round=1, parts=parts)
    defaults = {"metric": "accuracy", "goal": "max", "run_round": None, "logged": {}}
    assert workers[1]["last_report"] == {**body, **defaults}


QUERY = {"rank": 0, "round": 1, "iteration": 1, "capability": 0.1}
BEGIN = {"num_workers": 2, "epsilon": 0.1}
STEPS = {"rank": 0, "since": 0, "steps": 1, "seconds": 0.1}
MALFORMED = [  # call, body, what the answer must name
    *(("/query", {**QUERY, name: value}, name) for name in QUERY for value in (-1, "1", None, [], True, 1e400)),
    *(("/query", {key: QUERY[key] for key in QUERY if key != name}, name) for name in QUERY),
    ("/query", {**QUERY, "rank": 3}, "unknown rank 3"),
    ("/query", {**QUERY, "round_trip": -1}, "round_trip"),
    ("/query", {**QUERY, "extra": 1}, "extra"),
    ("/query", {**QUERY, "iteration": 10**30}, "iteration"),
    ("/reset", {"rank": 7, "round": 2}, "unknown rank 7"),
    ("/reset", {"rank": 0, "round": 2, "present": "21"}, "unknown rank 5"),
    ("/report", report(rank=5), "unknown rank 5"),
    ("/report", report(accuracy=1.5), "accuracy is 1.5, expected 0 to 1"),
    ("/report", report(accuracy=1.5, metric="wait"), "another value of that name"),
    ("/report", report(metric=""), "at least 1 character"),
    ("/report", report(metric="loss", goal="low"), "'max' or 'min'"),
    ("/report", report(metric="loss", accuracy=1e200), "loss is 1e+200, expected a finite number"),
    ("/report", report(host="a\x00b"), "host"),
    ("/report", report(device="x" * 300), "device"),
    ("/report", report(bytes_sent=2**60), "bytes_sent"),
    ("/end", {"reason": "x" * 300}, "reason"),
    ("", {**BEGIN, "num_workers": 0}, "num_workers"),
    ("", {**BEGIN, "num_workers": 10**6}, "num_workers"),
    ("", {**BEGIN, "epsilon": -1}, "epsilon"),
    ("", {**BEGIN, "run": "x" * 65}, "run"),
    ("", {**BEGIN, "watching": {"policy": "magic"}}, "watching.policy"),
    ("", {**BEGIN, "watching": {"policy": "elastic", "floor": 0.0}}, "watching.floor"),
    ("", {**BEGIN, "watching": {"window": 3}}, "watching.policy"),
    *(("/steps", {**STEPS, name: value}, name) for name, value in {"steps": 0, "seconds": -1.0, "since": None}.items()),
    ("/steps", {**STEPS, "color": "red"}, "color"),
    ("", [], "should be a valid dictionary"),
]


def test_api_malformed_body_is_named_and_changes_nothing(mine):
    before = content(f"{mine}")["workers"]
    for call, body, named in MALFORMED:
        status, answer, _ = post(mine + call, body)
        assert status == 400, (call, body)
        assert named in answer["error"], (call, body, answer)
    now = content(f"{mine}")["workers"]
    assert [{**worker, "heard": 0} for worker in now] == [{**worker, "heard": 0} for worker in before]


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 10_000, b'{"rank": NaN}', b'{"run": "\\ud800"}'])
def test_api_body_that_is_no_json_is_refused(mine, body):
    status, answer, _ = send(f"{mine}/query", body, **JSON)
    assert status == 400
    assert answer["error"]


def test_api_call_with_other_size_or_parameters_is_refused(mine):
    for path in (f"{mine}/query", mine.rpartition("/api")[0] + "/nowhere"):
        status, answer, _ = send(path, b" " * (config.STATE_SERVER_MAX_BODY + 1), **JSON)
        assert (status, str(config.STATE_SERVER_MAX_BODY) in answer["error"]) == (413, True)
    status, answer, _ = send(f"{mine}/rounds?{'a=1&' * 1500}")
    assert (status, answer["error"].partition(": ")[0]) == (400, "the request cannot be read")
    status, answer, _ = post(f"{mine}/steps", STEPS)
    assert (status, "without a search for stragglers" in answer["error"]) == (409, True)


def test_api_unknown_or_invalid_job_is_refused(url):
    status, answer, headers = post(f"{url}/api/v1/jobs/none/query", QUERY)  # a worker may be earlier than rank 0
    assert (status, headers["Retry-After"]) == (409, "1")
    assert "'none'" in answer["error"]
    for path, body in (("", None), ("/rounds", None), ("/events", None), ("/end", {})):
        status, answer, _ = (
            send(f"{url}/api/v1/jobs/none{path}") if body is None else post(f"{url}/api/v1/jobs/none{path}", body)
        )
        assert status == 404
        assert "'none'" in answer["error"]
    for path in ("", "/rounds", "/events"):
        assert send(f"{url}/api/v1/jobs/-{path}")[0] == 400


def test_api_other_methods_and_paths_are_refused(mine):
    assert send(f"{mine}/query")[0] == 405
    assert send(f"{mine}/query", method="DELETE")[2]["Allow"] == "POST"
    assert set(send(mine, method="PUT")[2]["Allow"].split(", ")) == {"GET", "HEAD", "POST"}
    assert send(f"{mine}/rounds", b"", method="POST")[0] == 405
    for path in (mine, f"{mine}/nothing"):
        headers = send(path)[2]
        assert headers["Content-Type"] == "application/json"
        assert (headers["X-Content-Type-Options"], headers["Cache-Control"]) == ("nosniff", "no-store")
    assert send(f"{mine}/nothing")[0] == 404
    assert send(mine, method="HEAD")[:2] == (200, None)
    assert send(f"{mine}/rounds", method="HEAD")[0] in (200, 404)


def test_api_openapi_description_is_served(url):
    status, described, _ = send(f"{url}/api/v1/openapi.json")
    assert status == 200
    assert described["openapi"].startswith("3.1")
    for path in described["paths"].values():
        for parameter in path.get("get", {}).get("parameters", ()):
            schema = parameter["schema"]
            if "default" in schema and "pattern" in schema:  # validators check this
                assert re.search(schema["pattern"], schema["default"]), parameter
    names = [one["operationId"] for path in described["paths"].values() for one in path.values()]
    assert len(names) == len(set(names))
