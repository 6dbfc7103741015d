"""A state server whose disk is full."""

import contextlib
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from calling import ServerProcess, post, send, until

SERVE = ("-m", "esync.state_server", "--port", "0", "--state-dir")


class Disk:
    """A place for the state folder that can be full: `fill(server)`, `free(server)`."""

    def __init__(self, folder: Path, fill: Callable[[ServerProcess], None], free: Callable[[ServerProcess], None]):
        self.folder, self.fill, self.free = folder, fill, free


@pytest.fixture(params=["tmpfs", "limit"])
def disk(request, tmp_path) -> Iterator[Disk]:
    """Return a small file system.

    If none can be mounted, the size of the server's files is limited instead.
    """
    if request.param == "limit":

        def limit(size: int) -> Callable[[ServerProcess], None]:
            def set_limit(server: ServerProcess) -> None:
                resource.prlimit(server.worker, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

            return set_limit

        yield Disk(tmp_path / "state", limit(0), limit(resource.RLIM_INFINITY))
        return
    mounted = tmp_path / "small"
    mounted.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", mounted], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    filler = mounted / "filler"

    def fill(server: ServerProcess) -> None:
        with open(filler, "wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(4096)):
                pass

    try:
        yield Disk(mounted / "state", fill, lambda server: filler.unlink())
    finally:
        subprocess.run(["umount", "--lazy", mounted], check=True)


def query(job: str, rank: int, iteration: int) -> tuple[int, dict]:
    asked = {"rank": rank, "round": 1, "iteration": iteration, "capability": 0.01}
    return post(f"{job}/query", asked)[:2]


def test_server_on_full_disk_does_not_restore_a_replaced_job(start_process, disk):
    server = start_process(*SERVE, str(disk.folder))
    job = f"{server.url}/api/v1/jobs/default"
    assert post(job, {"num_workers": 2, "run": "old"})[0] == 200
    assert query(job, 0, 0)[0] == 200
    disk.fill(server)
    iteration = 0

    def broken() -> bool:
        nonlocal iteration
        iteration += 1
        assert query(job, 0, iteration)[0] == 200  # the training goes on; the last page may have room for some lines
        return "cannot write the journal" in server.output

    until(broken)
    status, answer, headers = post(f"{server.url}/api/v1/jobs/other", {"num_workers": 1})
    assert (status, "cannot be written" in answer["error"], headers["Retry-After"]) == (503, True, "1")
    disk.free(server)
    until(lambda: post(job, {"num_workers": 3, "run": "new"})[0] == 200)  # as soon as the old one counts as over
    assert query(job, 2, 0)[0] == 200
    assert server.end(signal.SIGKILL) == -signal.SIGKILL
    server = start_process(*SERVE, str(disk.folder))
    job = f"{server.url}/api/v1/jobs/default"
    assert send(job)[1]["run"] == "new"
    assert query(job, 2, 1)[0] == 200
    assert server.end(signal.SIGTERM) == 0
    assert "Traceback" not in server.output
