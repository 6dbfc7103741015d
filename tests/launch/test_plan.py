"""The plan of a job: from a description to commands."""

import enum
import itertools
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import pytest
from launching import description, write
from pydantic import BeforeValidator

from esync import arguments
from esync.algorithms import ALGORITHMS, SSGD, option, register
from esync.launch import flags, ssh
from esync.launch.description import Description, DescriptionError, read
from esync.launch.hosts import locate
from esync.launch.plan import mode_folder, plan
from esync.launch.resources import HostResources
from esync.launch.services import ports_needed
from esync.launch.spec import LaunchPlan, ProcessSpec
from esync.reports.modes import FOLDERS


def make(
    content: dict[str, Any],
    cores: int | None = None,
    resources: dict[str, HostResources] | None = None,
    program: Sequence[str] = (),
    here: str = "localhost",
    **typed: Any,
) -> LaunchPlan:
    """Plan it with the ports 1001, 1002, …; only one address is this machine's."""
    described = Description.model_validate(content)
    hosts = locate(described, is_here=lambda address: address == here)
    ports = itertools.islice(itertools.count(1001), ports_needed(described))
    return plan(described, hosts, typed, HostResources(ports, cores), resources, program)


def options_of(spec: ProcessSpec) -> Any:
    """What a worker makes of its command line and its environment."""
    assert spec.command[1:3] == ("-m", "esync.worker")
    return arguments.read("worker", "", spec.command[3:], environment=spec.environment)


def test_plan_with_collective_has_a_process_manager_instead_of_servers():
    content = description([0.1, 0.2], rounds=7, collective="ring", local_iterations=2)
    job = make({**content, "spare_hosts": ["127.0.0.1"]})
    manager, *workers = job.processes
    assert manager.name == "process-manager"
    assert manager.command[1:5] == ("-m", "esync.exchange.collectives.process_manager", "--ranks", "2")
    assert [worker.environment["PMI_ID"] for worker in workers] == ["0", "1"]
    for worker in workers:
        assert worker.environment["PMI_PORT"] == f"127.0.0.1:{manager.port}"
        assert worker.environment["DMLC_NUM_WORKER"] == "2"
        assert "DMLC_ROLE" not in worker.environment
        assert options_of(worker).collective == "ring"
    assert job.spares == {}
    assert job.remarks == (
        "no parameter servers: the workers exchange by ring",
        "spare hosts are not used: without parameter servers nobody can take a worker's place",
    )


def test_plan_of_esync_job_contains_every_process_with_its_settings():
    content = description([0.1, 0.2, 0.3], local_lr=0.5, rounds=7)
    content["servers"].append({"host": "right", "device": "gpu1"})
    job = make(content)
    assert [spec.name for spec in job.processes] == [
        "scheduler", "server-0", "server-1", "state-server", "worker-0", "worker-1", "worker-2",
    ]  # fmt: skip
    scheduler, server, second, state_server, *workers = job.processes
    assert job.workers == workers
    for spec in (scheduler, server, second, *workers):
        environment = spec.environment
        assert environment["DMLC_ROLE"] == spec.role
        assert environment["DMLC_PS_ROOT_URI"] == environment["DMLC_NODE_HOST"] == "127.0.0.1"
        assert environment["DMLC_PS_ROOT_PORT"] == scheduler.environment["DMLC_PS_ROOT_PORT"]
        assert (environment["DMLC_NUM_SERVER"], environment["DMLC_NUM_WORKER"]) == ("2", "3")
    assert server.command[1:] == second.command[1:] == ("-m", "esync.server")
    assert [spec.environment["ESYNC_DEVICE"] for spec in (server, second)] == ["cpu", "gpu1"]
    assert (state_server.endless, state_server.ready) == (True, "listening on ")
    options = [options_of(worker) for worker in workers]
    assert [option.step_time for option in options] == [0.1, 0.2, 0.3]
    assert {(option.mode, option.local_lr, option.rounds, option.cpu) for option in options} == {("esync", 0.5, 7, 1)}
    (address,) = {worker.environment["ESYNC_STATE_SERVER"] for worker in workers}
    assert address == f"127.0.0.1:{state_server.port}"
    assert state_server.command[-4:] == ("--host", "127.0.0.1", "--port", str(state_server.port))
    assert all(worker.environment["ESYNC_PROGRESS"] == "json" for worker in workers)


@pytest.mark.parametrize(
    ("settings", "folder"),
    [
        ({"mode": "esync"}, "esync"),
        ({"mode": "async", "use_dcasgd": 1}, "dcasgd"),
        ({"mode": "local", "partition": "class"}, "local"),
        ({"mode": "esync", "partition": "class"}, "esync-niid"),
        ({"mode": "async", "partition": "dirichlet:0.3"}, "async-niid"),
        ({"mode": "async", "use_dcasgd": 1, "split_by_class": 1}, "dcasgd-niid"),
    ],
)
def test_mode_folder_is_that_of_the_log_tools(settings, folder):
    assert mode_folder(flags.parse(flags.to_arguments(settings))).name == folder
    assert folder in FOLDERS


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@pytest.fixture
def own_mode():
    """A mode "own" whose options have unusual types."""
    before = dict(ALGORITHMS)

    @register("own")
    class Own(SSGD):
        class Options(SSGD.Options):
            nesterov: bool = option(True)
            maybe: bool | None = option(None)
            shift: float = option(0.0)
            text: str = option("")
            colour: Colour = option(Colour.RED)
            percent: Annotated[float, BeforeValidator(lambda value: float(value) / 100)] = option(0.0)

    yield Own
    ALGORITHMS.clear()
    ALGORITHMS.update(before)


@pytest.mark.usefixtures("own_mode")
@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("nesterov", True, True),
        ("nesterov", False, False),
        ("maybe", True, True),
        ("maybe", False, False),
        ("shift", -0.00001, -0.00001),  # as a word of its own argparse takes -1e-05 for a flag
        ("text", "-x", "-x"),
        ("text", "", ""),
        ("colour", "blue", Colour.BLUE),
    ],
)
def test_plan_passes_algorithm_options_of_the_description_to_workers(name, value, expected):
    (worker,) = make(description([0.1], mode="own", **{name: value})).workers
    assert getattr(arguments.choose_algorithm(options_of(worker)).options, name) == expected


@pytest.mark.usefixtures("own_mode")
def test_plan_with_option_value_that_a_worker_would_misread_is_refused():
    with pytest.raises(DescriptionError, match=r"told '0.3', and would understand 0\.003 instead"):
        make(description([0.1], mode="own", percent=30))


def test_plan_with_published_use_dcasgd_flag_runs_in_mode_dcasgd():
    content = description([0.1], mode="async", use_dcasgd=0)
    assert options_of(make(content, mode="dcasgd").workers[0]).algorithm.name == "dcasgd"
    assert options_of(make(content).workers[0]).algorithm.name == "async"
    with pytest.raises(DescriptionError, match="--use-dcasgd 0 asks to do without"):
        make(content, mode="dcasgd", use_dcasgd=0)


def test_plan_ports_keep_the_order_of_the_description():
    processes = make(description([0.1] * 12)).processes
    ports = [int(spec.environment["PORT"]) for spec in processes if spec.role in ("server", "worker")]
    assert len(ports) == 13
    assert ports == sorted(set(ports))
    assert int(processes[0].environment["DMLC_PS_ROOT_PORT"]) not in ports
    assert processes[2].port not in ports


def test_plan_uses_ports_of_the_description():
    content = description([0.1])
    content["scheduler"]["port"], content["state_server"]["port"] = 9091, 10010
    job = make(content)
    assert job.processes[0].environment["DMLC_PS_ROOT_PORT"] == "9091"
    assert job.workers[0].environment["ESYNC_STATE_SERVER"] == "127.0.0.1:10010"


def test_plan_shares_cores_among_the_workers_of_this_machine():
    content = description([0.1] * 3)
    for worker in content["workers"][1:]:
        del worker["threads"]
    content["workers"][0]["threads"] = 7
    threads = [
        spec.environment.get("OMP_NUM_THREADS") for spec in make(content, cores=9).workers
    ]  # one is left to the evaluation
    assert threads == ["7", "2", "2"]
    assert make(content, cores=7).workers[1].environment["OMP_NUM_THREADS"] == "2"
    assert make(content, cores=2).workers[1].environment["OMP_NUM_THREADS"] == "1"
    assert "OMP_NUM_THREADS" not in make(content).workers[1].environment


SEVERAL_MODES = {
    "local_lr": 0.1,
    "learning_rate": 0.2,
    "global_lr": 0.9,
    "epsilon": 0.05,
    "use_dcasgd": 1,
    "dcasgd_lambda": 0.3,
    "split_by_class": 1,
    "target_accuracy": 0.8,
}


def test_plan_with_shares_by_speed_gives_the_workers_the_weights():
    job = make(description([0.1, 0.4], rounds=7), partition="class:speed")
    assert [options_of(worker).partition for worker in job.workers] == ["class:4,1"] * 2
    content = description([0.1, 0.4], partition="speed")
    del content["workers"][1]["step_time"]
    with pytest.raises(DescriptionError, match=r"workers\[1\].*: --partition speed needs the seconds"):
        make(content)


def test_rate_that_the_mode_does_not_use_is_named():
    content = description([0.1] * 2, mode="esync", local_lr=0.0005)
    content["train"].pop("learning_rate", None)
    message = "mode sync does not use the description's local_lr: learning_rate is 0.001"
    assert message in make(content, mode="sync").remarks
    assert not [remark for remark in make(content).remarks if "local_lr" in remark]
    assert message not in make(content, mode="sync", learning_rate=0.002).remarks


def test_description_with_a_preset_and_another_mode_is_refused(tmp_path):
    path = write(tmp_path / "c.yaml", description([0.1] * 2, preset="fast", mode="sync"))
    with pytest.raises(DescriptionError, match=r"train\.mode: preset fast is of mode tiered; leave one of the two out"):
        read(path)


@pytest.mark.parametrize("typed", [{"mode": "esync"}, {"mode": "sync"}, {"mode": "local"}])
def test_plan_with_a_preset_of_the_description_and_another_mode_leaves_its_flags_out(typed):
    job = make(description([0.1] * 2, preset="fast", learning_rate=0.1, rounds=2), **typed)
    options = options_of(job.workers[0])  # which refuses flags that make no sense in its mode
    assert (options.mode, options.preset) == (typed["mode"], None)
    assert f"mode {typed['mode']} leaves out the description's preset fast with all of its flags" in job.remarks


@pytest.mark.parametrize(
    ("typed", "expected", "names"),
    [
        ({}, {"mode": "esync", "local_lr": 0.1, "epsilon": 0.05, "partition": "class"}, 7),
        ({"mode": "sync"}, {"learning_rate": 0.2, "target_accuracy": 0.8}, 6),
        ({"mode": "async"}, {"learning_rate": 0.2, "use_dcasgd": 1, "dcasgd_lambda": 0.3}, 6),
        ({"mode": "async", "use_dcasgd": 0}, {"use_dcasgd": 0}, 6),
        ({"mode": "local"}, {"learning_rate": 0.2}, 1),
        ({"local_iterations": 3}, {"local_iterations": 3}, 6),  # replaces epsilon, and nobody asks a state server
        ({"partition": "uniform"}, {"partition": "uniform", "split_by_class": 0}, 7),
        ({"no_evaluation": True}, {"no_evaluation": True, "target_accuracy": None}, 7),
        ({"local_lr": 0.7, "network": "alexnet"}, {"local_lr": 0.7, "network": "alexnet"}, 7),
    ],
)
def test_plan_with_typed_flags_overrides_description_and_drops_other_modes(typed, expected, names):
    job = make(description([0.1] * 4, **SEVERAL_MODES), **typed)
    assert len(job.processes) == names
    options = vars(options_of(job.workers[0]))  # which refuses flags that make no sense in its mode
    assert {name: options[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("changes", "typed", "message"),
    [
        ({}, {"mode": "sync", "local_lr": 0.1}, "--local-lr makes no sense with --mode sync"),
        ({}, {"gpu": 0}, "--gpu: launch chooses it by itself: the device of each worker says it"),
        (
            {},
            {"dcasgd_lambda": 0.1, "mode": "async"},
            "--dcasgd-lambda makes no sense with --mode async; it is for dcasgd ",
        ),
        ({"state_server": None}, {}, "state_server: it is missing, and mode esync asks it"),
        ({}, {"partition": "class:4,4,1"}, "train: partition class:4,4,1 has weights for 3 workers, but there are 1"),
        (
            {"scheduler": {"host": "far"}},
            {},
            r"hosts\.left\.address: localhost \(127\.0\.0\.1\) is reached from the machine itself only, but far takes",
        ),
        (
            {"hosts": {"left": {"address": "2001:db8::7"}}},
            {},
            r"hosts\.left\.address: 2001:db8::7 is an address of IPv6, but MXNet needs one of IPv4",
        ),
        (
            {"hosts": {"left": {"address": "localhost", "workdir": "/x"}}},
            {},
            r"hosts\.left\.workdir: left is this machine",
        ),
        (
            {},
            {"mode": "tiered", "leave_out": "9"},
            "^--leave-out: rank 9 cannot be left out: this job has the ranks 0 to 0, ",
        ),
        (
            {"train": {"mode": "tiered", "tiers": "0,0,1"}},
            {},
            "^train: --tiers: tiers of 3 ranks were given, but there are",
        ),
    ],
)
def test_plan_with_contradictory_settings_is_refused(changes, typed, message):
    with pytest.raises(DescriptionError, match=message):
        make({**description([0.1]), **changes}, **typed)


def test_plan_of_local_mode_has_one_worker_and_nothing_else():
    job = make(description([0.3, 0.1]), mode="local")
    (worker,) = job.processes
    assert options_of(worker).step_time == 0.3
    assert not [name for name in worker.environment if name.startswith("DMLC_")]
    assert job.remarks == ("mode local trains on one device: the first worker of the description",)


def several_machines() -> dict[str, Any]:
    content = description([0.1, 0.1, 0.1])
    content["hosts"] = {
        "left": {"address": "10.0.0.5", "python": ".venv/bin/python", "env": {"OMP_PROC_BIND": 1, "PS_VERBOSE": "2"}},
        "right": {"address": "10.0.0.6", "user": "me", "port": 2222, "key": "~/key", "workdir": "~/esync", "env": {}},
    }
    return content


def test_plan_of_dry_run_on_several_machines_asks_no_host():
    scheduler, _, state_server, far, other, _ = make(several_machines(), cores=2).processes
    assert {far.environment["DMLC_PS_ROOT_URI"], other.environment["DMLC_PS_ROOT_URI"]} == {"10.0.0.5"}
    assert (scheduler.environment["DMLC_NODE_HOST"], other.environment["DMLC_NODE_HOST"]) == ("10.0.0.5", "10.0.0.6")
    assert scheduler.environment["DMLC_PS_ROOT_PORT"] == "9091"
    assert state_server.command[-3:] == ("0.0.0.0", "--port", "10010")
    assert "--insecure" not in state_server.command
    assert far.environment["ESYNC_STATE_SERVER"] == "10.0.0.5:10010"
    assert (far.command[0], other.command[0]) == (".venv/bin/python", "python3")
    assert "PORT" not in far.environment
    assert far.environment["PS_VERBOSE"] == scheduler.environment["PS_VERBOSE"] == "2"
    assert "PS_VERBOSE" not in other.environment


def test_plan_on_several_machines_uses_the_hosts_ports_and_cores():
    resources = {"left": HostResources([2001, 2002, 2003, 2004, 2005], 9), "right": HostResources([3001, 3002], 5)}
    content = several_machines()
    for worker in content["workers"]:
        del worker["threads"]
    scheduler, server, state_server, *workers = make(content, resources=resources).processes
    assert scheduler.environment["DMLC_PS_ROOT_PORT"] == "2001"
    assert server.environment["PORT"] == "2002"
    assert state_server.command[-1] == "2003"
    assert [worker.environment["PORT"] for worker in workers] == ["2004", "3001", "2005"]
    assert [worker.environment["OMP_NUM_THREADS"] for worker in workers] == ["4", "4", "4"]  # left has two of them


def test_plan_with_spare_hosts_prepares_the_workers_of_one_host_each():
    content = several_machines()
    del content["workers"][1]["threads"]
    content["hosts"]["spare"] = {"address": "10.0.0.7", "python": "python3.11"}
    content["spare_hosts"] = ["spare"]
    resources = {
        "left": HostResources([], 9),
        "right": HostResources([], 5),
        "spare": HostResources([4001, 4002, 4003], 9),
    }
    job = make(content, resources=resources)
    moved = job.spares["spare"]
    assert list(moved) == ["worker-0", "worker-2", "worker-1"]
    assert {(spec.name, spec.where) for spec in moved.values()} == {
        ("worker-0", "spare/cpu"),
        ("worker-2", "spare/cpu-1"),  # left has both of them
        ("worker-1", "spare/cpu"),
    }
    other = moved["worker-1"]
    assert other.command[0] == "python3.11"
    assert options_of(other).log_dir == "logs/lenet/esync/spare"
    assert other.environment["DMLC_NODE_HOST"] == "10.0.0.7"
    assert other.environment["OMP_NUM_THREADS"] == "8"
    assert [host.name for host in job.hosts] == ["left", "right", "spare"]
    assert [host.name for host in job.log_hosts] == ["left", "right", "spare"]
    assert "spare hosts, for the workers of hosts that do not answer: spare" in job.remarks


def per_host(hosts: list[str], **train: Any) -> dict[str, Any]:
    return {**description([0.1] * 4, hosts, **train), "per_host": True}


def groups_of(specs: list[ProcessSpec]) -> list[tuple[str | None, str | None]]:
    return [(spec.environment.get("ESYNC_PER_HOST"), spec.environment.get("ESYNC_HOST_GROUP")) for spec in specs]


def test_plan_per_host_tells_workers_who_shares_their_host():
    job = make(per_host(["left", "right", "left"], mode="sync"))
    assert groups_of(job.workers) == [("3", "job-0:0,2,3"), ("3", None), ("3", "job-0:0,2,3"), ("3", "job-0:0,2,3")]
    assert "the workers of a host exchange as one: 2 instead of 4 in a round" in job.remarks
    assert groups_of(make({**per_host(["left"]), "per_host": False}).workers) == [(None, None)] * 4


def test_plan_with_a_preset_and_a_collective_has_no_exchanges_per_host():
    train = {"preset": "skewed-data", "network": "resnet18-v1", "collective": "ring", "compression": "none"}
    content = description([0.1] * 4, ["left", "right"], **train)
    assert groups_of(make(content).workers) == [(None, None)] * 4


def test_plan_per_host_with_one_worker_on_each_changes_nothing():
    content = description([0.1] * 2, mode="sync")
    flat, job = make(content), make({**content, "per_host": True})
    assert job.processes == flat.processes
    assert job.remarks == (*flat.remarks, "per_host changes nothing: no host has two workers")


def test_plan_per_host_workers_on_spare_hosts_exchange_by_themselves():
    content = {**several_machines(), "spare_hosts": ["spare"], "per_host": True}
    content["hosts"]["spare"] = {"address": "10.0.0.7"}
    job = make(content)
    assert groups_of(job.workers) == [("2", "job-0:0,2"), ("2", None), ("2", "job-0:0,2")]
    assert groups_of(list(job.spares["spare"].values())) == [("2", None)] * 3


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ({"mode": "async"}, "mode async uses what each worker sends at once, .* mode with rounds: .*esync"),
        ({"mode": "async", "use_dcasgd": 1}, "mode dcasgd uses"),
        ({"mode": "local"}, "mode local exchanges nothing; leave per_host out"),
        ({"mode": "sync", "collective": "ring"}, "with the collective ring every worker .*; choose ps, or leave"),
    ],
)
def test_plan_per_host_with_what_has_no_rounds_is_refused_by_name(train, message):
    with pytest.raises(DescriptionError, match=f"per_host: {message}"):
        make(per_host(["left"], **train))


def test_plan_with_tilde_paths_leaves_them_to_each_host(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    content = several_machines()
    content["hosts"]["left"] |= {"python": "~/my venv/bin/python"}
    content["hosts"]["here"] = {"address": "10.0.0.7", "python": "~/venv/bin/python"}
    content["workers"][2]["host"] = "here"
    job = make(content, here="10.0.0.7", log_dir="~/logs")
    far, _, near = job.workers
    assert near.command[0] == str(tmp_path / "venv/bin/python")
    assert far.command[0] == "~/my venv/bin/python"
    assert "~/'my venv/bin/python' -m esync.worker" in shlex.split(far.shell)[-1].replace("'\"'\"'", "'")
    assert far.environment["ESYNC_LOG_DIR"] == "~/logs/lenet/esync/left"
    assert job.folder_here == tmp_path / "logs/lenet/esync"


def test_plan_with_network_interface_sets_no_node_host():
    content = several_machines()
    content["hosts"]["right"]["env"] = {"DMLC_INTERFACE": "eth1"}
    worker = make(content).workers[1]
    assert worker.environment["DMLC_INTERFACE"] == "eth1"
    assert "DMLC_NODE_HOST" not in worker.environment


def test_plan_command_can_be_pasted_into_a_shell():
    worker = make(description([0.1]), log_dir="my logs").workers[0]
    assert " ESYNC_LOG_DIR='my logs/lenet/esync/left' " in worker.shell
    assert worker.shell.startswith("DMLC_PS_ROOT_URI=127.0.0.1 ")


def test_plan_ssh_command_suits_any_login_shell():
    host = make(several_machines()).workers[1].host
    *_, address, line = ssh.start_module(host, "esync.launch.remote_agent")
    assert address == "me@10.0.0.6"
    assert line.startswith("exec sh -c ")
    assert not set(line) & {"\n", "!"}


def test_plan_ssh_command_can_be_pasted_into_a_shell():
    content = several_machines()
    content["hosts"]["right"]["ssh_options"] = ["-o", "UserKnownHostsFile=my hosts"]
    content["hosts"]["right"]["env"] = {"ESYNC_TOKEN": "very secret"}
    words = shlex.split(make(content, log_dir="my logs").workers[1].shell)
    assert words[:3] == ["ssh", "-t", "-p"]
    assert words[words.index("-i") + 1] == str(Path.home() / "key")
    assert words[words.index("IdentitiesOnly=yes") + 1 :][:2] == ["-o", "UserKnownHostsFile=my hosts"]
    assert words[-2] == "me@10.0.0.6"
    assert "very secret" not in words[-1]
    _, shell, flag, line = shlex.split(words[-1])  # as the login shell there takes it apart
    assert (shell, flag) == ("sh", "-c")
    inner = shlex.split(line)
    assert inner[:4] == ["cd", "--", "esync", "&&"]
    assert "ESYNC_LOG_DIR=my logs/lenet/esync/right" in inner
    assert "DMLC_NODE_HOST=10.0.0.6" in inner


def test_a_run_with_a_name_has_a_folder_of_its_own():
    job = make(description([0.1, 0.2], partition="class", name="base"), log_dir="base")
    assert job.mode_folder == Path("base/lenet/esync-niid@base")
    assert [options_of(worker).log_dir for worker in job.workers] == [
        f"{job.mode_folder}/{n}" for n in ("left", "right")
    ]
    assert all(options_of(worker).name is None for worker in job.workers)  # the folder has it: not twice


def test_event_files_are_below_their_folder_as_the_logs_are():
    job = make(description([0.1, 0.2], name="base", tensorboard="events"), log_dir="base")
    assert [options_of(worker).tensorboard for worker in job.workers] == [
        f"events/lenet/esync@base/{name}" for name in ("left", "right")
    ]
    assert options_of(make(description([0.1])).workers[0]).tensorboard is None
