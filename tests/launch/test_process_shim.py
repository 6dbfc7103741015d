"""The shim around a process of a job, which ends it with its standard input."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from test_supervisor import ends

from esync.launch.heartbeat_pipe import NO_CONNECTION
from esync.launch.process_shim import STARTED

pytestmark = pytest.mark.timeout(60)


@contextmanager
def shimmed(program: str, lease: float = 30.0, grace: float = 10.0) -> "Iterator[subprocess.Popen[bytes]]":
    """The module as launch starts it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "esync.launch.process_shim"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,
    )
    command = [sys.executable, "-u", "-c", textwrap.dedent(program)]
    process.stdin.write(
        json.dumps({"command": command, "environment": {}, "lease": lease, "grace": grace}).encode() + b"\n"
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def until(process: "subprocess.Popen[bytes]", text: str) -> None:
    """Read its output up to a line."""
    for line in iter(process.stdout.readline, b""):
        if line.decode().startswith(text):
            return
    raise AssertionError(f"it has never said {text!r}")


def children_of(pid: int) -> list[int]:
    """Those included that have ended and have not been reaped."""
    stats = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/stat") if path.exists()]
    return [int(stat.split()[0]) for stat in stats if int(stat.rpartition(b")")[2].split()[1]) == pid]


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("print('done')", 0),
        ("raise SystemExit(7)", 7),
        ("import os; os.kill(os.getpid(), 11)", 128 + 11),
        ("import os; os.kill(os.getpid(), 9)", 128 + 9),
        ("raise SystemExit(255)", 254),  # 255 is ssh's own
    ],
)
def test_shim_exits_with_the_exit_code_of_its_command(program, code):
    with shimmed(program) as process:
        until(process, STARTED)
        assert process.wait(20) == code


def test_shim_at_end_of_its_input_ends_all_descendants(tmp_path):
    """Also a child in another process group and an orphaned grandchild that both ignore SIGTERM."""
    program = f"""
        import os, signal, subprocess, sys, time
        deaf = "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        deaf += "open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(60)"
        deaf = "import sys; " + deaf
        folder = {str(tmp_path)!r}
        subprocess.Popen([sys.executable, "-c", deaf, folder + "/child"], start_new_session=True)
        if not os.fork():
            subprocess.Popen([sys.executable, "-c", deaf, folder + "/orphan"], start_new_session=True)
            os._exit(0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open(folder + "/parent", "w").write(str(os.getpid()))
        while not all(os.path.exists(folder + "/" + name) and open(folder + "/" + name).read()
                      for name in ("child", "orphan")):
            time.sleep(0.05)
        print("all are there")
        time.sleep(60)
    """
    with shimmed(program, grace=0.3) as process:
        until(process, "all are there")
        process.stdin.close()
        until(process, "launch, or the connection to it, has ended: the process is being ended")
        assert process.wait(20) == NO_CONNECTION
        for name in ("parent", "child", "orphan"):
            assert ends(tmp_path / name)


def test_shim_beside_process_with_non_utf8_name_ends_all_descendants(tmp_path):
    """The shim searches all processes of the machine for descendants of its command."""
    odd = "import ctypes, time; ctypes.CDLL(None).prctl(15, b'Pr\\xfcfung'); print('up', flush=True); time.sleep(60)"
    pid_file = tmp_path / "left"
    orphan = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(60)"
    program = f"""
        import os, subprocess, sys, time
        subprocess.Popen([sys.executable, "-c", {orphan!r}, {str(pid_file)!r}], start_new_session=True)
        while not (os.path.exists({str(pid_file)!r}) and open({str(pid_file)!r}).read()):
            time.sleep(0.05)
    """
    with subprocess.Popen([sys.executable, "-c", odd], stdout=subprocess.PIPE) as stranger:
        try:
            assert stranger.stdout.readline() == b"up\n"
            with shimmed(program) as process:
                assert process.wait(20) == 0
                assert ends(pid_file)
        finally:
            stranger.kill()


def test_shim_reaps_orphans_while_the_command_runs():
    program = """
        import os, time
        for _ in range(20):
            child = os.fork()
            if not child:
                if os.fork():
                    os._exit(0)
                os._exit(0)
            os.waitpid(child, 0)
        print("orphans")
        time.sleep(60)
    """
    with shimmed(program) as process:
        until(process, "orphans")
        limit = time.monotonic() + 20
        while len(children_of(process.pid)) > 1:
            assert time.monotonic() < limit
            time.sleep(0.05)
        assert process.poll() is None


def test_shim_without_signs_of_life_ends_and_with_them_continues():
    with shimmed("import time; print('up'); time.sleep(60)", lease=2.0, grace=5.0) as process:
        until(process, "up")
        for _ in range(8):  # twice as long
            process.stdin.write(b"\n")
            time.sleep(0.5)
        assert process.poll() is None
        until(process, "nothing has been heard from launch for 2 s: the process is being ended")
        assert process.wait(20) == NO_CONNECTION


def test_shim_obeys_orders_to_terminate_and_kill(tmp_path):
    gentle = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(3)); print('up'); time.sleep(60)"
    with shimmed(gentle) as process:
        until(process, "up")
        process.stdin.write(b"\nt")
        assert process.wait(20) == 3
    with shimmed("import signal, time; signal.signal(15, signal.SIG_IGN); print('up'); time.sleep(60)") as process:
        until(process, "up")
        process.stdin.write(b"tk")
        assert process.wait(20) == 128 + signal.SIGKILL


def test_shim_that_is_signalled_or_killed_ends_its_command(tmp_path):
    program = (
        f"import os, time; open({str(tmp_path / 'id')!r}, 'w').write(str(os.getpid())); print('up'); time.sleep(60)"
    )
    with shimmed(program) as process:
        until(process, "up")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 128 + signal.SIGTERM
    with shimmed(program) as process:
        until(process, "up")
        process.kill()  # it can do nothing any more; the kernel does
        assert ends(Path(tmp_path / "id"))


def test_shim_whose_request_never_comes_starts_nothing(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-m", "esync.launch.process_shim"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        output, _ = process.communicate(b"what?\n", timeout=20)
        assert (process.returncode, output) == (1, b"")
    assert os.listdir(tmp_path) == []


def test_shim_hides_variables_of_another_job(monkeypatch):
    """The user's shell may have them for a process that was started by hand, or for something else."""
    for name in ("PORT", "DMLC_RANK", "ESYNC_SLOT", "PMI_FD"):
        monkeypatch.setenv(name, "7")
    monkeypatch.setenv("GREETING", "hello")
    with shimmed(
        "import os; print(*map(os.environ.get, ['PORT', 'DMLC_RANK', 'ESYNC_SLOT', 'PMI_FD', 'GREETING']))"
    ) as process:
        until(process, "None None None None hello")
