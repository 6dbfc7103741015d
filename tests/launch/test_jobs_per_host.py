"""Whole jobs whose workers exchange as one on each host (`per_host`), with real processes.

--long adds compression with --overlap and a resume.
"""

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from launching import Launch, Start, description
from test_launched_jobs import rounds

from tests.support.json_files import read_json
from tests.support.variants import variants

pytestmark = pytest.mark.timeout(300)
LIMIT = 120  # seconds for one job


def cluster(data_dir: Path, **train: Any) -> dict[str, Any]:
    """Two workers on the host left and one on right, which exchange per host."""
    common = {"learning_rate": 0.01, "local_lr": 0.01, "data_dir": str(data_dir), "no_evaluation": True}
    return {**description([0.05] * 3, ["left", "left", "right"], **common, **train), "per_host": True}


def tokens(job: Launch) -> set[str]:
    """The names by which workers of a host find each other."""
    return {
        variables["ESYNC_HOST_GROUP"].partition(":")[0]
        for variables in job.workers().values()
        if "ESYNC_HOST_GROUP" in variables
    }


def check_nothing_is_left(names: set[str]) -> None:
    assert names
    in_use = Path("/proc/net/unix").read_text()
    assert not [name for name in names if name in in_use]


def sent(folder: Path, number: int) -> int:
    """Bytes that all workers have sent in a round."""
    entries = [read_json(path) for path in folder.glob(f"lenet/*/*/*/iter-{number}.txt")]
    return sum(entry["bytes_sent"] for entry in entries)


@pytest.mark.timeout(400)
def test_job_per_host_sends_less_and_replaces_a_killed_worker_or_continues_without_it(
    tmp_path, data_dir, launch: Start
):
    content, elastic = cluster(data_dir, mode="sync"), ("--no-restart", "--elastic")
    jobs = {
        "replaced": launch(content, "--log-dir", "replaced", "--json", "replaced.json", "--rounds", "40"),
        "lost": launch(content, "--log-dir", "lost", "--json", "lost.json", "--rounds", "60", *elastic),
    }
    names = {}
    for name, rank in (("replaced", 1), ("lost", 0)):
        job = jobs[name]
        job.until(lambda name=name: (tmp_path / name / "lenet/sync/right/cpu/iter-3.txt").exists(), LIMIT)
        names[name] = tokens(job)
        os.kill(job.worker(rank), signal.SIGKILL)
    for name, rank, number in (("replaced", 1, 40), ("lost", 0, 60)):
        job = jobs[name]
        job.finish()
        assert "the workers of a host exchange as one: 2 instead of 3 in a round" in job.output
        facts = [read_json(path) for path in (tmp_path / name).rglob("cpu*/run.json")]
        assert {fact["options"]["per_host"] for fact in facts} == {2}
        # Each worker alone would be 3. A killed worker may not have written round 3.
        assert 2 <= sent(tmp_path / name, 2) / facts[0]["model_bytes"] < 2.5
        report = read_json(tmp_path / f"{name}.json")
        assert [replacement["name"] for replacement in report["replacements"]] == (
            [f"worker-{rank}"] if name == "replaced" else []
        )
        assert report["lost"] == ([f"worker-{rank}"] if name == "lost" else [])
        assert rounds(tmp_path / name / "lenet/sync/left/cpu-1")[-1] == number
        check_nothing_is_left(names[name])


#: What a run that goes on from a checkpoint is combined with → flags.
RESUMED: dict[str, dict[str, Any]] = {
    "2bit": {"mode": "sync", "compression": "2bit"},
    "esync, fp16, overlap": {"mode": "esync", "compression": "fp16", "overlap": True, "local_iterations": 1},
}


@pytest.mark.parametrize("combined", variants(RESUMED, quick=["2bit"]))
def test_job_per_host_resumes_after_its_server_was_killed(tmp_path, data_dir, launch: Start, combined):
    content = cluster(data_dir, checkpoint_dir="kept", checkpoint_every=3, **RESUMED[combined])
    folder, devices = tmp_path / "logs/lenet" / RESUMED[combined]["mode"], ("left/cpu", "right/cpu", "left/cpu-1")
    first = launch(content, "--resume")
    first.until(lambda: (tmp_path / "kept/round-6/worker-0.json").exists(), LIMIT)
    names = tokens(first)
    (server,) = (number for number, command in first.processes().items() if " -m esync.server" in command)
    os.kill(server, signal.SIGKILL)
    first.finish(1)
    check_nothing_is_left(names)
    log = folder / "processes/worker-0.log"
    assert f"no checkpoint in {tmp_path / 'kept'} yet: starting from the beginning" in log.read_text()
    earlier = [(folder / device / "iter-5.txt").read_bytes() for device in devices]

    words, before = log.read_text(), sorted(folder.rglob("*"))
    forgetful = launch(content)
    forgetful.finish(1)
    refusal = r"launch: error: kept holds checkpoints of an earlier run \(round \d+\): go on with --resume, delete"
    assert re.search(refusal, forgetful.output)
    assert (log.read_text(), sorted(folder.rglob("*"))) == (words, before)  # nothing has been moved aside

    second = launch(content, "--resume", "--rounds", "14")
    second.finish()
    assert re.search(r"going on from the checkpoint of round \d+ in \S+/kept", log.read_text())
    assert [rounds(folder / device) for device in devices] == [list(range(1, 15))] * 3
    assert [(folder / device / "iter-5.txt").read_bytes() for device in devices] == earlier
    assert (tmp_path / "kept/model/model-symbol.json").exists()
