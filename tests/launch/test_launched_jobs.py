"""Whole jobs by `python -m esync.launch`, with real processes on this machine.

--long adds further moments near the end, and a disk full of checkpoints.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from launching import Launch, description, write

from esync.launch.command import main
from tests.support.disks import fill
from tests.support.variants import variants

pytestmark = pytest.mark.timeout(120)

Start = Callable[..., Launch]


def rounds(folder: Path) -> list[int]:
    return sorted(int(path.stem.removeprefix("iter-")) for path in folder.glob("iter-*.txt"))


def is_training(job: Launch, base: Path) -> Callable[[], bool]:
    """Whether the first worker has finished a round."""
    return lambda: any(base.glob("*/*/left/cpu/iter-*.txt"))


@pytest.mark.timeout(400)
def test_launch_of_two_jobs_at_once_keeps_them_apart(tmp_path, data_dir, launch: Start):
    """ESync and synchronous SGD from one description, with the same log directory."""
    steps = [0.05, 0.13, 0.31]
    content = description(steps, local_lr=0.01, learning_rate=0.01, rounds=20, data_dir=str(data_dir), log_dir="base")
    content["servers"].append({"host": "right"})
    file = write(tmp_path / "cluster.yaml", content)
    jobs = {
        "esync": launch(file, "--json", "esync.json"),
        "sync": launch(file, "--mode", "sync", "--json", "sync.json", "--rounds", "30"),
    }
    for mode, number in {"esync": 20, "sync": 30}.items():
        job = jobs[mode]
        assert job.wait(180) == 0, job.output  # its evaluations stand back behind everybody
        assert job.processes() == {}

        folder = tmp_path / "base" / "lenet" / mode
        devices = ["left/cpu", "right/cpu", "left/cpu-1"]
        assert [rounds(folder / device) for device in devices] == [list(range(1, number + 1))] * 3
        runs = [json.loads((folder / device / "run.json").read_text()) for device in devices]
        assert [run["rank"] for run in runs] == [0, 1, 2]  # in the order of the description
        assert [run["step_time"] for run in runs] == steps

        names = {"scheduler", "server-0", "server-1", "worker-0", "worker-1", "worker-2"}
        report = json.loads((tmp_path / f"{mode}.json").read_text())
        assert report["done"]
        assert report["exit_codes"] == dict.fromkeys(names, 0)  # the state server is told to end
        assert report["figures"]["rounds"] == number
        assert report["figures"]["speed_limit"] == pytest.approx(sum(8 / step for step in steps))
        assert report["figures"]["final_accuracy"] is not None

        page = folder / "report.html"
        assert "report.html" in job.output
        assert "</html>" in page.read_text()
        assert json.loads((folder / "processes" / "outcome.json").read_text()) == report

        logs = {path.stem for path in (folder / "processes").glob("*.log")}
        assert logs == names | ({"state-server"} if mode == "esync" else set())
        assert "@progress" not in (folder / "processes" / "worker-0.log").read_text()
        assert f"{number} rounds in 0:" in job.output
        assert re.search(r"workers: .*3 training  round \d+", job.output)
        assert "test accuracy " in job.output
    assert (tmp_path / "base" / "lenet" / "esync" / "ESync.json").exists()


@pytest.mark.timeout(400)
def test_launch_resume_after_killed_server_continues_from_the_checkpoint(tmp_path, data_dir, launch: Start):
    content = description([0.1, 0.25], local_lr=0.01, data_dir=str(data_dir), checkpoint_dir="kept", checkpoint_every=3)
    file = write(tmp_path / "cluster.yaml", content)
    folder, devices = tmp_path / "logs" / "lenet" / "esync", ("left/cpu", "right/cpu")
    first = launch(file, "--resume")
    first.until(lambda: (tmp_path / "kept" / "round-6" / "worker-0.json").exists())
    (server,) = (number for number, command in first.processes().items() if "esync.server" in command)
    os.kill(server, signal.SIGKILL)
    assert first.wait() == 1
    said = folder / "processes" / "worker-0.log"
    assert f"no checkpoint in {tmp_path / 'kept'} yet: starting from the beginning" in said.read_text()
    earlier = [(folder / device / "iter-5.txt").read_bytes() for device in devices]

    words, before = said.read_text(), sorted(folder.rglob("*"))
    forgetful = launch(file)
    assert forgetful.wait() == 1
    refusal = r"launch: error: kept holds checkpoints of an earlier run \(round \d+\): go on with --resume, delete"
    assert re.search(refusal, forgetful.output)
    assert (said.read_text(), sorted(folder.rglob("*"))) == (words, before)  # nothing has been moved aside

    second = launch(file, "--resume", "--rounds", "12")
    assert second.wait(180) == 0, second.output  # its evaluations stand back behind everybody
    assert re.search(r"going on from the checkpoint of round \d+ in \S+/kept", said.read_text())
    assert [rounds(folder / device) for device in devices] == [list(range(1, 13))] * 2
    assert [(folder / device / "iter-5.txt").read_bytes() for device in devices] == earlier
    assert (tmp_path / "kept" / "model" / "model-symbol.json").exists()


def test_launch_with_killed_or_diverging_worker_reports_the_failure(tmp_path, data_dir, launch: Start):
    content = description([0.1, 0.1], max_time=300, data_dir=str(data_dir), learning_rate=0.001, mode="sync")
    file = write(tmp_path / "cluster.yaml", content)
    killed = launch(file, "--log-dir", "killed", "--no-restart")
    diverging = launch(file, "--log-dir", "diverging", "--learning-rate", "1e9", "--json", "diverging.json")

    killed.until(is_training(killed, tmp_path / "killed"))
    workers = killed.workers()
    assert len(workers) == 2
    os.kill(max(workers), signal.SIGKILL)
    assert killed.wait(15) == 1
    assert killed.gone_within(5) == {}
    match = re.search(r"launch: error: worker-(\d) \((left|right)/cpu\) was ended by SIGKILL", killed.output)
    assert match, killed.output
    assert f"the end of killed/lenet/sync/processes/worker-{match[1]}.log:" in killed.output

    assert diverging.wait() == 1
    assert diverging.gone_within(5) == {}
    assert "ended with exit code 1; the end of diverging/lenet/sync/processes/worker-" in diverging.output
    assert "the training has diverged; try a smaller learning rate" in diverging.output
    assert "Traceback" not in diverging.output
    report = json.loads((tmp_path / "diverging.json").read_text())
    assert not report["done"]
    assert {failure["how"] for failure in report["failures"]} == {"ended with exit code 1"}


@pytest.mark.timeout(200)
def test_launch_with_killed_worker_replaces_it_or_continues_without_it(tmp_path, data_dir, launch: Start):
    content = description([0.1, 0.2, 0.1], data_dir=str(data_dir), local_lr=0.001, learning_rate=0.001)
    file = write(tmp_path / "cluster.yaml", content)
    replaced = launch(file, "--log-dir", "replaced", "--json", "replaced.json", "--mode", "sync", "--rounds", "9")
    flags = ("--no-restart", "--elastic", "--redistribute", "--rounds", "40")
    lost = launch(file, "--log-dir", "lost", "--json", "lost.json", *flags)
    name = "worker-1"
    for job, base in ((replaced, "replaced"), (lost, "lost")):
        job.until(lambda base=base: any((tmp_path / base).glob("*/*/right/cpu/iter-*.txt")), limit=90)
        os.kill(job.worker(1), signal.SIGKILL)
    for job, base, number in ((replaced, "replaced", 9), (lost, "lost", 40)):
        assert job.wait(120) == 0, job.output
        report = json.loads((tmp_path / f"{base}.json").read_text())
        assert [each["name"] for each in report["replacements"]] == ([name] if job is replaced else [])
        assert report["lost"] == ([name] if job is lost else [])
        assert report["figures"]["rounds"] == number
        assert f"{name} (right/cpu) was ended by SIGKILL" in job.output
        assert job.processes() == {}
    assert "starting a replacement (1 of at most 3)" in replaced.output
    assert f"replaced after its death: {name} once" in replaced.output
    assert rounds(tmp_path / "replaced/lenet/sync/right/cpu")[-1] == 9
    assert f"lost: {name}; the others went on" in lost.output


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
    file = write(tmp_path / "cluster.yaml", content)
    job = launch(file, *flags, "--json", "result.json", ESYNC_TEST_MOMENT=moment)
    assert job.wait(100) == 0, job.output
    assert job.processes() == {}
    assert (tmp_path / f"died-{moment}").exists()
    report = json.loads((tmp_path / "result.json").read_text())
    assert [each["name"] for each in report["replacements"]] == [victim]
    assert report["figures"]["rounds"] == 10
    assert list(tmp_path.glob("logs/lenet/dying/left/cpu/model/model.params"))


@pytest.mark.parametrize("small_disk", ["8m"], indirect=True)
def test_launch_with_disk_full_for_a_while_continues(tmp_path, data_dir, launch: Start, small_disk):
    """The disk holds the logs of workers and processes, and the launcher's own output."""
    content = description([0.05, 0.1], rounds=60, local_lr=0.01, data_dir=str(data_dir), log_dir=str(small_disk))
    job = launch(write(tmp_path / "cluster.yaml", content), "--json", "result.json")
    folder = small_disk / "lenet" / "esync"
    job.until(lambda: len(rounds(folder / "left" / "cpu")) >= 2)
    with open(small_disk / "ballast", "wb", buffering=0) as ballast, contextlib.suppress(OSError):
        while True:
            ballast.write(bytes(4096))
    logged = rounds(folder / "left" / "cpu")
    job.until(lambda: "No space left on device; the job goes on" in job.output)
    assert rounds(folder / "left" / "cpu") == logged
    (small_disk / "ballast").unlink()
    assert job.wait() == 0, job.output
    assert rounds(folder / "left" / "cpu") == rounds(folder / "right" / "cpu") == list(range(1, 61))
    assert json.loads((tmp_path / "result.json").read_text())["figures"]["rounds"] == 60


@pytest.mark.long
@pytest.mark.parametrize("small_disk", ["3m"], indirect=True)
def test_launch_with_disk_full_of_checkpoints_ends_and_names_the_directory(
    tmp_path, data_dir, launch: Start, small_disk
):
    content = description([0.1, 0.1], mode="sync", data_dir=str(data_dir), learning_rate=0.001, no_evaluation=True)
    content["train"] |= {"checkpoint_dir": str(small_disk), "checkpoint_every": 3, "max_time": 300}
    file = write(tmp_path / "cluster.yaml", content)
    job = launch(file, "--resume")
    job.until(lambda: any(small_disk.glob("round-*/worker-1.json")))
    ballast = fill(small_disk, pages=30)  # of 61 that the model takes
    assert job.wait() == 1
    assert re.search(rf"cannot write a checkpoint to {small_disk}/round-\d+: No space left on device", job.output)
    assert "Traceback" not in job.output
    assert "starting a replacement" not in job.output
    ballast.unlink()
    again = launch(file, "--resume", "--rounds", "30")
    assert again.wait() == 0, again.output
    assert rounds(tmp_path / "logs" / "lenet" / "sync" / "left" / "cpu") == list(range(1, 31))


def test_launch_that_ends_or_is_killed_leaves_no_process(tmp_path, data_dir, launch: Start):
    """It is terminated, interrupted during its start, and killed."""
    content = description([0.1, 0.1], max_time=300, data_dir=str(data_dir), local_lr=0.001)
    file = write(tmp_path / "cluster.yaml", content)
    started, interrupted, killed = (launch(file, "--log-dir", name) for name in ("started", "interrupted", "killed"))

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
    job = launch(write(tmp_path / "cluster.yaml", content))
    assert job.wait(60) == 1
    assert job.gone_within(5) == {}
    assert re.search(r"gave up after 1\d s of waiting for 1 of 2 workers: worker 1 on right/cpu", job.output)
    assert "waiting for" in (tmp_path / "logs" / "lenet" / "sync" / "processes" / "scheduler.log").read_text()


def run(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "esync.launch", *words], cwd=folder, capture_output=True, text=True, timeout=60
    )


def test_launch_with_tilde_uses_the_home_directory_and_with_unwritable_stdout_exits_with_1(
    tmp_path, data_dir, launch: Start
):
    """No shell has expanded the tilde; launcher and processes must agree on the folder."""
    train = {"mode": "sync", "rounds": 2, "data_dir": str(data_dir), "log_dir": "~/logs", "checkpoint_dir": "~/kept"}
    file = write(tmp_path / "cluster.yaml", description([0.05, 0.05], learning_rate=0.001, **train))
    home = tmp_path / "home"
    job = launch(file, "--json=~/job.json", HOME=str(home), output=Path("/dev/full"))
    assert job.wait() == 1, job.errors
    assert "the job is done, but " in job.errors
    assert "bytes of standard output could not be written: No space left on device" in job.errors
    assert not (tmp_path / "~").exists()
    folder = home / "logs" / "lenet" / "sync"
    assert rounds(folder / "left" / "cpu") == rounds(folder / "right" / "cpu") == [1, 2]
    assert (folder / "processes" / "worker-0.log").exists()
    assert (home / "kept" / "model").is_dir()
    report = json.loads((home / "job.json").read_text())
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
    assert json.loads((device / "run.json").read_text())["step_time"] == 0.1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["none.yaml"], "launch: error: none.yaml: No such file or directory\n"),
        (
            ["bad.yaml"],
            "launch: error: bad.yaml:1: workers[0].devise: unknown key; known: host, device, count, step_time",
        ),
        (["good.yaml", "--local-lr", "1", "--mode", "sync"], "launch: error: good.yaml: train: --local-lr makes no"),
        (["good.yaml", "--rounds", "0"], "'0' should be a whole number of 1 or more"),
        (
            ["good.yaml", "--dry-run", "--json", "x"],
            "--json describes how a job went, and with --dry-run",
        ),
        ([], "the following arguments are required: FILE"),
        (
            ["far.yaml"],
            "launch: error: far.yaml: hosts.left.address: localhost (127.0.0.1) is reached from the machine",
        ),
    ],
)
def test_launch_with_mistake_names_it(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    good = description([0.1])
    write(tmp_path / "good.yaml", good)
    text = "{workers: [{devise: cpu, host: a}], scheduler: {host: a}, servers: [{host: a}]}\n"
    (tmp_path / "bad.yaml").write_text(text)
    far = {"hosts": {"far": {"address": "203.0.113.7"}}, "workers": [{"host": "far", "device": "cpu"}]}
    write(tmp_path / "far.yaml", {**good, **far, "hosts": {**good["hosts"], **far["hosts"]}, "train": {"mode": "sync"}})
    files = sorted(os.listdir(tmp_path))
    try:
        code: object = main(words)
    except SystemExit as error:
        code = error.code
    assert code == 2
    assert message in capsys.readouterr().err
    assert sorted(os.listdir(tmp_path)) == files
