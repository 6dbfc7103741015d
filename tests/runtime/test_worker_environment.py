"""What launch tells a worker's program by variables, and what the program reads."""

import dataclasses
import math
import re
from pathlib import Path

import pytest

from esync.runtime.batch_sizes import StepTime
from esync.runtime.environment import EnvironmentProblemError
from esync.runtime.straggler_injection import StragglerEvent
from esync.runtime.worker_environment import (
    HostGroupName,
    WorkerChildError,
    WorkerEnvironment,
    claim_worker,
    is_alone,
)

#: The names of all variables.
NAMES = tuple(field.metadata["name"] for field in dataclasses.fields(WorkerEnvironment))

EVERYTHING = WorkerEnvironment(
    algorithm="ssp",
    algorithm_options={"staleness": 3, "compression": "4bit"},
    weight_average="polynomial",
    rank=2,
    seed=3,
    device="gpu1",
    step_time=0.25,
    straggler_events=(StragglerEvent("network", 0.03, 60.0, 100.0), StragglerEvent("compute", 1.5, 2.0, 3.0)),
    state_server="10.1.1.34:10010",
    job="mine",
    collective="ring",
    start_timeout=12.0,
    round_timeout=34.5,
    lease=7.0,
    wait_for_replacement=0.5,
    log_dir="logs/train/esync/cloud1",
    tensorboard="events/train/esync/cloud1",
    wandb="project",
    mlflow="http://10.1.1.34:5000",
    device_folder="gpu1-2",
    checkpoint_dir="kept",
    checkpoint_every=5,
    keep_checkpoints=2,
    resume=True,
    overwrite=True,
    preemption=True,
    measure=True,
    per_host=3,
    host_group=HostGroupName("5f3a-0", (0, 2, 10)),
    step_times=(StepTime(0.1, 0.02), StepTime(1 / 3)),
)


def test_worker_environment_read_equals_what_was_written():
    variables = EVERYTHING.variables()
    assert set(variables) == set(NAMES)
    assert all(getattr(EVERYTHING, name) != getattr(WorkerEnvironment(), name) for name in vars(EVERYTHING))
    assert WorkerEnvironment.read(variables) == EVERYTHING


def test_worker_environment_home_directory_is_that_of_the_reading_machine(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    variables = WorkerEnvironment(log_dir="~/logs/train").variables()
    assert variables == {"ESYNC_LOG_DIR": "~/logs/train"}
    assert WorkerEnvironment.read(variables).log_dir == "/home/me/logs/train"


def test_folder_keeps_its_blanks_and_a_number_does_not():
    read = WorkerEnvironment.read({"ESYNC_LOG_DIR": " logs ", "ESYNC_SLOT": " 3 "})
    assert (read.log_dir, read.rank) == (" logs ", 3)


def test_process_that_a_worker_of_a_collective_has_started_is_refused():
    environment = {"PMI_PORT": "127.0.0.1:4000"}
    claim_worker(environment)
    claim_worker(environment)
    process, _, port = environment["ESYNC_WORKER_PROCESS"].partition(":")
    with pytest.raises(WorkerChildError, match=rf"process id {int(process) + 1} has started this process"):
        claim_worker({**environment, "ESYNC_WORKER_PROCESS": f"{int(process) + 1}:{port}"})


def test_worker_environment_without_variables_has_defaults():
    assert WorkerEnvironment().variables() == {}
    assert WorkerEnvironment.read({"ESYNC_STEP_TIME": " ", "ESYNC_SLOT": ""}) == WorkerEnvironment()
    assert WorkerEnvironment.read({}).lease == math.inf


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("ESYNC_DEVICE", "gpu", "cpu, gpu0, gpu1, …"),
        ("ESYNC_STEP_TIME", "0", "a number of seconds above 0"),
        ("ESYNC_STEP_TIME", "nan", "a number of seconds above 0"),
        ("ESYNC_LEASE", "inf", "a number of seconds above 0"),
        ("ESYNC_WAIT_FOR_REPLACEMENT", "-1", "a number of seconds, 0 or more"),
        ("ESYNC_CHECKPOINT_EVERY", "0", "a whole number of 1 or more"),
        ("ESYNC_SLOT", "-1", "a whole number of 0 or more"),
        ("ESYNC_RESUME", "yes", "0 or 1"),
        ("ESYNC_PER_HOST", "0", "a whole number of 1 or more"),
        ("ESYNC_HOST_GROUP", "0,1", "a name and ascending ranks, 5f3a0c:0,1,2 for instance"),
        ("ESYNC_HOST_GROUP", "5f3a:1,0", "a name and ascending ranks, 5f3a0c:0,1,2 for instance"),
        ("ESYNC_HOST_GROUP", "5f3a:1,1", "a name and ascending ranks, 5f3a0c:0,1,2 for instance"),
        ("ESYNC_STRAGGLE", "network:1@2", "events KIND:DELAY@AT+LASTING in seconds"),
        ("ESYNC_STRAGGLE", "network:1@2+1e999", "events KIND:DELAY@AT+LASTING in seconds"),
        ("ESYNC_JOB", "two words", "a name of up to 64 letters"),
        ("ESYNC_SLOT", "1" * 5000, "a whole number of 0 or more"),
    ],
)
def test_worker_environment_with_wrong_variable_names_it_and_what_was_expected(name, text, expected):
    with pytest.raises(EnvironmentProblemError, match=re.escape(f"{name} is {text!r}, but should be {expected}")):
        WorkerEnvironment.read({name: text})


@pytest.mark.parametrize(
    ("environment", "alone"),
    [
        ({}, True),
        ({"ESYNC_STATE_SERVER": "10.1.1.34:10010"}, True),
        ({"ESYNC_COLLECTIVE": "ring"}, False),
        ({"ESYNC_COLLECTIVE": "ps"}, True),
        ({"DMLC_NUM_WORKER": "3"}, False),
        ({"DMLC_PS_ROOT_URI": ""}, False),
    ],
)
def test_is_alone_is_true_only_without_any_cluster_variable(environment, alone):
    assert is_alone(environment) is alone


def test_environment_page_names_every_variable():
    page = (Path(__file__).parents[2] / "docs/reference/environment.md").read_text()
    assert [name for name in NAMES if f"`{name}`" not in page] == []
