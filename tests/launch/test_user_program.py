"""A user's own program in the place of the built-in worker: its command and its variables."""

import re
import shlex
import sys
from typing import Any

import pytest
from launching import description, write
from test_plan import make as make_plan

from esync.launch.command import parse_arguments
from esync.launch.description import DescriptionError, read
from esync.launch.spec import LaunchPlan
from esync.launch.user_program import MissingProgramError, UserProgram, words_of
from esync.runtime.worker_environment import WorkerEnvironment

WORDS = ["python", "train.py", "--lr", "0.1"]


def make(content: dict[str, Any], *typed_program: str, **typed: Any) -> LaunchPlan:
    """Plan it; the program is the description's, or was typed."""
    return make_plan(content, program=typed_program, **typed)


def environments(job: LaunchPlan) -> list[WorkerEnvironment]:
    return [WorkerEnvironment.read(worker.environment) for worker in job.workers]


def cluster(*steps: float, program: Any = WORDS, **train: Any) -> dict[str, Any]:
    return {**description(list(steps)), "train": train, "program": program}


def test_user_program_on_one_worker_trains_alone_whatever_the_collective():
    (worker,) = environments(make(cluster(0.1, collective="ring")))
    assert worker.collective == "ps"


def test_user_program_runs_on_every_worker_with_its_settings_in_variables():
    content = cluster(
        *(0.1, 0.2, 0.3),
        mode="sync", elastic=True, lease=7, job="mine", log_dir="base", checkpoint_dir="kept", resume=True,
        round_timeout=50,
    )  # fmt: skip
    content["workers"][1]["straggle"] = [{"kind": "compute", "delay": "1s", "at": 2.0, "lasting": 3.0}]
    job = make(content)
    assert [worker.command for worker in job.workers] == [(sys.executable, *WORDS[1:])] * 3
    assert all(worker.is_user_program for worker in job.workers)
    assert [spec.name for spec in job.processes[:3]] == ["scheduler", "server-0", "state-server"]
    for index, environment in enumerate(environments(job)):
        assert environment.algorithm == "sync"
        assert (environment.rank, environment.device, environment.step_time) == (index, "cpu", [0.1, 0.2, 0.3][index])
        assert (environment.lease, environment.round_timeout, environment.job) == (7.0, 50.0, "mine")
        assert (environment.checkpoint_dir, environment.resume, environment.overwrite) == ("kept", True, False)
        assert environment.state_server == f"127.0.0.1:{job.processes[2].port}"
        assert environment.log_dir == f"base/train/sync/{['left', 'right', 'left'][index]}"
        assert environment.device_folder == ["cpu", "cpu", "cpu-1"][index]
    assert list(map(str, environments(job)[1].straggler_events)) == ["compute:1@2+3"]
    assert job.workers[0].environment["ESYNC_PROGRESS"] == "json"
    assert job.workers[0].environment["DMLC_NUM_WORKER"] == "3"
    assert (str(job.mode_folder), job.trained) == ("base/train/sync", "train")


def test_user_program_without_given_mode_chooses_its_own():
    content = cluster(0.1, 0.2)
    job = make(content)
    assert (environments(job)[0].algorithm, job.mode_folder.name) == (None, "program")
    assert [spec.name for spec in job.processes] == ["scheduler", "server-0", "state-server", "worker-0", "worker-1"]
    del content["state_server"]
    assert "state-server" not in [spec.name for spec in make(content).processes]
    with pytest.raises(DescriptionError, match="state_server: it is missing, and mode esync asks it"):
        make(content, mode="esync")


def test_user_program_with_one_worker_needs_no_cluster():
    content = cluster(0.1)
    del content["state_server"]
    (worker,) = make(content).processes
    assert not [name for name in worker.environment if name.startswith("DMLC_")]
    assert environments(make(content))[0].rank is None
    assert [spec.name for spec in make(content, mode="sync").processes] == ["scheduler", "server-0", "worker-0"]


def test_user_program_on_the_command_line_keeps_the_description_of_the_cluster():
    content = description([0.1, 0.2], mode="sync", round_timeout=50, learning_rate=0.1)
    job = make(content, "python", "-u", "-W", "error", "own/model.py", mode="ssp")
    assert job.workers[0].command == (sys.executable, "-u", "-W", "error", "own/model.py")
    assert job.remarks[0] == "left to the program, of the description's train: batch_size, learning_rate, network"
    assert str(job.mode_folder) == "logs/model/ssp"
    assert (environments(job)[0].round_timeout, environments(job)[0].algorithm) == (50.0, "ssp")
    assert environments(make(content, "python", "a.py"))[0].algorithm == "sync"
    content = {**cluster(0.1, 0.2, mode="sync"), "program": "python b.py"}
    assert make(content, "python", "a.py").trained == "a"
    assert environments(make(content, "python", "a.py"))[0].algorithm == "sync"


@pytest.mark.parametrize("name", ["network", "dataset", "batch_size", "local_lr", "epochs", "target_accuracy"])
def test_user_program_with_training_flag_of_launch_is_refused(tmp_path, name):
    value = {"network": "lenet", "dataset": "fashion-mnist", "batch_size": 8}.get(name, 0.5)
    flag = "--" + name.replace("_", "-")
    with pytest.raises(DescriptionError, match=f"{flag}: the program decides on it, in its arguments"):
        make(cluster(0.1, 0.2), **{name: value})
    file = write(tmp_path / "c.yaml", cluster(0.1, 0.2, mode="sync", **{name: value}))
    with pytest.raises(DescriptionError, match=rf"c\.yaml:\d+: train\.{name}: the program decides on it, in"):
        read(file)


def test_user_program_has_the_options_of_a_preset_in_its_environment(tmp_path):
    file = write(tmp_path / "c.yaml", cluster(0.1, 0.2, preset="fast") | {"program": "python a.py"})
    assert read(file).train == {"preset": "fast"}
    for job in (make(cluster(0.1, 0.2), preset="fast"), make(cluster(0.1, 0.2, preset="fast"))):
        (worker, _) = environments(job)
        assert worker.algorithm == "tiered"
        assert worker.algorithm_options == {
            "slowest_iterations": "auto", "compression": "auto", "overlap": True, "lr_scaling": "sqrt",
        }  # fmt: skip
        assert worker.weight_average == "polynomial"
        assert "left to the program, of the preset: momentum" in job.remarks
    (worker, _) = environments(make(cluster(0.1, 0.2), preset="fast", compression="4bit", lr_scaling="none"))
    assert (worker.algorithm_options["compression"], worker.algorithm_options["lr_scaling"]) == ("4bit", "none")


@pytest.mark.parametrize("preset", ["skewed-data", "skewed-data-shared"])
def test_user_program_is_told_which_normalization_a_preset_would_give_its_network(preset):
    text = "left to the program, of the preset: normalization (a network with batch norm needs group norm in its place)"
    assert text in make(cluster(0.1, 0.2), preset=preset).remarks


def test_user_program_has_the_options_of_its_mode():
    (worker, _) = environments(make(cluster(0.1, 0.2), mode="esync", compression="2bit", weight_average="polynomial"))
    assert (worker.algorithm, worker.algorithm_options) == ("esync", {"compression": "2bit"})
    assert worker.weight_average == "polynomial"
    assert environments(make(cluster(0.1, 0.2, mode="esync"), overlap=True))[0].algorithm_options == {"overlap": True}
    for mode in ("esync", "sync-switch"):  # it says itself how many samples there are
        (worker, _) = environments(make(cluster(0.1, 0.2), mode=mode, lr_decay="0.5:0.1"))
        assert worker.algorithm_options == {"lr_decay": "0.5:0.1"}
    with pytest.raises(DescriptionError, match="--compression: an option of a mode needs the mode beside it"):
        make(cluster(0.1, 0.2), compression="2bit")
    with pytest.raises(DescriptionError, match="--staleness"):
        make(cluster(0.1, 0.2), mode="esync", staleness=3)


def test_user_program_with_flag_that_launch_sets_itself_is_refused():
    with pytest.raises(DescriptionError, match="--gpu: launch chooses it by itself: the device of each worker"):
        make(cluster(0.1, 0.2), gpu=1)


def test_user_program_step_time_flag_holds_for_workers_without_their_own():
    content = cluster(0.1, 0.2)
    del content["workers"][0]["step_time"]
    assert [environment.step_time for environment in environments(make(content, step_time=0.7))] == [0.7, 0.2]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("python train.py --name 'my run'", ("python", "train.py", "--name", "my run")),
        (["./train", 3, 0.5], ("./train", "3", "0.5")),
    ],
)
def test_words_of_accepts_a_command_or_a_list_of_words(value, words):
    assert words_of(value) == words


@pytest.mark.parametrize("value", ["", "python 'train.py", [], [""], ["python", True], {"python": "train.py"}, 3])
def test_description_with_malformed_program_is_refused(tmp_path, value):
    file = write(tmp_path / "c.yaml", cluster(0.1, program=value))
    with pytest.raises(DescriptionError, match=r"c\.yaml:\d+: program: expected a command, for instance python train"):
        read(file)


@pytest.mark.parametrize(
    ("words", "script", "name"),
    [
        ("python train.py -m sync", "train.py", "train"),
        ("python3 -X dev -u ~/work/train.v2.py", "~/work/train.v2.py", "train.v2"),
        ("/usr/bin/python3.11 train.py", "train.py", "train"),
        ("python -u -m package.train --lr 1", "", "package.train"),
        ("./run.sh train.py", "", "run"),
        ("python", "", "python"),
    ],
)
def test_user_program_script_and_name_are_found_in_its_words(words, script, name):
    program = UserProgram.of(shlex.split(words))
    assert (program.script, program.name) == (script, name)


def test_user_program_python_means_that_of_the_host():
    assert UserProgram.of(["python", "a.py"]).command("/there/python") == ("/there/python", "a.py")
    assert UserProgram.of(["/usr/bin/python3", "a.py"]).command("/there/python") == ("/usr/bin/python3", "a.py")


def test_user_program_check_names_a_missing_or_different_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MissingProgramError, match=re.escape("there is no file train.py; copy it there; a relative")):
        UserProgram.of(WORDS).check()
    with pytest.raises(MissingProgramError, match=r"there is no program \./train in the PATH, and no such file"):
        UserProgram.of(["./train"]).check()
    (tmp_path / "train.py").write_text("print(1)")
    program = UserProgram.of(WORDS)
    program.check(program.digest)
    with pytest.raises(MissingProgramError, match=r"train\.py differs from the one where launch runs"):
        program.check("another")


def test_launch_arguments_after_two_dashes_are_the_program(capsys):
    options, typed = parse_arguments(
        ["c.yaml", "--dry-run", "-m", "ssp", "--", "python", "train.py", "-m", "x", "--", "y"]
    )
    assert options.program == ("python", "train.py", "-m", "x", "--", "y")
    assert (str(options.file), options.dry_run, typed) == ("c.yaml", True, {"mode": "ssp"})
    assert parse_arguments(["c.yaml"])[0].program == ()
    with pytest.raises(SystemExit):
        parse_arguments(["c.yaml", "--"])
    assert "a program should follow --, for instance -- python train.py" in capsys.readouterr().err
