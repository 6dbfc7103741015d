"""The state server's detection of stragglers, over HTTP and across restarts."""

import random
import resource

import pytest
from calling import port_of, post

from esync import config
from esync.coordination import JobSettings
from esync.coordination.client import StateServerClient
from esync.coordination.straggler_policies import OnlinePolicy, OnlinePolicySettings, PolicyDirective
from esync.state_server.journal import Journal
from esync.state_server.registry import JobRegistry

WATCHING = OnlinePolicySettings(window=4, stride=2, raise_after=2, clear_after=2, policy="elastic")
WORKERS = 4


def test_straggler_watch_tells_workers_whom_to_exclude(url):
    clients = [StateServerClient("127.0.0.1", port_of(url), rank=rank, job="slow") for rank in range(WORKERS)]
    clients[0].init(JobSettings(WORKERS, None, watching=WATCHING))
    answers = []
    for step in range(24):
        for rank, client in enumerate(clients):
            seconds = 0.3 if rank == 2 and step < 12 else 0.1
            answers.append(client.report_steps(step, 1, seconds).wait())
    for client in clients:
        client.close()
    assert PolicyDirective(excluded=(2,)) in answers
    assert answers[0] == answers[-1] == PolicyDirective()
    assert len(set(answers)) == 2


def test_straggler_watch_with_too_large_window_is_refused(url):
    job = f"{url}/api/v1/jobs/large"
    status, content, _ = post(job, {"num_workers": 1, "watching": {"policy": "elastic", "window": 10**9 - 1}})
    assert (status, "watching.window: " in content["error"], "1000" in content["error"]) == (400, True, True)
    assert post(job, {"num_workers": 1, "watching": {"policy": "elastic", "window": 1000}})[0] == 200
    body = {"rank": 0, "since": 0, "steps": 10**9 - 1, "seconds": 1.0}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert post(f"{job}/steps", body)[0] == 200
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB


@pytest.mark.usefixtures("never_forgotten")
@pytest.mark.parametrize(("limit", "restarts"), [(0, 0.01), (10**9, 0.1)])
def test_straggler_watch_decides_the_same_after_restarts(tmp_path, monkeypatch, limit, restarts):
    """Also if the journal is begun anew between restarts."""
    monkeypatch.setattr(config, "JOURNAL_BYTES", limit)
    begin, begun = Journal.begin, []
    monkeypatch.setattr(Journal, "begin", lambda journal: (begun.append(journal), begin(journal)))
    draw, undisturbed = random.Random(1), OnlinePolicy.of(WORKERS, WATCHING)
    jobs = JobRegistry(tmp_path)
    jobs.begin("a", WORKERS, None, 1, "run", WATCHING)
    seen = set()
    for step in range(120):
        for rank in range(WORKERS):
            if draw.random() < restarts:
                jobs = JobRegistry(tmp_path)
                jobs.restore()
            seconds = draw.uniform(0.08, 0.12) + 0.2 * (rank == step // 40)
            answer = jobs.get("a").record_steps(rank, step, 1, seconds, now=float(step))
            assert answer == undisturbed.record_steps(rank, step, 1, seconds)
            seen.add(answer.excluded)
    assert {(), (0,), (1,), (2,)} <= seen
    assert (len(set(map(id, begun))) < len(begun)) == (limit == 0)
