"""Whole jobs by `python -m esync.launch`, with real processes on this machine.

--long adds further moments near the end.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from launching import Launch, Start, description, write

from esync.launch.command import main
from esync.reports.runs import load_run
from esync.reports.trace import write_trace
from tests.support import child
from tests.support.json_files import read_json
from tests.support.trace_reader import read_trace
from tests.support.variants import variants

pytestmark = pytest.mark.timeout(120)


def rounds(folder: Path) -> list[int]:
    return sorted(int(path.stem.removeprefix("iter-")) for path in folder.glob("iter-*.txt"))


def samples(folder: Path) -> dict[int, int]:
    """The samples of a worker in each round."""
    return {number: read_json(folder / f"iter-{number}.txt")["num_samples"] for number in rounds(folder)}


def is_training(job: Launch, base: Path) -> Callable[[], bool]:
    """Whether the first worker has finished a round."""
    return lambda: any(base.glob("*/*/left/cpu/iter-*.txt"))


@pytest.mark.timeout(400)
def test_launch_of_two_jobs_at_once_keeps_them_apart_and_each_copes_with_a_killed_worker(tmp_path, data_dir, launch):
    """ESync goes on without the worker, synchronous SGD replaces it; both have the same log directory.

    Synchronous SGD has batches by speed.
    """
    steps = [0.05, 0.13, 0.31]
    content = description(steps, local_lr=0.01, learning_rate=0.01, data_dir=str(data_dir), log_dir="base")
    content["servers"].append({"host": "right"})
    two = {**content, "workers": content["workers"][:2], "batch_by_speed": True}
    flags = ("--no-restart", "--elastic", "--redistribute", "--rounds", "40")
    jobs = {
        "sync": launch(two, "--mode", "sync", "--json", "sync.json", "--rounds", "30", "--no-evaluation"),
        "esync": launch(content, "--json", "esync.json", *flags),
    }
    for mode, job in jobs.items():
        job.until(lambda mode=mode: (tmp_path / "base/lenet" / mode / "right/cpu/iter-2.txt").exists(), limit=90)
        os.kill(job.worker(1), signal.SIGKILL)
    for mode, job in jobs.items():
        assert job.wait(180) == 0, job.output  # its evaluations stand back behind everybody
        assert job.processes() == {}
        workers, number = (3, 40) if mode == "esync" else (2, 30)

        folder = tmp_path / "base/lenet" / mode
        devices = ["left/cpu", "right/cpu", "left/cpu-1"][:workers]
        assert [rounds(folder / device) for device in devices[::2]] == [list(range(1, number + 1))] * (workers - 1)
        runs = [read_json(folder / device / "run.json") for device in devices]
        assert [run["rank"] for run in runs] == list(range(workers))  # in the order of the description
        assert [run["step_time"] for run in runs] == steps[:workers]

        names = {"scheduler", "server-0", "server-1", *(f"worker-{rank}" for rank in range(workers))}
        report = read_json(tmp_path / f"{mode}.json")
        assert report["done"]
        assert report["figures"]["rounds"] == number
        assert report["figures"]["speed_limit"] == pytest.approx(sum(8 / step for step in steps[:workers]))
        assert [replacement["name"] for replacement in report["replacements"]] == ["worker-1"] * (mode == "sync")
        assert report["lost"] == ["worker-1"] * (mode == "esync")
        assert "worker-1 (right/cpu) was ended by SIGKILL" in job.output

        page = folder / "report.html"
        assert "report.html" in job.output
        assert "</html>" in page.read_text()
        assert read_json(folder / "processes/outcome.json") == report

        write_trace([load_run(folder)], tmp_path / "trace.json")
        trace = read_trace(tmp_path / "trace.json")
        assert len([span for span in trace.slices["left/cpu"] if span.depth == 0]) == number
        assert trace.arrows
        ((killed, event),) = trace.instants["job/events"]
        assert event.startswith("worker-1 was")
        if mode == "sync":  # it ended no round for as long as ever while it was replaced
            assert "and was replaced" in event
            ends = sorted(span.end for span in trace.slices["right/cpu"] if span.depth == 0)
            last, next_ = max(pairwise(ends), key=lambda pair: pair[1] - pair[0])
            assert last - 1e6 < killed < next_

        logs = {path.stem for path in (folder / "processes").glob("*.log")}
        assert logs == names | ({"state-server"} if mode == "esync" else set())
        assert "@progress" not in (folder / "processes/worker-0.log").read_text()
        assert f"{number} rounds in 0:" in job.output
        assert re.search(r"workers: .*\d training.*  round \d+", job.output)
        exit_codes = dict.fromkeys(names, 0)  # the state server is told to end
        assert report["exit_codes"] == exit_codes | ({"worker-1": -signal.SIGKILL} if mode == "esync" else {})
    assert (tmp_path / "base/lenet/esync/ESync.json").exists()
    assert "lost: worker-1; the others went on" in jobs["esync"].output
    assert "test accuracy " in jobs["esync"].output
    assert "starting a replacement (1 of at most 3)" in jobs["sync"].output
    assert "replaced after its death: worker-1 once" in jobs["sync"].output
    assert rounds(tmp_path / "base/lenet/sync/right/cpu")[-1] == 30
    fast, slow = (samples(tmp_path / "base/lenet/sync" / device) for device in ("left/cpu", "right/cpu"))
    assert (fast[1], slow[1]) == (12, 4)
    assert sum(fast[round_] + slow[round_] != 16 for round_ in fast.keys() & slow.keys()) <= 1  # of the replacement


def test_launch_with_diverging_worker_reports_the_failure(tmp_path, data_dir, launch: Start):
    train = {"mode": "sync", "learning_rate": 1e9, "no_evaluation": True, "max_time": 300}
    content = description([0.1, 0.1], data_dir=str(data_dir), **train)
    job = launch(content, "--log-dir", "base", "--json", "job.json")
    job.finish(1)
    assert "launch: error: worker-" in job.output
    assert "ended with exit code 1; the end of base/lenet/sync/processes/worker-" in job.output
    assert "the training has diverged; try a smaller learning rate" in job.output
    assert "Traceback" not in job.output
    report = read_json(tmp_path / "job.json")
    assert not report["done"]
    assert {failure["how"] for failure in report["failures"]} == {"ended with exit code 1"}


#: Moment near the end → who dies then, flags of launch, and whether the replacement has anything
#: left to do.
NEAR_THE_END = {
    "the last rounds": ("worker-1", ["--elastic"]),
    "the export": ("worker-0", []),
    "the goodbye": ("worker-1", []),
}


@pytest.mark.parametrize("moment", variants(NEAR_THE_END, quick=["the export"]))
def test_launch_with_worker_killed_near_the_end_finishes_the_run(tmp_path, data_dir, launch: Start, moment):
    victim, flags = NEAR_THE_END[moment]
    shutil.copy(Path(__file__).with_name("dying.py"), tmp_path)
    content = description([0.1, 0.1], data_dir=str(data_dir), mode="dying.py:Dying", rounds=10, learning_rate=0.001)
    content["train"]["no_evaluation"] = True
    del content["state_server"]
    job = launch(content, *flags, "--json", "result.json", ESYNC_TEST_MOMENT=moment)
    assert job.wait(100) == 0, job.output
    assert job.processes() == {}
    assert (tmp_path / f"died-{moment}").exists()
    report = read_json(tmp_path / "result.json")
    assert [replacement["name"] for replacement in report["replacements"]] == [victim]
    assert report["figures"]["rounds"] == 10
    assert list(tmp_path.glob("logs/lenet/dying/left/cpu/model/model.params"))


@pytest.mark.parametrize("small_disk", ["8m"], indirect=True)
def test_launch_with_disk_full_for_a_while_continues(tmp_path, data_dir, launch: Start, small_disk):
    """The disk holds the logs of workers and processes, and the launcher's own output."""
    train = {"mode": "sync", "rounds": 60, "learning_rate": 0.01, "no_evaluation": True}
    content = description([0.1], data_dir=str(data_dir), log_dir=str(small_disk), **train)
    job = launch(content, "--json", "result.json")
    folder = small_disk / "lenet/sync"
    job.until(lambda: len(rounds(folder / "left/cpu")) >= 2)
    with open(small_disk / "ballast", "wb", buffering=0) as ballast, contextlib.suppress(OSError):
        while True:
            ballast.write(bytes(4096))
    logged = rounds(folder / "left/cpu")
    job.until(lambda: "No space left on device; the job goes on" in job.output)
    assert rounds(folder / "left/cpu") == logged
    (small_disk / "ballast").unlink()
    job.finish()
    assert rounds(folder / "left/cpu") == list(range(1, 61))
    assert read_json(tmp_path / "result.json")["figures"]["rounds"] == 60


def test_launch_that_ends_or_is_killed_leaves_no_process(tmp_path, data_dir, launch: Start):
    """It is terminated, interrupted during its start, and killed."""
    content = description([0.1, 0.1], max_time=300, data_dir=str(data_dir), local_lr=0.001)
    one = {**content, "workers": content["workers"][:1]}
    started, interrupted, killed = (
        launch(given, "--log-dir", name)
        for name, given in (("started", one), ("interrupted", content), ("killed", one))
    )

    started.until(lambda: any("esync.worker" in command for command in started.processes().values()))
    started.process.send_signal(signal.SIGTERM)
    assert started.wait(10) == 1
    assert started.processes() == {}

    for job, base in ((interrupted, "interrupted"), (killed, "killed")):
        job.until(is_training(job, tmp_path / base))
        assert any("esync.evaluate" in command for command in job.processes().values())
    killed.process.kill()
    interrupted.process.send_signal(signal.SIGINT)
    assert interrupted.wait(10) == 1
    assert interrupted.processes() == {}
    assert interrupted.output.endswith("launch: error: ended by SIGINT; all processes of the job have been ended\n")
    logs = [log.read_text() for log in (tmp_path / "interrupted").glob("*/*/processes/worker-*.log")]
    assert len(logs) == 2
    assert not any("Traceback" in log for log in logs)
    assert killed.gone_within(10) == {}


def test_launch_with_worker_that_never_joins_reports_and_gives_up(tmp_path, data_dir, launch: Start):
    """The Python of one of two workers hangs."""
    hangs = tmp_path / "hangs"
    hangs.write_text("#!/bin/sh\nexec sleep 100\n")
    hangs.chmod(0o755)
    content = description([0.1, 0.1], mode="sync", learning_rate=0.001, data_dir=str(data_dir), start_timeout=11)
    content["hosts"]["right"]["python"] = str(hangs)
    job = launch(content)
    job.finish(1)
    assert re.search(r"gave up after 1\d s of waiting for 1 of 2 workers: worker 1 on right/cpu", job.output)
    assert "waiting for" in (tmp_path / "logs/lenet/sync/processes/scheduler.log").read_text()


def run(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return child.run("-m", "esync.launch", *words, cwd=folder)


def test_launch_with_tilde_uses_the_home_directory_and_with_unwritable_stdout_exits_with_1(
    tmp_path, data_dir, launch: Start
):
    """No shell has expanded the tilde; launcher and processes must agree on the folder."""
    train = {"mode": "sync", "rounds": 2, "data_dir": str(data_dir), "log_dir": "~/logs", "checkpoint_dir": "~/kept"}
    train["no_evaluation"] = True
    home = tmp_path / "home"
    content = description([0.05], learning_rate=0.001, **train)
    job = launch(content, "--json=~/job.json", HOME=str(home), output=Path("/dev/full"))
    job.finish(1)
    assert "the job is done, but " in job.errors
    assert "bytes of standard output could not be written: No space left on device" in job.errors
    assert not (tmp_path / "~").exists()
    folder = home / "logs/lenet/sync"
    assert rounds(folder / "left/cpu") == [1, 2]
    assert (folder / "processes/worker-0.log").exists()
    assert (home / "kept/model").is_dir()
    report = read_json(home / "job.json")
    assert report["figures"]["rounds"] == 2
    assert report["logs"] == str(folder)


def test_launch_dry_run_prints_every_command_and_starts_nothing(tmp_path, capsys, data_dir, monkeypatch):
    """The command of a worker that trains alone can be run as it is."""
    monkeypatch.chdir(tmp_path)
    file = write(tmp_path / "cluster.yaml", {**description([0.1, 0.2]), "spare_hosts": ["127.0.0.1"]})
    assert main([str(file), "--dry-run", "--rounds", "3"]) == 0
    printed = capsys.readouterr().out
    assert "# Nothing on 127.0.0.1 at first: it is a spare host, for the workers of one that is lost" in printed
    commands = [line for line in printed.splitlines() if " -m esync." in line]
    assert [re.search(r"-m esync\.(\w+)", line)[1] for line in commands] == [
        "scheduler", "server", "state_server", "worker", "worker",
    ]  # fmt: skip
    assert all(line.endswith(" --rounds 3") for line in commands[3:])
    assert os.listdir(tmp_path) == ["cluster.yaml"]

    flags = ("--mode", "local", "--rounds", "2", "--data-dir", str(data_dir), "--no-evaluation", "--log-dir", "my logs")
    assert main([str(file), "--dry-run", *flags]) == 0
    command = capsys.readouterr().out.splitlines()[1]
    subprocess.run(command, shell=True, check=True, capture_output=True, timeout=100)
    device = tmp_path / "my logs/lenet/local/left/cpu"
    assert rounds(device) == [1, 2]
    assert read_json(device / "run.json")["step_time"] == 0.1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["bad.yaml"],
            "launch: error: bad.yaml:1: workers[0].devise: unknown key; known: host, device, count, step_time",
        ),
        (["lost.yaml"], "launch: error: lost.yaml: train: --resume needs --checkpoint-dir"),
        (
            ["lost.yaml", "--dry-run", "--json", "x"],
            "--json describes how a job went, and with --dry-run",
        ),
    ],
)
def test_launch_with_mistake_names_it(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    text = "{workers: [{devise: cpu, host: a}], scheduler: {host: a}, servers: [{host: a}]}\n"
    (tmp_path / "bad.yaml").write_text(text)
    write(tmp_path / "lost.yaml", description([0.1], resume=True))
    files = sorted(os.listdir(tmp_path))
    try:
        code: object = main(words)
    except SystemExit as error:
        code = error.code
    assert code == 2
    assert message in capsys.readouterr().err
    assert sorted(os.listdir(tmp_path)) == files
