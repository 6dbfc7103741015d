"""Metrics in Prometheus' text format: those of the jobs, and the server's own request times."""

from collections.abc import Iterable, Iterator

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE
from prometheus_client import CollectorRegistry, Histogram, ProcessCollector, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from .counters import JobCounters
from .history_entries import RunRecord

__all__ = ["CONTENT_TYPE", "JobCollector", "exposition", "observe_request"]

_WORKER = ("job", "rank")
#: Counters of a worker: the field of `WorkerCounters`, the name and the description of the metric.
_SUMS = (
    ("rounds", "rounds", "Highest round that a worker has finished; in asynchronous modes its exchanges."),
    ("local_iterations", "local_iterations", "Local iterations."),
    ("samples", "samples", "Samples trained on."),
    ("bytes_sent", "sent_bytes", "Bytes sent in exchanges."),
    ("bytes_received", "received_bytes", "Bytes received in exchanges."),
)

disable_created_metrics()  # no second time series for each metric
_server = CollectorRegistry()
ProcessCollector(registry=_server)
_request_seconds = Histogram(
    "esync_http_request_seconds",
    "Time to answer a request.",
    ("method", "route", "status"),
    buckets=(0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5),
    registry=_server,
)


def observe_request(route: str, method: str, status: int, seconds: float) -> None:
    """Count an answered request.

    Args:
        route: name of the view, never a path: each name creates time series.
        method: HTTP method.
        status: status code, counted by its class, such as "2xx".
        seconds: duration of the answer.
    """
    _request_seconds.labels(method, route, f"{status // 100}xx").observe(seconds)


def exposition(jobs: Iterable[tuple[RunRecord, JobCounters]]) -> bytes:
    """Return all metrics in Prometheus' text format; its content type is `CONTENT_TYPE`."""
    registry = CollectorRegistry()
    registry.register(JobCollector(jobs))
    return generate_latest(registry) + generate_latest(_server)


class JobCollector(Collector):
    """Collects the metrics of jobs."""

    def __init__(self, jobs: Iterable[tuple[RunRecord, JobCounters]]) -> None:
        self._jobs = jobs

    def collect(self) -> Iterator[Metric]:
        """Yield the families of metrics, even without jobs."""
        job_info = InfoMetricFamily("esync_job", "A job, and the id of its run.", labels=("job",))
        workers = GaugeMetricFamily("esync_job_workers", "Number of workers.", labels=("job",))
        events = CounterMetricFamily("esync_job_events", "Events by kind.", labels=("job", "kind"))
        worker_info = InfoMetricFamily("esync_worker", "Where a worker computes.", labels=_WORKER)
        seconds = CounterMetricFamily(
            "esync_worker_seconds", "Time of rounds, by what it was spent on.", labels=(*_WORKER, "phase")
        )
        sums = {field: CounterMetricFamily(f"esync_worker_{name}", help, labels=_WORKER) for field, name, help in _SUMS}
        evaluation = GaugeMetricFamily(
            "esync_evaluation", "Newest value of the metric; accuracy is 0 to 1.", labels=(*_WORKER, "metric")
        )
        part = GaugeMetricFamily(
            "esync_evaluation_part", "Further results of the newest evaluation.", labels=(*_WORKER, "part")
        )
        for job, counters in self._jobs:
            job_info.add_metric((job.job,), {"id": job.key, "run": job.run})
            workers.add_metric((job.job,), len(counters.workers))
            for kind, number in counters.events.items():
                events.add_metric((job.job, kind), number)
            for rank in sorted(counters.reports):
                worker, counted, report = (job.job, str(rank)), counters.workers[rank], counters.reports[rank]
                for phase in ("compute", "wait", "exchange"):
                    seconds.add_metric((*worker, phase), getattr(counted, phase))
                for field, family in sums.items():
                    family.add_metric(worker, getattr(counted, field))
                worker_info.add_metric(worker, {"device": report.device, "host": report.host})
                if report.accuracy is not None:
                    evaluation.add_metric((*worker, report.metric), report.accuracy)
                for name, value in report.parts.items():
                    part.add_metric((*worker, name), value)
        yield from (job_info, workers, events, worker_info, seconds, *sums.values(), evaluation, part)
