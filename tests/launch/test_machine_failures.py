"""Jobs over ssh on three hosts in network namespaces that lose their network or power.

What is expected of each fault in each mode: docs/how-to/failures.md, "Machines that vanish". Without
--long one machine is unplugged for a while; all else needs --long.
"""

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from launching import Start
from machine_jobs import Job
from namespaces import HOSTS, Machines, missing

from tests.support.network_namespaces import inside, ip, namespace, sweep

pytestmark = pytest.mark.timeout(900)
LONG = pytest.mark.long

ANT, BEE, CAT, DOG = HOSTS
#: What `train` says in the tests of each fault; only the first one is not for --long.
MODES = [
    {"mode": "sync"},
    pytest.param({"mode": "esync"}, marks=LONG),
    pytest.param({"mode": "async"}, marks=LONG),
    pytest.param({"mode": "sync", "elastic": True}, marks=LONG),
]


@pytest.fixture
def machines(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Machines]:
    """Make three hosts, or as many as the test is parametrized with, and a desk.

    They have a network of their own.
    """
    if why := missing():
        pytest.skip(why)
    with Machines(tmp_path / "network", HOSTS[: getattr(request, "param", 3)]) as network:
        yield network


@pytest.fixture
def start(tmp_path: Path, data_dir: Path, machines: Machines, launch: Start) -> Callable[..., Job]:
    """Start jobs on the machines; they have all trained when it returns."""

    def job(*flags: str, **options: Any) -> Job:
        started = Job(machines, launch, tmp_path, *flags, data_dir=str(data_dir), **options)
        started.until_trained(2)
        return started

    return job


def is_complete(job: Job, host: str) -> bool:
    """Return whether a host's worker has logged every round.

    The one in whose exchange it was lost may be missing.
    """
    rounds = sorted(job.rounds(host))
    return len(rounds) >= rounds[-1] - 1


@pytest.mark.parametrize(
    ("host", "seconds", "train"),
    [
        (CAT, 5, {"mode": "sync"}),
        pytest.param(CAT, 5, {"mode": "esync"}, marks=LONG),
        pytest.param(CAT, 5, {"mode": "sync", "elastic": True}, marks=LONG),
        pytest.param(ANT, 3, {"mode": "async"}, marks=LONG),  # that of the scheduler and the servers
    ],
    ids=str,
)
def test_machine_unplugged_for_seconds_loses_nothing(machines: Machines, start, host: str, seconds: float, train: Any):
    job = start(rounds=60, **train)
    before = job.processes("worker")
    machines.unplug(host)
    time.sleep(seconds)
    machines.plug(host)
    job.until_trained(2)
    assert job.processes("worker") == before
    report = job.report()
    assert (report["replacements"], report["lost_hosts"]) == ([], [])
    for name in HOSTS[:3]:
        assert sorted(job.rounds(name)) == list(range(1, len(job.rounds(name)) + 1))


@LONG
@pytest.mark.parametrize("train", [*MODES, {"mode": "esync", "elastic": True}], ids=str)
def test_machine_unplugged_for_long_gets_its_worker_back(machines: Machines, start: Callable[..., Job], train: Any):
    """Its processes have ended by themselves; the attempts until it answers do not count."""
    job = start("--max-restarts", "1", rounds=100_000, **train)
    machines.unplug(CAT)
    job.until_said(f"worker-2 (cat/cpu) has lost its connection to {machines.addresses[CAT]}")
    job.launch.until(lambda: len(job.processes("worker")) == 2, 60)
    job.until_said(f"waiting for cat ({machines.addresses[CAT]}) to answer (worker-2)")
    if train["mode"] == "async" or "elastic" in train:
        job.until_trained(3, ANT, BEE)
    else:
        stood_still = sorted(job.rounds(ANT))
        job.until_said("since 20 s (until 300 s)")
        assert sorted(job.rounds(ANT)) == stood_still
    machines.plug(CAT)
    job.until_said("worker-2 (cat/cpu) is back after")
    job.until_trained(3)
    (replacement,) = job.interrupt()["replacements"]
    assert (replacement["name"], replacement["counted"]) == ("worker-2", False)
    assert is_complete(job, ANT)
    if train["mode"] != "async" and "elastic" not in train:
        assert is_complete(job, CAT)


@pytest.mark.long
@pytest.mark.parametrize("machines", [4], indirect=True)
@pytest.mark.parametrize("train", MODES, ids=str)
def test_machine_without_power_is_replaced_by_a_spare_host(machines: Machines, start: Callable[..., Job], train: Any):
    to_its_end = train == {"mode": "sync"}
    job = start(rounds=40 if to_its_end else 100_000, **train)
    machines.power_off(CAT)
    job.until_said("worker-2 (dog/cpu) is back after")
    job.until_trained(3, ANT, BEE, DOG)
    report = job.report() if to_its_end else job.interrupt()
    assert [replacement["name"] for replacement in report["replacements"]] == ["worker-2"]
    assert report["lost_hosts"] == [CAT]
    assert is_complete(job, ANT)
    if to_its_end:
        assert max(job.rounds(DOG)) == 40
        assert "the logs of cat have not been copied" in job.launch.output


@LONG
def test_machine_of_server_unplugged_for_long_ends_the_job_and_is_named(machines: Machines, start: Callable[..., Job]):
    job = start(mode="sync", rounds=100_000)
    machines.unplug(ANT)
    report = job.report(1)
    first = report["failures"][0]
    assert first["name"] in ("scheduler", "server-0")
    assert first["how"].startswith(f"has lost its connection to {machines.addresses[ANT]}")


@pytest.mark.parametrize("mode", [pytest.param("sync", marks=LONG), pytest.param("esync", marks=LONG)])
def test_machines_of_workers_cut_off_from_each_other_train_on(machines: Machines, start: Callable[..., Job], mode: str):
    job = start(mode=mode, rounds=100_000)
    machines.part(BEE, CAT)
    job.until_trained(60)
    assert job.interrupt()["replacements"] == []


@LONG
def test_machines_of_ring_workers_cut_off_from_each_other_wait(machines: Machines, start: Callable[..., Job]):
    pytest.importorskip("mpi4py")
    variables = {"UCX_TLS": "tcp", "MPIR_CVAR_NOLOCAL": "1"}  # as between machines: without memory that is shared
    job = start(mode="sync", collective="ring", rounds=100_000, variables=variables)
    machines.part(BEE, CAT)
    job.until_said("waiting for the commit of worker")
    machines.join(BEE, CAT)
    job.until_trained(3)
    assert job.interrupt()["replacements"] == []


def test_machines_of_killed_tests_are_swept():
    if why := missing():
        pytest.skip(why)
    name = namespace("ant", process=4_194_305)  # larger than any process id
    ip("netns", "add", name)
    command = [*inside(name), "sh", "-c", "echo inside; exec sleep 60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as stray:
        assert stray.stdout is not None
        assert stray.stdout.readline() == "inside\n"
        sweep()
        assert stray.wait(20) == -signal.SIGKILL
    assert name not in subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
