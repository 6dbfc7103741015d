"""The state server as a process: python -m esync.state_server and manage.py runserver."""

import contextlib
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from calling import ROOT, content, send, until
from django.core.management import call_command

from esync.state_server.__main__ import parse_arguments
from tests.support import child
from tests.support.ports import free_port

SERVE = ("-m", "esync.state_server", "--port", "0")
RUNSERVER = ("SimpleStateServer/manage.py", "runserver", "127.0.0.1:0", "--noreload")


def play(url: str, **headers: str) -> None:
    """Make each of the published calls once."""
    assert send(f"{url}/init/", {"num_workers": 1}, **headers)[0] == 200
    assert content(f"{url}/apply/", {"r": 0, "k": 0, "c": 1, "te": 1}, **headers) == {"ready": 0}
    assert content(f"{url}/apply/", {"r": 0, "k": 1, "c": 1, "te": 1}, **headers) == {"ready": 1}
    assert send(f"{url}/reset/", {"r": 0, "t": 2, "te": 1}, **headers)[0] == 200
    assert content(f"{url}/", **headers)["t"] == 2


def test_server_process_serves_until_a_signal(start_process):
    server = start_process(*SERVE)
    play(server.url)
    kept_open = socket.create_connection(("127.0.0.1", server.port))
    asked = time.monotonic()
    assert server.end(signal.SIGINT) == 0
    assert time.monotonic() - asked < 5
    assert server.output == f"listening on {server.url}\n"  # and no line per request
    kept_open.close()


def test_server_process_with_port_in_use_prints_one_sentence(start_process):
    first = start_process(*SERVE)
    sentence = f"the state server cannot listen on 127.0.0.1:{first.port}: Address already in use"
    second = start_process("-m", "esync.state_server", "--port", str(first.port))
    assert second.wait() == 1
    assert second.output.splitlines() == [sentence]
    third = start_process("SimpleStateServer/manage.py", "runserver", f"127.0.0.1:{first.port}", "--noreload")
    assert third.wait() == 1
    assert third.output.splitlines() == [f"CommandError: {sentence}"]


@pytest.mark.parametrize("port", ["-1", "65536", "http"])
def test_server_process_with_bad_usage_exits_with_2(port, capsys):
    with pytest.raises(SystemExit) as end:
        parse_arguments([f"--port={port}"])
    assert end.value.code == 2
    assert "is not a port number" in capsys.readouterr().err


def test_server_process_runs_from_a_checkout_with_runserver(start_process):
    server = start_process("manage.py", "runserver", "127.0.0.1:0", cwd=ROOT / "SimpleStateServer")
    play(server.url)
    assert server.output == f"listening on {server.url}\n"
    until(lambda: send(f"{server.url}/api/v1/jobs/default/events?limit=1")[0] == 200)
    assert server.end(signal.SIGTERM) == 0


def test_start_script_leaves_a_server_running_with_the_printed_token(tmp_path):
    script = ROOT / "scripts/start_state_server.sh"
    environment = child.environment(ESYNC_RUN_DIR=str(tmp_path / "runs"), ESYNC_STATE_DIR=str(tmp_path / "state"))

    def run(*words: str) -> subprocess.CompletedProcess:
        return subprocess.run([script, *words], capture_output=True, text=True, timeout=60, env=environment)

    started = run("--port", "0", "--host", "127.0.0.1")
    assert started.returncode == 0, started.stderr
    listening, export, process = started.stdout.splitlines()
    pid, log = re.match(r"process (\d+), log (/.*\.log);", process).groups()
    try:
        url = listening.removeprefix("listening on ")
        assert send(f"{url}/")[0] == 401
        play(url, Authorization=f"Bearer {export.removeprefix('export ESYNC_TOKEN=')}")
        again = run("--port", url.rsplit(":", 1)[1])
        assert again.returncode == 1
        assert "Address already in use" in again.stderr
    finally:
        os.kill(int(pid), signal.SIGTERM)
    assert Path(log).parent == tmp_path / "runs"


def test_server_process_with_unusable_state_folder_is_refused(start_process, tmp_path):
    (tmp_path / "file").write_text("")
    refused = child.run(*SERVE, "--state-dir", str(tmp_path / "file/state"))
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"the state folder {tmp_path / 'file' / 'state'} cannot be written: ")
    assert len(refused.stderr.splitlines()) == 1
    first = start_process(*SERVE, "--state-dir", str(tmp_path / "state"))
    assert first.url
    refused = child.run(*SERVE, "--state-dir", str(tmp_path / "state"))
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"another state server uses the state folder {tmp_path / 'state'}")


def test_killed_worker_process_is_started_again_and_continues_its_jobs(start_process):
    server = start_process(*SERVE)
    play(server.url)
    killed = server.worker
    os.kill(killed, signal.SIGKILL)
    until(lambda: not child.alive(killed))

    def answered() -> bool:
        with contextlib.suppress(OSError):
            return content(f"{server.url}/")["t"] == 2
        return False

    until(answered)
    assert server.end(signal.SIGTERM) == 0


def test_worker_process_ends_with_a_killed_server(start_process):
    server = start_process(*SERVE)
    answering = server.worker
    server.end(signal.SIGKILL)
    assert child.ends(answering, 10)


def manage(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return child.run("SimpleStateServer/manage.py", *words, ESYNC_STATE_DIR=str(folder))


def test_manage_py_migrate_makes_the_tables_in_the_state_folder(tmp_path):
    assert (done := manage("migrate", folder=tmp_path)).returncode == 0, done.stderr
    with contextlib.closing(sqlite3.connect(tmp_path / "history.sqlite3")) as history:
        tables = {name for (name,) in history.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert {"server_run", "server_round", "server_event"} <= tables


def test_manage_py_without_a_usable_database_prints_one_sentence(tmp_path):
    done = child.run("SimpleStateServer/manage.py", "migrate", XDG_STATE_HOME=str(tmp_path / "none"))
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "unable to open database file" in done.stderr


def test_manage_py_check_finds_nothing_to_warn_of():
    call_command("check", deploy=True, fail_level="WARNING")


SERVED = "import esync.state_server.wsgi"


def test_wsgi_application_without_state_folder_prints_one_sentence():
    done = child.run("-c", SERVED)
    assert (done.returncode, done.stderr) == (1, "ESYNC_STATE_DIR should name the state folder\n")


def test_wsgi_application_ends_in_a_forked_process(tmp_path):
    fork = "import os; child = os.fork(); print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    done = child.run("-c", f"{SERVED}; {fork}", ESYNC_STATE_DIR=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr
    assert done.stderr.startswith("the state server is one process")


def test_server_process_without_the_databases_driver_prints_one_sentence(tmp_path):
    missing = "import sys, runpy; sys.modules.update(psycopg=None, psycopg2=None); sys.argv[1:] = ['--port', '0']; "
    run = "runpy.run_module('esync.state_server', run_name='__main__')"
    done = child.run("-c", missing + run, DATABASE_URL="postgres://u:p@127.0.0.1:1/x", XDG_STATE_HOME=str(tmp_path))
    assert done.returncode == 1
    assert "pip install 'esync[postgres]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_runserver_refuses_a_port_that_there_is_not(tmp_path):
    done = manage("runserver", "127.0.0.1:75536", folder=tmp_path)
    assert (done.returncode, done.stderr) == (1, "CommandError: 75536 is not a port number between 0 and 65535\n")


def started_together(*commands: tuple[str, ...]) -> list[subprocess.CompletedProcess[str]]:
    """Start servers at the same moment, and end those that serve."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    servers = [
        subprocess.Popen([sys.executable, *command], cwd=ROOT, env=child.environment(), **pipes) for command in commands
    ]
    done = []
    try:
        lines = [server.stdout.readline() for server in servers]
        for server, line in zip(servers, lines, strict=True):
            if line.startswith("listening"):
                server.send_signal(signal.SIGTERM)
            remainder, _ = server.communicate(timeout=20)
            done.append(subprocess.CompletedProcess(server.args, server.returncode, line + remainder))
    finally:
        for server in servers:
            server.kill()
    return done


def test_of_two_server_processes_that_start_together_one_gets_the_port(tmp_path):
    port = str(free_port())
    commands = [(*SERVE[:-1], port, "--state-dir", str(tmp_path / name)) for name in ("a", "b")]
    done = sorted(started_together(*commands), key=lambda server: server.returncode)
    assert [server.returncode for server in done] == [0, 1]
    assert done[1].stdout == f"the state server cannot listen on 127.0.0.1:{port}: Address already in use\n"


def test_server_process_that_cannot_start_does_not_say_that_it_listens(tmp_path):
    (tmp_path / "jobs/a.journal").mkdir(parents=True)
    done = child.run(*SERVE, "--state-dir", str(tmp_path))
    assert done.returncode == 1
    assert "listening" not in done.stdout
    assert "cannot be read" in done.stderr


def test_server_process_under_nohup_stays(start_process):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # which the process inherits
    try:
        server = start_process(*SERVE)
    finally:
        signal.signal(signal.SIGHUP, before)
    answering = server.worker
    server.process.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        server.process.wait(2)
    play(server.url)
    assert server.worker == answering
    assert server.end(signal.SIGTERM) == 0


def test_server_process_whose_worker_dies_twice_says_so(start_process):
    server = start_process(*SERVE)
    killed = server.worker
    os.kill(killed, signal.SIGKILL)
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")

    def other_pids() -> list[int]:  # the killed one is there, too, until it is reaped
        return [pid for pid in map(int, children.read_text().split()) if pid != killed]

    os.kill(until(other_pids)[0], signal.SIGKILL)
    assert server.wait(20) == 1
    assert server.output.splitlines()[-1].startswith(
        "the state server ends, because the process that answers has ended"
    )
