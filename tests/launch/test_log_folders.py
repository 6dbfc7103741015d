"""Log folders and ports that belong to one job only."""

import socket
from pathlib import Path

import pytest

from esync.launch.folders import BusyLogsError, LogFolders
from esync.launch.resources import PortInUseError, Ports
from esync.reports.discovery import find_devices
from esync.training.round_log import LogDirectoryError


def write(path: Path, text: str = "old") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def earlier_run(mode_folder: Path) -> None:
    write(mode_folder / "cloud1/cpu/iter-1.txt")
    write(mode_folder / "cloud1/cpu/run.json")
    write(mode_folder / "gone/gpu3/iter-1.txt")
    write(mode_folder / "processes/worker-0.log")


def test_log_folders_with_earlier_run_move_its_logs_aside(tmp_path):
    earlier_run(tmp_path)
    folders = LogFolders(tmp_path, overwrite=False)
    assert not (folders.processes / "worker-0.log").exists()
    (moved,) = folders.processes.glob("worker-0.earlier-*.log")
    assert moved.read_text() == "old"
    for device in ("cloud1/cpu", "gone/gpu3"):
        assert [path.name for path in (tmp_path / device).glob("earlier-*/iter-1.txt")] == ["iter-1.txt"]
    devices, skipped = find_devices(tmp_path)
    assert [device.rounds for device in devices] == [(), ()]
    assert skipped == []  # the processes' logs are no host, and no noise either
    folders.close()
    write(folders.processes / "worker-0.log")
    LogFolders(tmp_path, overwrite=False).close()
    assert len(list(folders.processes.glob("*.log"))) == 2


def test_log_folders_with_an_earlier_report_move_it_aside_or_delete_it(tmp_path):
    page, outcome = tmp_path / "report.html", tmp_path / "processes/outcome.json"
    write(page)
    write(outcome)
    LogFolders(tmp_path, overwrite=False).close()
    assert not page.exists()
    assert not outcome.exists()
    assert len(list(tmp_path.glob("report.earlier-*.html"))) == len(list(outcome.parent.glob("*.json"))) == 1
    write(page)
    LogFolders(tmp_path, overwrite=True).close()
    assert len(list(tmp_path.glob("*.html"))) == 1


def test_log_folders_with_overwrite_delete_an_earlier_run(tmp_path):
    earlier_run(tmp_path)
    LogFolders(tmp_path, overwrite=True).close()
    assert [path for path in tmp_path.rglob("*") if path.is_file() and not path.name.startswith(".")] == []


def test_log_folders_in_use_by_another_job_are_refused(tmp_path):
    first = LogFolders(tmp_path, overwrite=False)
    running = write(first.processes / "worker-0.log", "new")
    with pytest.raises(BusyLogsError, match="another job writes its logs to"):
        LogFolders(tmp_path, overwrite=True)
    assert running.read_text() == "new"
    first.close()
    LogFolders(tmp_path, overwrite=False).close()


def test_log_folders_that_cannot_be_created_are_refused(tmp_path):
    write(tmp_path / "file")
    with pytest.raises(LogDirectoryError, match=r"cannot write logs to .*file.*: "):
        LogFolders(tmp_path / "file/esync", overwrite=False)


def listener(port: int) -> socket.socket:
    """A server as ZeroMQ and waitress make it."""
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("127.0.0.1", port))
    server.listen()
    return server


def test_ports_are_reserved_and_can_be_listened_on():
    with Ports() as ports, Ports() as other_ports:
        mine, theirs = ports.free(100), other_ports.free(100)
        assert mine == sorted(mine)
        assert len({*mine, *theirs}) == 200
        with listener(mine[0]), socket.create_connection(("127.0.0.1", mine[0]), timeout=5):
            pass


def test_ports_claim_of_port_in_use_names_it():
    with Ports() as ports, listener(0) as server:
        port = server.getsockname()[1]
        with pytest.raises(PortInUseError, match=rf"^scheduler\.port {port}: it is in use; choose another one"):
            ports.claim(port, "scheduler.port")
    with Ports() as ports:
        ports.claim(port, "scheduler.port")


def test_log_folders_with_resume_keep_the_rounds(tmp_path):
    earlier_run(tmp_path)
    LogFolders(tmp_path, overwrite=False, resume=True).close()
    assert (tmp_path / "cloud1/cpu/iter-1.txt").read_text() == "old"
    assert not (tmp_path / "processes/worker-0.log").exists()
