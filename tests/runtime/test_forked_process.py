"""A fork of this process that serves over pipes."""

import multiprocessing
import os
import signal
import socket
import time

from esync.runtime.forked_process import ForkedProcess

from ..support import child
from ..support.child import alive, ends


def test_forked_process_keeps_no_connection_of_its_parent():
    """The others see that a worker has died by the end of its connections."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socketpair()[0] as local:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
        process = ForkedProcess(
            lambda questions, answers: [print(line, end="", file=answers, flush=True) for line in questions],
            niceness=3,
        )
        try:
            process.stdin.write("ready\n")
            process.stdin.flush()
            assert process.stdout.readline() == "ready\n"
            client.close()
            accepted.settimeout(30)
            assert accepted.recv(1) == b""  # the end, though the fork lives
            assert alive(process.pid)
            assert local.fileno() >= 0
            assert os.getpriority(os.PRIO_PROCESS, process.pid) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + 3)
            assert os.getpgid(process.pid) != os.getpgid(0)
        finally:
            accepted.close()
            process.kill()
            assert process.wait() == -signal.SIGKILL
            process.stdin.close()
            process.stdout.close()


def test_forked_process_ends_with_its_parent():
    program = (
        "import time\n"
        "from esync.runtime.forked_process import ForkedProcess\n"
        "process = ForkedProcess(lambda questions, answers: time.sleep(600))\n"
        "print('ready')\n"
        "print(process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with child.started("-c", program) as parent:
        pid = int(parent.stdout.readline())
        assert alive(pid)
        parent.kill()
        parent.wait()
        assert ends(pid)


def test_processes_of_a_data_loader_in_a_fork_end_with_the_fork():
    def serve(questions, answers) -> None:
        loader = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
        loader.start()
        print(loader.pid, file=answers, flush=True)
        time.sleep(600)

    process = ForkedProcess(serve)
    loader = int(process.stdout.readline())
    process.kill()
    process.wait()
    try:
        assert ends(loader)
    finally:
        process.stdin.close()
        process.stdout.close()
