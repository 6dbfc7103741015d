"""Whole jobs whose workers exchange as one on each host (`per_host`), with real processes.

--long adds compression with --overlap and a resume.
"""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launching import Launch, description, write
from test_launched_jobs import rounds

from tests.support.variants import variants

pytestmark = pytest.mark.timeout(300)
LIMIT = 120  # seconds for one job

Start = Callable[..., Launch]


def cluster(data_dir: Path, workers: int = 4, hosts: list[str] | None = None, **train: Any) -> dict[str, Any]:
    """Workers on the hosts left and right by turns, which exchange per host."""
    common = {"learning_rate": 0.01, "local_lr": 0.01, "data_dir": str(data_dir), "no_evaluation": True}
    return {**description([0.05] * workers, hosts, **common, **train), "per_host": True}


def tokens(job: Launch) -> set[str]:
    """The names by which workers of a host find each other."""
    return {told["ESYNC_HOST_GROUP"].partition(":")[0] for told in job.workers().values() if "ESYNC_HOST_GROUP" in told}


def check_nothing_is_left(job: Launch, names: set[str]) -> None:
    assert names
    assert job.gone_within(10) == {}
    in_use = Path("/proc/net/unix").read_text()
    assert not [name for name in names if name in in_use]


def model(folder: Path) -> dict[str, np.ndarray]:
    """The final model of a run."""
    from esync import mx

    (file,) = folder.glob("lenet/*/left/cpu/model/model.params")
    return {name: values.asnumpy() for name, values in mx.nd.load(str(file)).items()}


def sent(folder: Path, number: int) -> int:
    """Bytes that all workers have sent in a round."""
    entries = [json.loads(path.read_text()) for path in folder.glob(f"lenet/*/*/*/iter-{number}.txt")]
    return sum(entry["bytes_sent"] for entry in entries)


def test_job_per_host_has_the_flat_jobs_model_with_half_of_its_traffic(tmp_path, data_dir, launch: Start):
    content = cluster(data_dir, mode="sync", rounds=12)
    for name, per_host in (("own", True), ("flat", False)):
        content["per_host"] = per_host
        job = launch(write(tmp_path / f"{name}.yaml", content), "--log-dir", name)
        assert job.wait(LIMIT) == 0, job.output
        assert ("the workers of a host exchange as one: 2 instead of 4 in a round" in job.output) is per_host
        facts = [json.loads(path.read_text()) for path in (tmp_path / name).rglob("cpu*/run.json")]
        assert {fact["options"].get("per_host") for fact in facts} == {2 if per_host else None}
    own, flat = model(tmp_path / "own"), model(tmp_path / "flat")
    assert own.keys() == flat.keys()
    for name in own:
        np.testing.assert_allclose(own[name], flat[name], rtol=1e-4, atol=1e-6)
    traffic = [sorted(sent(tmp_path / name, number) for number in range(2, 12))[5] for name in ("own", "flat")]
    assert traffic[0] < 0.6 * traffic[1], traffic


def test_job_per_host_with_killed_worker_replaces_it_or_continues_without_it(tmp_path, data_dir, launch: Start):
    content = cluster(data_dir, 4, ["left", "left", "left", "right"], mode="sync")
    file = write(tmp_path / "cluster.yaml", content)
    jobs = {
        "replaced": launch(file, "--log-dir", "replaced", "--json", "replaced.json", "--rounds", "40"),
        "lost": launch(file, "--log-dir", "lost", "--json", "lost.json", "--rounds", "60", "--no-restart", "--elastic"),
    }
    names = {}
    for name, rank in (("replaced", 2), ("lost", 0)):
        job = jobs[name]
        job.until(lambda name=name: (tmp_path / name / "lenet/sync/right/cpu/iter-3.txt").exists(), LIMIT)
        names[name] = tokens(job)
        os.kill(job.worker(rank), signal.SIGKILL)
    for name, rank, number in (("replaced", 2, 40), ("lost", 0, 60)):
        job = jobs[name]
        assert job.wait(LIMIT) == 0, job.output
        report = json.loads((tmp_path / f"{name}.json").read_text())
        assert [each["name"] for each in report["replacements"]] == ([f"worker-{rank}"] if name == "replaced" else [])
        assert report["lost"] == ([f"worker-{rank}"] if name == "lost" else [])
        assert rounds(tmp_path / name / "lenet/sync/left/cpu-1")[-1] == number
        check_nothing_is_left(job, names[name])


#: What a run that goes on from a checkpoint is combined with → flags.
RESUMED: dict[str, dict[str, Any]] = {
    "2bit": {"mode": "sync", "compression": "2bit"},
    "esync, fp16, overlap": {"mode": "esync", "compression": "fp16", "overlap": True, "local_iterations": 1},
}


@pytest.mark.parametrize("combined", variants(RESUMED, quick=["2bit"]))
def test_job_per_host_resumes_after_its_server_was_killed(tmp_path, data_dir, launch: Start, combined):
    content = cluster(data_dir, checkpoint_dir="kept", checkpoint_every=3, **RESUMED[combined])
    file = write(tmp_path / "cluster.yaml", content)
    first = launch(file, "--resume")
    first.until(lambda: (tmp_path / "kept" / "round-6" / "worker-0.json").exists(), LIMIT)
    names = tokens(first)
    (server,) = (number for number, command in first.processes().items() if " -m esync.server" in command)
    os.kill(server, signal.SIGKILL)
    assert first.wait(LIMIT) == 1
    check_nothing_is_left(first, names)
    second = launch(file, "--resume", "--rounds", "14")
    assert second.wait(LIMIT) == 0, second.output
    devices = ["left/cpu", "left/cpu-1", "right/cpu", "right/cpu-1"]
    folder = tmp_path / "logs" / "lenet" / RESUMED[combined]["mode"]
    assert [rounds(folder / device) for device in devices] == [list(range(1, 15))] * 4
