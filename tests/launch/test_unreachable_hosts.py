"""The supervisor when hosts do not answer, with a replacement for `ssh` that runs everything on
this machine.

A file NAME in the folder `away` has the host NAME not answer, and ends the connections to it.
"""

import os
import re
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import test_supervisor
from test_supervisor import LONG, Reacting, Recorded, impatient, spec  # noqa: F401

from esync import config
from esync.launch.hosts import Host, HostEntry
from esync.launch.outcome import JobOutcome
from esync.launch.spec import ProcessSpec
from esync.launch.supervisor import TICK

pytestmark = pytest.mark.timeout(120)

SSH = f"""#!{sys.executable}
import os, subprocess, sys, time
*_, host, command = sys.argv
def away():
    return os.path.exists(os.path.join(os.path.dirname(__file__), "away", host))
with open(os.path.join(os.path.dirname(__file__), "tries"), "a") as file:
    file.write(host + " ")
if away():
    sys.exit(print(f"ssh: connect to host {{host}} port 22: No route to host", flush=True) or 255)
with subprocess.Popen(["sh", "-c", command]) as process:
    while process.poll() is None:
        if away():
            process.kill()
            sys.exit(255)
        time.sleep(0.02)
sys.exit(process.returncode if process.returncode >= 0 else 255)
"""
#: A worker that trains until the file `finish` is there; the first life of it lets its host go
#: away.
WORKER = """
    import os, time
    folder = {folder!r}
    print('@event {{"kind": "joined", "rank": 7, "exchanges": 0}}', flush=True)
    print("life on", {host!r}, os.environ.get("ESYNC_SLOT"), os.environ.get("PORT"), flush=True)
    if not os.path.exists(folder + "/died"):
        open(folder + "/died", "w").close()
        {dying}
        time.sleep(60)
    while not os.path.exists(folder + "/finish"):
        time.sleep(0.02)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of the hosts' files, with an ssh in the PATH; hosts are tried often."""
    (tmp_path / "away").mkdir()
    (tmp_path / "ssh").write_text(SSH)
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(config, "LAUNCH_RETRY", (0.05, 0.2))
    monkeypatch.setattr(config, "ANNOUNCE_AFTER", 0.5)
    return tmp_path


def far(name: str) -> Host:
    return Host(name, name, False, "", HostEntry(workdir=os.getcwd(), python=sys.executable))


def worker(folder: Path, host: str, dying: str) -> ProcessSpec:
    program = WORKER.format(folder=str(folder), host=host, dying=dying)
    return replace(spec("worker-0", program, environment={"PORT": "7"}, device="cpu"), host=far(host))


def goes_away(folder: Path, host: str) -> str:
    return f"open({str(folder / 'away' / host)!r}, 'w').close()"


def supervise(folder: Path, view: Recorded, *specs: ProcessSpec, **settings: Any) -> JobOutcome:
    return test_supervisor.supervise(folder, *specs, view=view, start_timeout=30, restarts=1, **settings)[0]


def lives(folder: Path) -> list[str]:
    return [line for line in (folder / "worker-0.log").read_text().splitlines() if line.startswith("life on")]


def test_unreachable_host_that_answers_again_gets_its_worker_back(folder: Path) -> None:
    """The wait is reported, and a later death still has the one allowed restart."""

    def answer() -> None:
        (folder / "away/left").unlink()

    twice = worker(folder, "left", goes_away(folder, "left"))
    program = twice.command[-1] + textwrap.dedent(
        """
        if not os.path.exists(folder + "/killed"):
            open(folder + "/killed", "w").close()
            os.kill(os.getpid(), 9)
        """
    )

    class Watching(Reacting):
        """It lives on until launch has seen that it is back; then it is killed."""

        def print(self, text: str) -> None:
            super().print(text)
            if "is back after" in text:
                (folder / "finish").touch()

    view = Watching("(until 60 s); ssh: connect to host left port 22: No route to host", answer)
    outcome = supervise(folder, view, replace(twice, command=(*twice.command[:-1], program)))
    assert outcome.ok, view.said
    assert [(replacement.name, replacement.counted) for replacement in outcome.replacements] == [
        ("worker-0", False),
        ("worker-0", True),
    ]
    assert lives(folder) == ["life on left None 7", "life on left 7 None", "life on left 7 None"]
    assert len((folder / "tries").read_text().split()) >= 4  # one of them at least was for nothing
    assert any(text.startswith("waiting for left (left) to answer (worker-0) for ") for text in view.said)
    assert any("worker-0 (left/cpu) is back after" in text for text in view.said)
    assert outcome.lost_hosts == []


@pytest.mark.parametrize("look", [TICK, 2.0])  # in two seconds it joins and ends, and is never seen running
def test_unreachable_host_is_replaced_by_a_spare_host(
    folder: Path, monkeypatch: pytest.MonkeyPatch, look: float
) -> None:
    monkeypatch.setattr("esync.launch.supervisor.TICK", look)
    (folder / "finish").touch()
    (folder / "away/dead").touch()  # a spare host that does not answer, either
    spares = {name: {"worker-0": worker(folder, name, "")} for name in ("dead", "spare")}
    view = Recorded()
    outcome = supervise(folder, view, worker(folder, "left", goes_away(folder, "left")), spares=spares)
    assert outcome.ok, view.said
    assert lives(folder) == ["life on left None 7", "life on spare 7 None"]
    assert (folder / "tries").read_text().split() == ["left", "left", "dead", "spare"]
    assert view.rows[0].host == "spare"
    assert outcome.lost_hosts == ["left"]


def test_unreachable_host_that_stays_away_is_given_up_and_named(folder: Path) -> None:
    view = Recorded()
    outcome = supervise(folder, view, worker(folder, "left", goes_away(folder, "left")), patience=1)
    (failure,) = outcome.failures
    assert failure.name == "worker-0"
    assert outcome.replacements == []
    assert re.fullmatch(
        r"is lost: left \(left\) has not answered for \d+ s \(--wait-for-host\); "
        "ssh said last: ssh: connect to host left port 22: No route to host",
        failure.how,
    )


def test_unreachable_host_with_elastic_is_continued_without(folder: Path) -> None:
    marker = folder / "gone"
    view = Reacting("the others go on without it", marker.touch)
    other = spec("worker-1", f"import os, time\nwhile not os.path.exists({str(marker)!r}): time.sleep(0.1)")
    lost = worker(folder, "left", goes_away(folder, "left"))
    outcome = supervise(folder, view, lost, other, patience=1, elastic=True)
    assert outcome.ok, view.said
    assert (outcome.lost, outcome.lost_hosts, outcome.replacements) == (["worker-0"], ["left"], [])


def test_unreachable_host_of_state_server_with_elastic_fails_the_job(folder: Path) -> None:
    lost = replace(worker(folder, "left", goes_away(folder, "left")), name="state-server", role="state-server")
    other = spec("worker-0", "import time; time.sleep(60)")
    outcome = supervise(
        folder, Recorded(), replace(lost, resumable=True, endless=True), other, patience=1, elastic=True
    )
    (failure,) = outcome.failures
    assert failure.name == "state-server"
    assert failure.how.startswith("is lost: left (left) has not answered for")
    assert outcome.lost == []


def test_unreachable_host_with_elastic_is_not_waited_for_once_others_are_done(folder: Path) -> None:
    view = Recorded()
    other = spec("worker-1", f"import os, time\nwhile not os.path.exists({str(folder / 'died')!r}): time.sleep(0.1)")
    lost = worker(folder, "left", goes_away(folder, "left"))
    outcome = supervise(folder, view, lost, other, elastic=True)
    assert outcome.ok, view.said
    assert outcome.lost == ["worker-0"]


def test_worker_that_cannot_reach_the_servers_restarts_without_counting(folder: Path) -> None:
    """Its host answers, but the network between is broken; a dead server would end the job."""
    (folder / "finish").touch()
    cut_off = """print('@event {"kind": "cut off", "reason": "the server is gone"}', flush=True); sys.exit(1)"""
    view = Recorded()
    lost = worker(folder, "left", f"import sys; {cut_off}")
    outcome = supervise(folder, view, spec("server-0", LONG, "server"), lost)
    assert outcome.ok, view.said
    assert [(replacement.how, replacement.counted) for replacement in outcome.replacements] == [
        ("ended with exit code 1", False)
    ]
    assert lives(folder) == ["life on left None 7", "life on left 7 None"]


def test_unreachable_host_of_state_server_restarts_it_once_it_answers(folder: Path) -> None:
    """The journal is on that host, so no spare host takes the state server."""
    program = textwrap.dedent(f"""
        import os, time
        print("listening", flush=True)
        if not os.path.exists({str(folder / "died")!r}):
            open({str(folder / "died")!r}, "w").close()
            {goes_away(folder, "left")}
        else:
            open({str(folder / "again")!r}, "w").close()
        time.sleep(60)
    """)
    server = spec("state-server", program, "state server", endless=True, resumable=True, ready="listening")
    until_again = f"import os, time\nwhile not os.path.exists({str(folder / 'again')!r}): time.sleep(0.1)"
    view = Reacting("waiting for left", (folder / "away/left").unlink)
    spares = {"spare": {"worker-0": worker(folder, "spare", "")}}
    outcome = supervise(folder, view, replace(server, host=far("left")), spec("worker-0", until_again), spares=spares)
    assert outcome.ok, view.said
    assert set((folder / "tries").read_text().split()) == {"left"}
