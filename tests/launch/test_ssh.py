"""Whole jobs over ssh, with a real sshd and two hosts with folders of their own."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import launching
import pytest
from launching import Start, write
from sshd import ADDRESSES, Sshd, make_key
from test_launched_jobs import rounds, run
from test_supervisor import ends, impatient, spec, supervise  # noqa: F401

from esync.launch import ssh
from esync.launch.agent_pool import AgentPool, RemoteHostError
from esync.launch.commands import COMMON
from esync.launch.hosts import Host, HostEntry
from esync.launch.ssh import pasteable
from tests.support.json_files import read_json

pytestmark = pytest.mark.timeout(400)
#: Seconds for what takes ten on a machine with nothing else to do.
LONG = 180

TOKEN = "a-secret-that-nobody-may-see"


def description(sshd: Sshd, steps: list[float], **train: Any) -> dict[str, Any]:
    """Return a description with both hosts over ssh.

    The scheduler and the server are on the left one, the state server on the right one.
    """
    content = launching.description(steps, **train)
    content["hosts"] = {name: sshd.entry(name) for name in ADDRESSES}
    content["state_server"] = {"host": "right"}
    return content


def trained(base: Path) -> Callable[[], bool]:
    """Whether both hosts have finished a round, seen on their own disks."""
    return lambda: all(any(base.glob(f"{name}/logs/*/*/{name}/cpu/iter-*.txt")) for name in ADDRESSES)


@pytest.fixture
def machines(sshd: Sshd):
    """The hosts' folders, emptied."""
    base = sshd.workdir("left").parent
    subprocess.run(["rm", "-rf", str(base)], check=True)
    for name in ADDRESSES:
        sshd.workdir(name)
    return base


def test_launch_over_ssh_runs_a_whole_job_and_gathers_the_logs(tmp_path, data_dir, sshd, machines, launch: Start):
    content = description(sshd, [0.05, 0.11], local_lr=0.01, rounds=4, data_dir=str(data_dir), no_evaluation=True)
    content["hosts"]["right"]["env"] = {"GREETING": "it's me; $HOME"}
    content["scheduler"]["port"] = 0
    for name in ("left/cpu", "right/gpu7"):  # of an earlier run, there
        earlier = machines / name.partition("/")[0] / "logs/lenet/esync" / name
        earlier.mkdir(parents=True)
        (earlier / "iter-99.txt").write_text("{}")
    job = launch(content, "--json", "job.json", "--follow", ESYNC_TOKEN=TOKEN)

    job.until(trained(machines), LONG)
    workers = job.workers()
    assert len(workers) == 2
    assert TOKEN not in " ".join(_command_lines())
    environments = [Path(f"/proc/{number}/environ").read_text().split("\0") for number in workers]
    assert all(f"ESYNC_TOKEN={TOKEN}" in environment for environment in environments)
    assert sum("GREETING=it's me; $HOME" in environment for environment in environments) == 1
    assert all("DMLC_PS_ROOT_URI=127.0.0.2" in environment for environment in environments)
    assert sum("DMLC_NODE_HOST=127.0.0.3" in environment for environment in environments) == 1

    job.finish()
    report = read_json(tmp_path / "job.json")
    names = {"scheduler", "server-0", "worker-0", "worker-1"}
    assert report["exit_codes"] == dict.fromkeys(names, 0)
    assert report["figures"]["rounds"] == 4
    folder = tmp_path / "logs/lenet/esync"
    devices = ("left/cpu", "right/cpu")
    for device in devices:
        assert rounds(folder / device) == [1, 2, 3, 4]
        remote = machines / device.partition("/")[0] / "logs/lenet/esync" / device
        for path in remote.glob("[!.]*.*"):
            assert (folder / device / path.name).read_text() == path.read_text()
    runs = [read_json(folder / device / "run.json") for device in devices]
    assert sorted(run["rank"] for run in runs) == [0, 1]
    assert not (folder / "right/gpu7").exists()
    assert [path for path in folder.rglob("*") if ".copy-" in path.name] == []
    assert TOKEN not in (folder / "processes/worker-0.log").read_text()
    assert re.search(r"^scheduler \| .*everyone is here$", job.output, re.MULTILINE)
    assert "everyone is here" in (folder / "processes/scheduler.log").read_text()


def _command_lines() -> list[str]:
    """Those of all of this machine's processes that can still be read."""
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            lines.append(file.read_text(errors="replace"))
    return lines


def endless(sshd: Sshd, data_dir: Path) -> dict[str, Any]:
    """A job of both hosts that only somebody else ends."""
    train = {"mode": "sync", "learning_rate": 0.001, "max_time": 300, "no_evaluation": True}
    return description(sshd, [0.1, 0.1], data_dir=str(data_dir), **train)


def test_launch_over_ssh_that_is_killed_leaves_no_process(tmp_path, data_dir, sshd, machines, launch: Start):
    """A second launcher is also kept from writing to the same folders."""
    file = write(tmp_path / "cluster.yaml", endless(sshd, data_dir))
    job = launch(file)
    job.until(trained(machines), LONG)
    busy = run(machines, str(file))  # from another folder here
    assert busy.returncode == 1
    for name in ADDRESSES:
        assert f"host {name}: another job writes its logs to logs/lenet/sync/{name}; wait for its end" in busy.stderr
    job.process.kill()
    assert job.gone_within(20) == {}


def test_launch_over_ssh_with_broken_connection_replaces_the_worker(tmp_path, data_dir, sshd, machines, launch: Start):
    """The remote sshd process is killed; its worker ends and is replaced over a new connection."""
    content = endless(sshd, data_dir)
    content["hosts"]["mine"] = {"address": "127.0.0.1"}
    content["scheduler"], content["servers"] = {"host": "mine"}, [{"host": "mine"}]
    job = launch(content, "--rounds", "60", "--json", "job.json")
    job.until(trained(machines), LONG)
    os.kill(parent(parent(job.worker(1))), signal.SIGKILL)  # sshd ← esync.launch.process_shim ← the worker
    job.finish()
    (replacement,) = read_json(tmp_path / "job.json")["replacements"]
    assert replacement["name"] == "worker-1"
    assert replacement["how"] == "has lost its connection to 127.0.0.3 (ssh ended with exit code 255)"
    numbers = rounds(tmp_path / "logs/lenet/sync/right/cpu")  # of both, in one folder
    assert len(numbers) >= 59
    assert (numbers[0], numbers[-1]) == (1, 60)
    assert not (tmp_path / "logs/lenet/sync/right/cpu-1").exists()


def parent(number: int) -> int:
    return int(Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[1])


def far(sshd: Sshd, name: str = "left") -> Host:
    return Host(name, ADDRESSES[name], False, ADDRESSES[name], HostEntry(**sshd.entry(name)))


@pytest.mark.parametrize(
    ("program", "how", "last"),
    [
        ("import sys; print('a'); sys.exit('the loss is NaN')", "ended with exit code 1", "the loss is NaN"),
        (
            "import os; print('no newline', end='', flush=True); os.kill(os.getpid(), 9)",
            "was ended by SIGKILL (by somebody, or by the kernel for want of memory)",
            "no newline",
        ),
    ],
)
def test_launch_over_ssh_reports_how_a_remote_process_ended(tmp_path, sshd, machines, program, how, last):
    """A child in a process group of its own that ignores SIGTERM is ended, too."""
    deaf = f"""
        import os, signal, subprocess, sys, time
        program = "import os, signal, sys, time; signal.signal(15, signal.SIG_IGN); " \\
                  "open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(60)"
        subprocess.Popen([sys.executable, "-c", program, {str(tmp_path / "child")!r}], start_new_session=True)
        signal.signal(15, signal.SIG_IGN)
        while not os.path.exists({str(tmp_path / "child")!r}):
            time.sleep(0.05)
        print("deaf", flush=True)
        time.sleep(60)
    """
    outcome, view = supervise(
        tmp_path,
        replace(spec("worker-0", deaf, ready="deaf"), host=far(sshd)),
        replace(spec("worker-1", program, device="gpu0", environment=COMMON), host=far(sshd, "right")),
        start_timeout=60,
    )
    (failure,) = outcome.failures
    assert (failure.name, failure.where, failure.how) == ("worker-1", "right/gpu0", how)
    assert failure.last_lines[-1] == last
    assert view.states == {"worker-0": "ended", "worker-1": "failed"}
    assert ends(tmp_path / "child")
    assert (tmp_path / "worker-1.log").read_text().startswith("$ ssh -t ")


def test_launch_over_ssh_reports_the_obstacles_of_all_hosts_at_once(tmp_path, data_dir, sshd, machines):
    """Every host has a mistake of its own; nothing is started or written."""
    stranger = make_key(tmp_path / "stranger")
    old, bare = tmp_path / "old-python", tmp_path / "bare-python"
    old.write_text("#!/bin/sh\necho 3.8; exit 123\n")
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    for program in (old, bare):
        program.chmod(0o755)
    changed = tmp_path / "changed"
    changed.write_text(f"[127.0.0.2]:{sshd.port} {stranger.with_suffix('.pub').read_text()}")
    other = tmp_path / "other"
    (other / "esync").mkdir(parents=True)
    (other / "esync/__init__.py").write_text("__version__ = '9.9'\n")
    with socket.socket() as closed, socket.socket() as taken:
        closed.bind(("127.0.0.2", 0))
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        hosts = {
            "wrongkey": sshd.entry("left", key=str(stranger)),
            "unknownhost": sshd.entry("left", ssh_options=["-F", "none", "-o", "UserKnownHostsFile=/dev/null"]),
            "changedhost": sshd.entry("left", ssh_options=["-F", "none", "-o", f"UserKnownHostsFile={changed}"]),
            "portclosed": sshd.entry("left", port=closed.getsockname()[1]),
            "nopython": sshd.entry("left", python="python9"),
            "oldpython": sshd.entry("left", python=str(old)),
            "noworkdir": sshd.entry("left", workdir="/no/such folder"),
            "nopackage": sshd.entry("left", python=str(bare)),
            "otherversion": sshd.entry("left", env={"PYTHONPATH": str(other)}),
            "busyport": sshd.entry("left"),
            "nodata": sshd.entry("left"),
        }
        content = {
            "hosts": hosts,
            "scheduler": {"host": "busyport", "port": port},
            "servers": [{"host": "busyport"}],
            "workers": [{"host": name, "device": "cpu"} for name in hosts if name != "busyport"],
            "train": {"network": "lenet", "mode": "sync", "data_dir": "no-data"},
        }
        done = run(tmp_path, str(write(tmp_path / "cluster.yaml", content)))
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    lines = done.stderr.removeprefix("launch: error: ").splitlines()
    obstacles = {re.match(r"host (\w+): ", line)[1]: line for line in lines}
    expected = {
        "wrongkey": "the login was refused; name the right user and key under hosts.wrongkey",
        "unknownhost": "its host key is not known here; compare and accept it once with: ssh ",
        "changedhost": "its host key differs from the one in known_hosts; if the machine was set up anew, remove",
        "portclosed": "nobody listens there for ssh; check that sshd runs, and hosts.portclosed.port",
        "nopython": "there is no python9; name the right one with hosts.nopython.python",
        "oldpython": f"{old} there is version 3.8, but 3.10 to 3.13 is needed; name another one with hosts.oldpython",
        "noworkdir": "there is no folder /no/such folder that it could enter; make it, or correct hosts.noworkdir",
        "nopackage": f"{bare} there cannot import esync (No module named 'esync'); install this package for it",
        "otherversion": "there has esync 9.9, but here it is ",
        "busyport": f"scheduler.port {port}: it is in use; choose another one",
        "nodata": "no-data/fashion-mnist: no such folder; expected the files of fashion-mnist",
    }
    for name, text in expected.items():
        assert text in obstacles[name], obstacles[name]
    assert set(obstacles) == set(expected)
    assert not (tmp_path / "logs").exists()
    assert not (machines / "left/logs").exists()


def test_launch_over_ssh_with_silent_host_gives_up(tmp_path, monkeypatch):
    """As behind a firewall that drops packets; the launcher says what it waits for before it gives
    up.
    """
    from esync import config

    monkeypatch.setattr(config, "ANNOUNCE_AFTER", 0.5)
    monkeypatch.setitem(ssh.OPTIONS, "ConnectTimeout", "30")
    messages: list[str] = []
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        entry = HostEntry(port=mute.getsockname()[1], ssh_options=["-F", "none"])
        with (
            AgentPool([Host("far", "127.0.0.1", False, "127.0.0.1", entry)], messages.append) as agents,
            pytest.raises(RemoteHostError, match=r"host far: 127\.0\.0\.1 has not answered for 2 s; check its address"),
        ):
            agents.ask({"far": {"do": "check"}}, 2)
    assert messages
    assert messages[0].startswith("waiting for far (127.0.0.1) for ")


def test_launch_over_ssh_dry_run_prints_commands_that_can_be_pasted(tmp_path, sshd, machines):
    """A shell on this machine runs them; no host is contacted before."""
    file = write(tmp_path / "cluster.yaml", description(sshd, [0.1], rounds=3))
    done = run(tmp_path, str(file), "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "--insecure" not in done.stdout
    assert done.stdout.startswith("# Set ESYNC_TOKEN first, ")
    assert "-o SendEnv=ESYNC_TOKEN" in done.stdout  # ssh does not pass the variable on by itself
    commands = [line for line in done.stdout.splitlines() if not line.startswith("#") and line]
    assert len(commands) == 4
    assert all(line.startswith("ssh -t ") for line in commands)
    host = Host("right", "127.0.0.3", False, "127.0.0.3", HostEntry(**sshd.entry("right", env={"A": "it's $HOME"})))
    line = pasteable(host, host.entry.env, [sys.executable, "-c", 'import os; print(os.getcwd(), os.environ["A"])'])
    shown = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert shown.stdout.split(maxsplit=1) == [str(sshd.workdir("right")), "it's $HOME\n"], shown.stderr


#: What people write into ~/.ssh/config for their own sessions.
FOR_PEOPLE = """\
RemoteCommand sleep 100
RequestTTY force
PermitLocalCommand yes
LocalCommand cat
ControlMaster auto
ControlPath {folder}/%C
StdinNull yes
SessionType none
ForkAfterAuthentication yes
"""


def test_launch_over_ssh_with_configuration_for_people_and_talkative_shell_runs_its_command(tmp_path, sshd, machines):
    """The shell there prints something in Latin-1 without a newline, as a .bashrc may."""
    (tmp_path / "config").write_text(FOR_PEOPLE.format(folder=tmp_path))
    key = make_key(tmp_path / "talkative")
    forced = r"printf 'Gr\374\337 Gott> '; eval \"$SSH_ORIGINAL_COMMAND\""
    with open(sshd.folder / "authorized", "a") as authorized:
        authorized.write(f'command="{forced}" {key.with_suffix(".pub").read_text()}')
    options = ["-F", str(tmp_path / "config"), "-o", f"UserKnownHostsFile={sshd.folder / 'known'}"]
    entry = HostEntry(**sshd.entry("left", key=str(key), ssh_options=options))
    host = Host("left", ADDRESSES["left"], False, ADDRESSES["left"], entry)
    with AgentPool([host], lambda text: None) as agents:
        assert "unknown" in str(agents.try_to_ask({"left": {"do": "unknown"}}, 60)[1])
    outcome, view = supervise(tmp_path, replace(spec("worker-0", "print('ready')"), host=host), start_timeout=60)
    assert outcome.ok
    assert view.heard == [("worker-0", "ready")]
