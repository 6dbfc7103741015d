"""The supervisor of a job, with small Python programs as its processes."""

import argparse
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from esync import config
from esync.launch.hosts import Host
from esync.launch.outcome import JobOutcome
from esync.launch.processes import Process
from esync.launch.spec import LaunchPlan, ProcessSpec
from esync.launch.status_table import WorkerRow
from esync.launch.supervisor import Supervisor
from esync.runtime import progress
from esync.runtime.progress import Progress
from tests.support import child

pytestmark = pytest.mark.timeout(60)

HERE = Host("here", "localhost", True)
#: The environment of a process that tells launch what happens.
TELLING = {"ESYNC_PROGRESS": "json"}
#: A program that ends by itself, and one that only a signal ends.
SHORT, LONG = "print('done')", "import time; print('listening', flush=True); time.sleep(60)"


def spec(name: str, program: str, role: str = "worker", **options: Any) -> ProcessSpec:
    return ProcessSpec(name, role, HERE, (sys.executable, "-c", textwrap.dedent(program)), **options)


class Recorded:
    """A view that remembers what it was shown."""

    def __init__(self) -> None:
        self.rows: list[WorkerRow] = []
        self.said: list[str] = []
        self.heard: list[tuple[str, str]] = []

    def show(self, rows: Sequence[WorkerRow]) -> None:
        self.rows = list(rows)

    def print(self, text: str) -> None:
        self.said.append(text)

    def process_line(self, name: str, text: str, end: str) -> None:
        self.heard.append((name, text))

    def close(self) -> None: ...

    @property
    def states(self) -> dict[str, str]:
        return {row.name: row.state for row in self.rows}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"LINGER": 0.2, "GRACE": 1.0, "FAREWELL": 1.0}.items():
        monkeypatch.setattr(config, f"LAUNCH_{name}", seconds)


class Reacting(Recorded):
    """A view that does something when a text has been said for the first time."""

    def __init__(self, text: str, do: Callable[[], object]) -> None:
        super().__init__()
        self._text, self._do = text, do

    def print(self, text: str) -> None:
        first = not any(self._text in line for line in self.said)
        super().print(text)
        if first and self._text in text:
            self._do()


def supervise(
    folder: Path,
    *specs: ProcessSpec,
    start_timeout: float = 10,
    restarts: int = 0,
    elastic: bool = False,
    view: Recorded | None = None,
    patience: float = 60,
    **fields: Any,
) -> tuple[JobOutcome, Recorded]:
    view = view or Recorded()
    plan = LaunchPlan(specs, argparse.Namespace(start_timeout=start_timeout, elastic=elastic), folder, **fields)
    return Supervisor(plan, folder, view, restarts, patience).run(), view


def ends(pid_file: Path, seconds: float = 5) -> bool:
    """Whether a process that has written its id ends; a signal may still be on its way to it."""
    return child.ends(int(pid_file.read_text()), seconds)


def test_supervisor_with_workers_that_finish_returns_ok(tmp_path):
    outcome, view = supervise(
        tmp_path,
        spec("scheduler", "import time; time.sleep(0.6)", "scheduler"),  # leaves after the workers, by itself
        spec("state-server", LONG, "state server", endless=True, ready="listening"),
        spec("worker-0", "import os; print('to the log', os.environ['GREETING'])", environment={"GREETING": "hello"}),
        spec("worker-1", "import sys; sys.stderr.write('no newline')"),
    )
    assert outcome.ok
    assert outcome.exit_codes == {"scheduler": 0, "worker-0": 0, "worker-1": 0}  # the state server was told to end
    assert view.states == {"worker-0": "done", "worker-1": "done"}
    command, output = (tmp_path / "worker-0.log").read_text().splitlines()
    assert command.startswith("$ GREETING=hello ")
    assert output == "to the log hello"
    assert (tmp_path / "worker-1.log").read_text().endswith("\nno newline")


def test_supervisor_sends_progress_to_the_view_and_output_to_the_log(tmp_path):
    report = Progress(1, 5, 3, 120.5, 0.25, 9.0, 0.75, 4)
    program = f"""
        from esync.runtime.progress import Progress, ProgressReporter
        print("before")
        ProgressReporter(quiet=False, machine=True).round({report!r})
        print("@progress of another kind")
    """
    outcome, view = supervise(tmp_path, spec("worker-0", program, device="cpu-1"))
    assert outcome.ok
    assert view.rows == [WorkerRow("worker-0", "here", "cpu-1", "done", report)]
    assert (tmp_path / "worker-0.log").read_text().splitlines()[-3:] == [
        "before",
        report.line(),
        "@progress of another kind",
    ]
    assert view.heard == [("worker-0", text) for text in ("before", report.line(), "@progress of another kind")]


def test_supervisor_starts_next_processes_once_one_is_ready(tmp_path):
    flag = tmp_path / "flag"
    outcome, _ = supervise(
        tmp_path,
        spec(
            "state-server",
            f"import time; time.sleep(0.5); open({str(flag)!r}, 'w'); print('listening on …', flush=True)",
            "state server",
            ready="listening on ",
        ),
        spec("worker-0", f"open({str(flag)!r})"),  # fails where the file is not there
    )
    assert outcome.exit_codes["worker-0"] == 0
    assert not outcome.failures


def test_supervisor_with_process_that_never_gets_ready_gives_up(tmp_path):
    outcome, view = supervise(
        tmp_path,
        spec("state-server", LONG, "state server", endless=True, ready="something else"),
        spec("worker-0", SHORT),
        start_timeout=0.5,
    )
    assert [(failure.name, failure.how) for failure in outcome.failures] == [
        ("state-server", "was not ready after 0 s")
    ]
    assert view.states == {"worker-0": "waiting"}
    assert not (tmp_path / "worker-0.log").exists()


@pytest.mark.parametrize(
    ("program", "how", "last"),
    [
        ("import sys; print('a'); sys.exit('the loss is NaN')", "ended with exit code 1", "the loss is NaN"),
        ("raise SystemExit(170)", "ended with exit code 170", None),  # 128 + a signal without a name
        ("import os; os.kill(os.getpid(), 11)", "was ended by SIGSEGV", None),
        (
            "import os; print('x', flush=True); os.kill(os.getpid(), 9)",
            "was ended by SIGKILL (by somebody, or by the kernel for want of memory)",
            "x",
        ),
    ],
)
def test_supervisor_with_failing_worker_ends_the_job(tmp_path, program, how, last):
    outcome, view = supervise(
        tmp_path, spec("server-0", LONG, "server"), spec("worker-0", LONG), spec("worker-1", program, device="gpu0")
    )
    (failure,) = outcome.failures
    assert (failure.name, failure.where, failure.how) == ("worker-1", "here/gpu0", how)
    assert (failure.last_lines[-1] if failure.last_lines else None) == last
    assert view.states == {"worker-0": "ended", "worker-1": "failed"}
    assert not outcome.interrupted


@pytest.mark.parametrize(
    ("drawn", "last"),
    [
        (r"\r 10%|#  |\r 20%|## |\r 30%|###", " 30%|###"),  # in front of each state, as tqdm
        (r"10%\r20%\r30%\r", "30%"),  # behind it
        (r"\r 90%|##\r100%|###\nValueError", "ValueError"),
        (r"\r\x1b[32m 10%\x1b[0m\x1b[A\r 20%\r      \r", " 20%"),  # colours, and cleared in the end
        (r"a line of another system\r\n", "a line of another system"),
    ],
)
def test_supervisor_with_progress_bar_keeps_its_last_state(tmp_path, drawn, last):
    program = (
        f"import sys; print('begun')\nfor one in '{drawn}': sys.stdout.write(one); sys.stdout.flush()\nsys.exit(3)"
    )
    outcome, view = supervise(tmp_path, spec("worker-0", program))
    lines = outcome.failures[0].last_lines
    assert (lines[0], lines[-1]) == ("begun", last)
    assert len([line for line in lines if "%" in line]) <= 1
    content = (tmp_path / "worker-0.log").read_bytes()
    assert content.endswith(b"begun\n" + drawn.encode().decode("unicode_escape").encode())
    assert ("worker-0", last) in view.heard


def test_supervisor_with_service_that_exits_early_fails_even_with_exit_code_0(tmp_path):
    outcome, _ = supervise(tmp_path, spec("state-server", SHORT, "state server", endless=True), spec("worker-0", LONG))
    assert [(failure.name, failure.how) for failure in outcome.failures] == [("state-server", "ended with exit code 0")]


def test_supervisor_with_missing_program_reports_exit_code_127(tmp_path):
    missing = ProcessSpec("worker-0", "worker", HERE, ("/no/such/program",))
    outcome, _ = supervise(tmp_path, missing)
    assert outcome.failures[0].how == "ended with exit code 127"
    assert outcome.failures[0].last_lines == ("cannot start /no/such/program: No such file or directory",)


def test_supervisor_with_process_deaf_to_sigterm_kills_it_and_its_children(tmp_path):
    stubborn = f"""
        import os, signal, subprocess, sys, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen([sys.executable, "-c", "import signal, time; signal.pause()"])
        open({str(tmp_path / "parent")!r}, "w").write(str(os.getpid()))
        open({str(tmp_path / "child")!r}, "w").write(str(child.pid))
        print("deaf", flush=True)
        time.sleep(60)
    """
    outcome, view = supervise(
        tmp_path, spec("worker-0", stubborn, ready="deaf"), spec("worker-1", "raise SystemExit(1)")
    )
    assert [failure.name for failure in outcome.failures] == ["worker-1"]
    assert view.states["worker-0"] == "ended"
    assert ends(tmp_path / "parent")
    assert ends(tmp_path / "child")
    assert outcome.seconds < 20


def test_supervisor_that_is_killed_leaves_no_descendants_in_other_sessions(tmp_path):
    program = f"""
        import os, time
        if not os.fork():
            os.setsid()
            if not os.fork():
                open({str(tmp_path / "writing")!r}, "w").write(str(os.getpid()))
                os.rename({str(tmp_path / "writing")!r}, {str(tmp_path / "grandchild")!r})
                time.sleep(60)
            os._exit(0)
        time.sleep(60)
    """
    launcher = f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from test_supervisor import Path, spec, supervise
        supervise(Path({str(tmp_path)!r}), spec("worker-0", {program!r}))
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(launcher)], start_new_session=True) as process:
        try:
            child.until((tmp_path / "grandchild").exists, 30)
        finally:
            process.kill()
    assert ends(tmp_path / "grandchild", config.LAUNCH_GRACE + 10)


def test_supervisor_with_full_disk_loses_output_and_continues_the_job(tmp_path, small_disk):
    """The disk is full while the worker prints, and has room again before it ends."""
    program = f"""
        import os, time
        line = "x" * 99
        print("first", flush=True)
        while os.statvfs({str(small_disk)!r}).f_bavail:
            print(line, flush=True)
            time.sleep(0.001)
        for _ in range(50):
            print(line, flush=True)
        time.sleep(0.5)
        os.unlink({str(small_disk / "ballast")!r})
        for _ in range(20):
            print("room again", flush=True)
            time.sleep(0.05)
    """
    (small_disk / "ballast").write_bytes(bytes(32768))
    outcome, view = supervise(small_disk, spec("worker-0", program))
    assert outcome.ok, outcome
    log = small_disk / "worker-0.log"
    lines = log.read_text().splitlines()
    assert "first" in lines
    assert lines[-1] == "room again"
    assert any("bytes of output are missing here: No space left on device" in line for line in lines)
    first, last = view.said
    assert first == f"cannot write {log}: No space left on device; the job goes on, and its output is left out there"
    assert last.endswith(f"bytes of output are missing in {log}: No space left on device")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_supervisor_that_receives_a_signal_ends_the_job(tmp_path, number, request):
    previous = signal.signal(number, signal.default_int_handler)  # where the suite runs under nohup, SIGHUP is ignored
    request.addfinalizer(lambda: signal.signal(number, previous))
    ready = tmp_path / "ready"
    sender = signal_once(ready, number)
    before = signal.getsignal(number)
    outcome, view = supervise(
        tmp_path,
        spec("server-0", LONG, "server"),
        spec("worker-0", f"import time; open({str(ready)!r}, 'w'); time.sleep(60)"),
    )
    sender.join()
    assert (outcome.interrupted, outcome.ok, outcome.failures) == (number.name, False, [])
    assert view.states == {"worker-0": "ended"}
    assert signal.getsignal(number) is before


#: Of jobs whose workers get a minute's notice.
NOTICE: dict[str, Any] = {"start_timeout": 30, "preemption_notice": 60}


def signal_once(file: Path, *numbers: signal.Signals) -> threading.Thread:
    """Send signals to this process as soon as there is a file."""

    def send() -> None:
        child.until(file.exists, 30)
        for number in numbers:
            os.kill(os.getpid(), number)

    sender = threading.Thread(target=send)
    sender.start()
    return sender


@pytest.mark.parametrize("numbers", [[signal.SIGUSR1], [signal.SIGUSR1, signal.SIGTERM]])
def test_job_that_is_preempted_before_its_workers_have_begun_starts_none(tmp_path, numbers):
    marker = tmp_path / "begun"
    never = f"import time; open({str(marker)!r}, 'w'); time.sleep(60)"
    sender = signal_once(marker, *numbers)
    began = time.monotonic()
    server = spec("state-server", never, "state server", endless=True, ready="listening")
    outcome, _ = supervise(tmp_path, server, spec("worker-0", LONG), **NOTICE)
    sender.join()
    assert time.monotonic() - began < 15  # less than --start-timeout
    assert (outcome.preempted, outcome.ok, outcome.failures) == ("SIGUSR1", False, [])
    assert not (tmp_path / "worker-0.log").exists()


def test_servers_do_not_wait_for_workers_that_were_preempted_before_they_listened(tmp_path, monkeypatch):
    monkeypatch.setattr(config, "LAUNCH_FAREWELL", 40.0)
    marker = tmp_path / "begun"
    sender = signal_once(marker, signal.SIGTERM)
    began = time.monotonic()
    worker = spec("worker-0", f"import time; open({str(marker)!r}, 'w'); time.sleep(60)")
    outcome, view = supervise(tmp_path, spec("server-0", LONG, "server"), worker, **NOTICE)
    sender.join()
    assert time.monotonic() - began < 20
    assert (outcome.preempted, outcome.failures) == ("SIGTERM", [])
    assert "worker-0 (here) was ended by SIGUSR1 before it listened for a notice" in view.said


def test_replacement_is_told_of_a_preemption_once_it_has_joined(tmp_path):
    first, second = tmp_path / "begun", tmp_path / "second"
    program = f"""
        import os, pathlib, signal, sys, time
        from esync.runtime import progress
        replacement = os.path.exists({str(first)!r})
        pathlib.Path({str(first)!r}).touch()
        if replacement:
            pathlib.Path({str(second)!r}).touch()
            time.sleep(1)  # it looks for the others, and does not listen yet
            signal.signal(signal.SIGUSR1, lambda *_: sys.exit({os.EX_TEMPFAIL}))
        progress.report_event(progress.JOINED, rank=0, exchanges=3)
        time.sleep(30 * replacement)
        sys.exit(1)
    """
    sender = signal_once(second, signal.SIGUSR1)
    outcome, view = supervise(tmp_path, spec("worker-0", program, environment=TELLING), restarts=1, **NOTICE)
    sender.join()
    assert (outcome.preempted, outcome.failures) == ("SIGUSR1", [])
    assert outcome.exit_codes == {"worker-0": os.EX_TEMPFAIL}, view.said


def test_supervisor_with_silent_processes_says_who_is_still_running(tmp_path, monkeypatch):
    monkeypatch.setattr(config, "ANNOUNCE_AFTER", 0.5)
    program = "import time; print('waiting for 1 server(s)', flush=True); time.sleep(1.8)"
    server = "import time; print('listening', flush=True); time.sleep(2.5)"  # one that ends has finished the run
    outcome, view = supervise(tmp_path, spec("server-0", server, "server"), spec("worker-0", program))
    assert outcome.ok
    ending = "still running: worker-0; worker-0 said last: waiting for 1 server(s)"
    assert any(text.endswith(ending) for text in view.said)


def test_supervisor_announces_who_is_missing_only_after_they_have_been_missing_for_long(tmp_path, monkeypatch):
    monkeypatch.setattr(config, "ANNOUNCE_AFTER", 1.0)
    missing = progress.EVENT_MARK + json.dumps({"kind": progress.MISSING, "what": "worker 0 to leave"})

    def messages(before: float, after: float) -> list[str]:
        program = f"import time; time.sleep({before}); print({missing!r}, flush=True); time.sleep({after})"
        return supervise(tmp_path, spec("worker-0", program))[1].said

    assert not any("to leave" in text for text in messages(1.5, 0.3))
    assert "waiting for worker 0 to leave for 1 s" in messages(0.0, 1.8)


def test_supervisor_with_much_output_does_not_block_the_process(tmp_path):
    program = "import sys; sys.stdout.write('x' * 3_000_000 + '\\n'); print('end')"
    outcome, _ = supervise(tmp_path, spec("worker-0", program))
    assert outcome.ok
    content = (tmp_path / "worker-0.log").read_bytes()
    assert content.count(b"x") >= 3_000_000
    assert content.endswith(b"\nend\n")


#: A worker that joins, and ends badly as often as the file COUNT does not yet have so many letters.
FRAIL = """
    import os, sys
    print('@event {"kind": "joined", "rank": 0, "exchanges": 0}', flush=True)
    with open("COUNT", "a+") as file:
        file.write("x")
        file.seek(0)
        lives = len(file.read())
    print("life", lives, "port", os.environ.get("PORT"), flush=True)
    if lives <= DEATHS:
        os.kill(os.getpid(), 9)
"""


def frail(folder: Path, name: str, deaths: int, **options: Any) -> ProcessSpec:
    return spec(name, FRAIL.replace("COUNT", str(folder / f"{name}.count")).replace("DEATHS", str(deaths)), **options)


def test_supervisor_with_dying_worker_replaces_it(tmp_path):
    worker = frail(tmp_path, "worker-0", 2, environment={"PORT": "7"})
    outcome, view = supervise(tmp_path, spec("server-0", LONG, "server"), worker, restarts=3)
    assert outcome.ok
    assert [replacement.name for replacement in outcome.replacements] == ["worker-0", "worker-0"]
    assert outcome.exit_codes["worker-0"] == 0
    assert all(
        replacement.joined is not None and replacement.joined >= replacement.at for replacement in outcome.replacements
    )
    assert view.said[0].startswith("worker-0 (here) was ended by SIGKILL")
    assert "its last line: life 1 port 7; starting a replacement (1 of at most 3)" in view.said[0]
    lives = [line for line in (tmp_path / "worker-0.log").read_text().splitlines() if line.startswith("life")]
    assert lives == ["life 1 port 7", "life 2 port None", "life 3 port None"]


class CountingDescriptors(Recorded):
    """A view that counts this process's open files at each replacement."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: list[int] = []

    def print(self, text: str) -> None:
        super().print(text)
        if "starting a replacement" in text:
            self.counts.append(len(os.listdir("/proc/self/fd")))


def test_supervisor_keeps_nothing_open_of_a_worker_that_was_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr(config, "LAUNCH_BEAT", 0.05)
    view = CountingDescriptors()
    outcome, _ = supervise(tmp_path, frail(tmp_path, "worker-0", 3), restarts=3, view=view)
    assert outcome.ok
    assert len(view.counts) == 3
    assert len(set(view.counts)) == 1


#: What a worker does once it has joined and while it is missing when the servers leave → what is said of it.
LATE = {
    """
        if Path(FOLDER, "joined").exists():
            time.sleep(60)  # a replacement that has not joined yet
        join()
        os.kill(os.getpid(), signal.SIGKILL)
    """: ("was not needed any more", 1),
    """
        join()
        os.kill(os.getpid(), signal.SIGSTOP)
    """: ("did not end within 1 s", 0),
}


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("late", LATE)
def test_supervisor_with_worker_missing_at_the_end_fails_only_where_it_writes_the_model(tmp_path, rank, late):
    how, replacements = LATE[late]
    program = f"""
import os, signal, time
from pathlib import Path
from esync.runtime import progress
FOLDER = {str(tmp_path)!r}
def join():
    progress.report_event(progress.JOINED, rank={rank}, exchanges=0)
    Path(FOLDER, "joined").touch()
"""
    leaves = f"""
        import pathlib, time
        while not pathlib.Path({str(tmp_path / "joined")!r}).exists():
            time.sleep(0.05)
        time.sleep(1)
    """
    worker = spec("worker-0", program + textwrap.dedent(late), environment=TELLING)
    outcome, view = supervise(tmp_path, spec("server-0", leaves, "server"), worker, restarts=3)
    assert (outcome.ok, len(outcome.replacements)) == (rank == 1, replacements)
    if rank == 1:
        assert view.said[-1] == f"worker-0 (here) {how}: the run is finished"
    else:
        assert "worker 0 had gone: nobody has written the final model; with --checkpoint-dir" in outcome.failures[0].how


@pytest.mark.parametrize(("role", "knowing"), [("server", 1), ("server", 2), ("scheduler", 2)])
def test_supervisor_with_service_dying_after_all_workers_finished_returns_ok(tmp_path, role, knowing):
    program = """
        import pathlib, time
        from esync.runtime import progress
        progress.report_event(progress.JOINED, rank={rank}, exchanges=0)
        if {rank} < {knowing}:
            progress.report_event(progress.FINISHED)
        pathlib.Path({folder!r}, "said-{rank}").touch()
        time.sleep(4)
    """
    dies = f"""
        import os, pathlib, time
        while len(list(pathlib.Path({str(tmp_path)!r}).glob("said-*"))) < 2:
            time.sleep(0.05)
        time.sleep(0.5)
        os.kill(os.getpid(), 9)
    """
    workers = [
        spec(
            f"worker-{rank}",
            program.format(rank=rank, knowing=knowing, folder=str(tmp_path)),
            environment=TELLING,
        )
        for rank in range(2)
    ]
    outcome, view = supervise(tmp_path, spec("it", dies, role), *workers, restarts=3)
    assert outcome.ok == (knowing == 2)
    if outcome.ok:
        assert view.said[-1].endswith("the run is finished, and nobody needs it any more")
    else:
        assert [failure.name for failure in outcome.failures] == ["it"]


def test_supervisor_with_worker_dying_after_its_work_starts_no_replacement(tmp_path):
    program = """
        import os, signal
        from esync.runtime import progress
        progress.report_event(progress.JOINED, rank=0, exchanges=0)
        progress.report_event(progress.DONE)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    outcome, view = supervise(tmp_path, spec("worker-0", program, environment=TELLING), restarts=3)
    assert outcome.ok
    assert outcome.replacements == []
    assert view.said[-1].endswith("after it had done its work")


def test_process_terminate_of_ended_process_keeps_its_exit_code(tmp_path):
    process = Process(spec("worker-0", "raise SystemExit(3)"), tmp_path / "worker-0.log", print, print)
    os.waitid(os.P_PID, process._popen.pid, os.WEXITED | os.WNOWAIT)
    process.terminate()
    process.kill()
    assert process.poll()
    assert process.exit_code == 3
    process.close()


def test_supervisor_past_max_restarts_ends_the_job(tmp_path):
    outcome, _ = supervise(tmp_path, spec("server-0", LONG, "server"), frail(tmp_path, "worker-0", 9), restarts=2)
    assert [failure.name for failure in outcome.failures] == ["worker-0"]
    assert outcome.failures[0].how.endswith(", after 2 replacements, as many as --max-restarts allows")
    assert len(outcome.replacements) == 2


@pytest.mark.parametrize(
    "program",
    [
        """print('@event {"kind": "joined", "rank": 1}'); raise SystemExit(2)""",
        "raise SystemExit(1)",  # before it has joined
        """print('@event {"kind": "joined"}\\n@event {"kind": "over", "reason": "NaN"}'); raise SystemExit(1)""",
    ],
)
def test_supervisor_with_worker_that_would_fail_again_starts_no_replacement(tmp_path, program):
    outcome, _ = supervise(tmp_path, spec("worker-0", program), spec("worker-1", LONG), restarts=3)
    assert [failure.name for failure in outcome.failures] == ["worker-0"]
    assert outcome.replacements == []


@pytest.mark.parametrize(("role", "kind"), [("worker", "over"), ("server", "over"), ("worker", "cut off")])
def test_supervisor_names_the_process_that_has_failed_before_those_that_end_for_it(tmp_path, role, kind, monkeypatch):
    monkeypatch.setattr(config, "LAUNCH_GRACE", 30.0)
    event = "progress.OVER, reason='worker 1: no', consequence=True" if kind == "over" else "progress.CUT_OFF"
    follows = f"""
        import os, time
        from esync.runtime import progress
        while not os.path.exists({str(tmp_path / "failed")!r}):
            time.sleep(0.05)
        progress.report_event({event})
        os.symlink(f"/proc/{{os.getpid()}}", {str(tmp_path / "follows")!r})
        raise SystemExit(1)
    """
    fails = f"""
        import os, time
        from esync.runtime import progress
        progress.report_event(progress.OVER, reason="no")
        open({str(tmp_path / "failed")!r}, "w")
        while not os.path.lexists({str(tmp_path / "follows")!r}):
            time.sleep(0.05)
        while os.path.exists({str(tmp_path / "follows")!r}):  # until the other one has ended
            time.sleep(0.05)
        time.sleep({3 * config.LAUNCH_LINGER})
        raise SystemExit(3)
    """
    outcome, _ = supervise(
        tmp_path,
        spec("it", follows, role, environment=TELLING),
        spec("worker-1", fails, environment=TELLING),
    )
    assert [(failure.name, failure.how, failure.consequence) for failure in outcome.failures] == [
        ("worker-1", "ended with exit code 3", False),
        ("it", "ended with exit code 1", True),
    ]


def test_supervisor_with_elastic_and_dead_worker_continues_without_it(tmp_path):
    marker = tmp_path / "gone"
    view = Reacting("the others go on without it", marker.touch)
    other = spec("worker-1", f"import os, time\nwhile not os.path.exists({str(marker)!r}): time.sleep(0.1)")
    outcome, _ = supervise(tmp_path, frail(tmp_path, "worker-0", 9), other, restarts=1, elastic=True, view=view)
    assert outcome.ok
    assert (outcome.lost, len(outcome.replacements)) == (["worker-0"], 1)
    assert view.states == {"worker-0": "lost", "worker-1": "done"}
    assert view.said[-1].endswith("the others go on without it")


def test_supervisor_with_dead_resumable_service_restarts_it(tmp_path):
    service = frail(tmp_path, "state-server", 1, role="state server", endless=True, resumable=True)
    program = service.command[-1] + "\nimport time; time.sleep(60)"
    service = spec("state-server", program, "state server", endless=True, resumable=True)
    lives = str(tmp_path / "state-server.count")
    until_the_second = f"""
        import os, time
        while not os.path.exists({lives!r}) or os.path.getsize({lives!r}) < 2:
            time.sleep(0.05)
    """
    outcome, _ = supervise(tmp_path, service, spec("worker-0", until_the_second), restarts=3)
    assert outcome.ok
    assert [replacement.name for replacement in outcome.replacements] == ["state-server"]
