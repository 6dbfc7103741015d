"""The processes that measure devices: the workers of launch, each of which trains alone."""

from typing import Any

import pytest

from esync.launch.commands import measuring_process
from esync.launch.description import Description
from esync.launch.hosts import locate
from esync.launch.plan import plan_measurement
from esync.launch.resources import HostResources
from esync.launch.spec import LaunchPlan
from esync.runtime.iteration_statistics import IterationStatistics

FAR = {"address": "10.0.0.2", "user": "me", "python": "/opt/python", "env": {"MINE": "1"}}


def planned(train: dict[str, Any], *program: str) -> LaunchPlan:
    description = Description.model_validate(
        {
            "hosts": {"a": {"address": "localhost"}},
            "scheduler": {"host": "a"},
            "servers": [{"host": "a"}],
            "workers": [
                {"host": "a", "device": "cpu", "step_time": 0.5},
                {
                    "host": "a",
                    "device": "gpu1",
                    "straggle": [{"kind": "compute", "delay": "1s", "at": 0, "lasting": 9}],
                },
            ],
            "train": train,
        }
    )
    return plan_measurement(description, locate(description), HostResources((), 5), {}, program)


def command(plan: LaunchPlan, number: int) -> str:
    return " ".join(plan.workers[number].command)


def test_every_worker_trains_alone_and_reports() -> None:
    """Also where the mode needs a state server, which the description does not have."""
    plan = planned({"mode": "esync", "epsilon": 0.2, "network": "lenet", "batch_size": 16})
    assert [spec.name for spec in plan.processes] == ["worker-0", "worker-1"]
    for number, device in enumerate(("cpu", "gpu1")):
        words = command(plan, number)
        assert "--mode local --network lenet --batch-size 16" in words
        assert "epsilon" not in words
        environment = plan.workers[number].environment
        assert environment["ESYNC_DEVICE"] == device
        assert environment["ESYNC_MEASURE"] == "1"
        assert environment["ESYNC_PROGRESS"] == "json"
        assert environment["OMP_NUM_THREADS"] == "2"  # as when they train together
        assert not [name for name in environment if name.startswith("DMLC_")]
    assert plan.workers[0].environment["ESYNC_STEP_TIME"] == "0.5"
    assert "ESYNC_STRAGGLE" not in plan.workers[1].environment  # whose delays are none of the device


def test_what_only_a_whole_job_has_is_left_out() -> None:
    train = {"checkpoint_dir": "/there", "resume": True, "partition": "class", "target_accuracy": 0.9, "rounds": 3}
    plan = planned({**train, "elastic": True, "lease": 9.0, "mode": "sync"})
    words = command(plan, 0)
    for flag in ("checkpoint", "resume", "partition", "target", "elastic", "lease"):
        assert f"--{flag}" not in words
        assert not [name for name in plan.workers[0].environment if flag.upper() in name]
    assert "--no-evaluation" in words


def test_program_is_told_of_no_cluster_and_no_mode() -> None:
    plan = planned({"network": "lenet", "checkpoint_dir": "/there", "mode": "sync"}, "python", "train.py", "--fast")
    first, second = plan.workers
    assert first.command[1:] == ("train.py", "--fast")
    variables = {name: value for name, value in first.environment.items() if name.startswith(("ESYNC_", "DMLC_"))}
    assert variables == {
        "ESYNC_MEASURE": "1",
        "ESYNC_PROGRESS": "json",
        "ESYNC_DEVICE": "cpu",
        "ESYNC_DEVICE_FOLDER": "cpu",
        "ESYNC_STEP_TIME": "0.5",
        "ESYNC_LOG_DIR": "logs/a",
    }
    assert second.environment["ESYNC_DEVICE"] == "gpu1"
    assert "ESYNC_STRAGGLE" not in second.environment


def test_module_runs_with_the_hosts_python_and_environment() -> None:
    description = Description.model_validate(
        {
            "hosts": {"far": FAR},
            "scheduler": {"host": "far"},
            "servers": [{"host": "far"}],
            "workers": [{"host": "far", "device": "cpu"}],
        }
    )
    spec = measuring_process("server-0", "server", locate(description)["far"], "some.module", ["--flag", "3"])
    assert spec.command == ("/opt/python", "-m", "some.module", "--flag", "3")
    assert (spec.environment["ESYNC_PROGRESS"], spec.environment["MINE"]) == ("json", "1")


def test_statistics_since_a_report_are_those_of_the_later_iterations() -> None:
    first = IterationStatistics(2, 20.0, 200.0, 16)
    later = IterationStatistics(4, 8.0, 20.0, 32)
    since = (first + later) - first
    assert since == later
    assert (since.mean, since.batch) == (2.0, 8.0)
    assert since.jitter == pytest.approx((4 / 3) ** 0.5 / 2)  # 1, 1, 3, 3
    assert IterationStatistics(1, 2.0, 4.0, 8).jitter == 0.0
