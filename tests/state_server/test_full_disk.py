"""A state server that cannot write any more, as on a full disk."""

import resource
import signal

from calling import ServerProcess, ask, content, post, until

SERVE = ("-m", "esync.state_server", "--port", "0", "--state-dir")


def limit_files(server: ServerProcess, size: int) -> None:
    """Let the server's files grow no further than that."""
    resource.prlimit(server.worker, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def test_server_on_full_disk_does_not_restore_a_replaced_job(start_process, tmp_path):
    server = start_process(*SERVE, str(tmp_path))
    job = f"{server.url}/api/v1/jobs/default"
    assert post(job, {"num_workers": 2, "run": "old"})[0] == 200
    ask(job, 0, 0, 0.01)
    limit_files(server, 0)
    iteration = 0

    def broken() -> bool:
        nonlocal iteration
        iteration += 1
        ask(job, 0, iteration, 0.01)  # the training goes on; the last page may have room for some lines
        return "cannot write the journal" in server.output

    until(broken)
    status, answer, headers = post(f"{server.url}/api/v1/jobs/other", {"num_workers": 1})
    assert (status, "cannot be written" in answer["error"], headers["Retry-After"]) == (503, True, "1")
    limit_files(server, resource.RLIM_INFINITY)
    until(lambda: post(job, {"num_workers": 3, "run": "new"})[0] == 200)  # as soon as the old one counts as over
    ask(job, 2, 0, 0.01)
    assert server.end(signal.SIGKILL) == -signal.SIGKILL
    server = start_process(*SERVE, str(tmp_path))
    job = f"{server.url}/api/v1/jobs/default"
    assert content(job)["run"] == "new"
    ask(job, 2, 1, 0.01)
    server.end_well()
