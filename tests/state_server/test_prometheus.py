"""The metrics for Prometheus, read by its own parser."""

import pytest
from calling import report
from prometheus_client.parser import text_string_to_metric_families

from esync.state_server import prometheus
from esync.state_server.jobs import Job
from esync.state_server.registry import JobRegistry
from esync.state_server.schema import Report


def scrape(jobs: JobRegistry) -> dict:
    text = prometheus.exposition([(job.info, job.counters()) for job in jobs.all()]).decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def values(jobs: JobRegistry, family: str, *labels: str) -> dict[tuple[str, ...], float]:
    """The values of a family by some of its labels."""
    return {tuple(sample.labels[label] for label in labels): sample.value for sample in scrape(jobs)[family].samples}


@pytest.fixture
def jobs() -> JobRegistry:
    jobs = JobRegistry()
    jobs.begin("mine", 2, 0.02, 1)
    return jobs


def take(job: Job, rank: int, round: int, **changes: object) -> None:
    job.report(Report(**report(rank, round, **changes)), job.clock.now())


def test_families_are_there_without_jobs():
    families = scrape(JobRegistry())
    job_families = {name for name in families if name.startswith(("esync_job", "esync_worker", "esync_evaluation"))}
    assert len(job_families) == 12
    assert all(families[name].documentation and not families[name].samples for name in job_families)
    assert families["esync_worker_samples"].type == "counter"
    assert "esync_http_request_seconds" in families
    assert not any(sample.name.endswith("_created") for family in families.values() for sample in family.samples)


def test_reports_are_added_up(jobs):
    job = jobs.get("mine")
    take(job, 0, 1)
    take(job, 0, 2, samples=2)
    take(job, 0, 2, samples=2)  # again
    take(job, 0, 1)  # late
    assert values(jobs, "esync_worker_samples", "job", "rank") == {("mine", "0"): 450}  # worker 1 has reported nothing
    assert values(jobs, "esync_worker_rounds", "rank") == {("0",): 2}
    assert values(jobs, "esync_worker_local_iterations", "rank")["0",] == 14
    assert values(jobs, "esync_worker_sent_bytes", "rank")["0",] == 200
    assert values(jobs, "esync_worker_received_bytes", "rank")["0",] == 400
    seconds = values(jobs, "esync_worker_seconds", "rank", "phase")
    assert [seconds["0", phase] for phase in ("compute", "wait", "exchange")] == pytest.approx([3.0, 0.6, 0.4])


def test_counters_begin_at_zero_after_a_restart(tmp_path):
    jobs = JobRegistry(tmp_path)
    jobs.restore()
    take(jobs.begin("mine", 2, 0.02, 1), 0, 3)
    jobs.close()
    again = JobRegistry(tmp_path)
    again.restore()
    take(again.get("mine"), 0, 3)
    assert values(again, "esync_worker_samples", "rank")["0",] == 0
    assert values(again, "esync_worker_rounds", "rank")["0",] == 3
    events = values(again, "esync_job_events", "kind")
    assert (events["restart",], events["begin",]) == (1, 0)
    again.close()


def test_events_are_counted_by_kind(jobs):
    job = jobs.get("mine")
    job.end("done", job.clock.now())
    job.end("done", job.clock.now())
    events = values(jobs, "esync_job_events", "kind")
    assert (events["begin",], events["end",], events["lost",]) == (1, 1, 0)


def test_odd_labels_are_escaped():
    jobs, name = JobRegistry(), 'a"b\\n\n'
    jobs._jobs[name] = job = JobRegistry().begin("mine", 1, 0.02, 1)
    job.name = name
    take(job, 0, 1, device='gpu"0\\', host="é{}=,")
    (info,) = scrape(jobs)["esync_worker_info"].samples
    assert info.labels == {"job": name, "rank": "0", "device": 'gpu"0\\', "host": "é{}=,"}


def test_metric_has_its_name_as_label(jobs):
    job = jobs.get("mine")
    take(job, 0, 1, accuracy=7.5, accuracy_round=1, metric="perplexity", goal="min", parts={"recall/3": 0.25})
    take(job, 1, 1)
    assert values(jobs, "esync_evaluation", "rank", "metric") == {("0", "perplexity"): 7.5}
    assert values(jobs, "esync_evaluation_part", "rank", "part") == {("0", "recall/3"): 0.25}


def test_requests_are_observed_by_class_of_status():
    prometheus.observe_request("view-of-test", "GET", 404, 0.002)
    prometheus.observe_request("view-of-test", "GET", 400, 0.002)
    prometheus.observe_request("view-of-test", "POST", 200, 0.002)
    family = scrape(JobRegistry())["esync_http_request_seconds"]
    counts = {
        (sample.labels["method"], sample.labels["status"]): sample.value
        for sample in family.samples
        if sample.name.endswith("_count") and sample.labels["route"] == "view-of-test"
    }
    assert counts == {("GET", "4xx"): 2, ("POST", "2xx"): 1}
