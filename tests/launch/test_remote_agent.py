"""The launcher's agent on another machine."""

import contextlib
import json
import os
import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from launching import description

from esync.launch.agent_pool import AgentPool
from esync.launch.description import Description
from esync.launch.hosts import locate
from esync.launch.plan import plan
from esync.launch.preflight import check_hosts
from esync.launch.reachability import sentences
from esync.launch.remote_agent import MARK, Agent
from esync.launch.resources import HostResources, Ports
from esync.runtime.user_functions import digest

HERE = "127.0.0.1"
REQUESTS = {
    "check": {
        "ports": 1,
        "claims": {"scheduler.port": 0},
        "data": None,
        "engine": False,
        "address": HERE,
        "algorithm": None,
        "program": None,
        "functions": [],
        "checkpoints": ["kept", 2],
    },
    "prepare": {"folder": "logs/lenet/esync/here", "overwrite": False, "resume": False},
    "listen": {"endpoints": [["a", HERE, 0]]},
    "reach": {"endpoints": [["a", HERE, 9]]},
    "hush": {"endpoints": []},
    "logs": {"folder": "logs/lenet/esync/here", "nonce_file": "processes/.lock", "nonce": "none"},
}
ODD = [
    None, True, -1, 0, 2**31, 2**64, 10**400, 1e308, float("nan"), "", "x" * 5000, "\0", "\ud800", "\x1b[2J", "..", "~",
    "/dev/null/x", [], [[]], [None], [["a", HERE]], [["a", HERE, -1]], [["a", HERE, 70000]],
    [["a", "no.such.name.invalid\0", 1]],
    {}, {"x": {"y": []}}, {"scheduler.port": "9091"}, {"scheduler.port": -5},
]  # fmt: skip
RAW = [
    b"[" * 200_000,
    b"\xff\xfe\n",
    b"{",
    b"null",
    b"7",
    b'"do"',
    b"[]",
    b'{"do": 1}',
    b'{"do": "answer"}',
    b"x" * 3_000_000,
]


def odd_requests(number: int, seed: int) -> Iterator[bytes]:
    """Requests of launch with something wrong about them, and lines that are none."""
    random_ = random.Random(seed)
    for _ in range(number):
        kind = random_.random()
        if kind < 0.1:
            yield random_.choice(RAW)
            continue
        do = random_.choice(list(REQUESTS))
        request = {"do": do, **REQUESTS[do]}
        for _ in range(random_.randint(0, 2)):
            field = random_.choice(list(request))
            if random_.random() < 0.2:
                del request[field]
                break
            request[field] = random_.choice(ODD)
        if kind > 0.95:
            request["more"] = random_.choice(ODD)
        yield json.dumps(request).encode()


def memory_of(process: "subprocess.Popen[bytes]") -> int:
    """Resident bytes."""
    return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("number", [500, pytest.param(10_000, marks=[pytest.mark.long, pytest.mark.timeout(1800)])])
def test_agent_with_fuzzed_requests_answers_and_continues(tmp_path, number):
    with subprocess.Popen(
        [sys.executable, "-m", "esync.launch.remote_agent"], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as agent:
        try:

            def ask(line: bytes) -> dict:
                agent.stdin.write(line + b"\n")
                agent.stdin.flush()
                text = agent.stdout.readline().decode()
                assert text.startswith(MARK), (line[:200], text)
                return json.loads(text.removeprefix(MARK))

            assert ask(json.dumps({"do": "prepare", **REQUESTS["prepare"]}).encode()) == {}
            before, errors = 0, 0
            for count, line in enumerate(odd_requests(number, seed=1)):
                errors += "error" in ask(line)
                if count == 200:
                    before = memory_of(agent)
            assert number / 4 < errors < number, "most are refused, some are right"
            assert memory_of(agent) - before < 16 << 20
            again = ask(json.dumps({"do": "prepare", **REQUESTS["prepare"]}).encode())
            assert "another job writes its logs" in again["error"], "it still has what it has taken"
            agent.stdin.close()
            assert agent.wait(20) == 0
        finally:
            agent.kill()


def test_agent_on_host_with_checkpoints_of_an_earlier_run_refuses(tmp_path):
    """It refuses before moving anything aside; parts of ranks that the job lacks do not matter."""
    request = {"do": "check", **REQUESTS["check"], "address": "", "checkpoints": [str(tmp_path), 2]}
    with closing(Agent()) as agent:
        for name in ("round-30/worker-2.json", "round-40/worker-0.npz", "round-old/worker-0.json"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).touch()
        assert "error" not in agent.answer(dict(request))
        (tmp_path / "round-30" / "worker-1.json").touch()
        error = agent.answer(dict(request))["error"]
        assert error.startswith(f"{tmp_path} holds checkpoints of an earlier run (round 30): go on with --resume, ")
        assert "error" not in agent.answer({**request, "checkpoints": None})


@pytest.mark.parametrize(
    ("flags", "asked"), [({}, ["~/kept", 1]), ({"resume": True}, None), ({"overwrite": True}, None)]
)
def test_agent_is_asked_about_checkpoints_and_functions_only_on_hosts_of_workers(flags, asked):
    network = f"{Path(__file__).parents[1]}/support/user_networks.py:small"
    train = {"mode": "sync", "learning_rate": 0.001, "checkpoint_dir": "~/kept", "network": network}
    content = {
        **description([0.1], ["far"], **train, **flags),
        "hosts": {"far": {"address": "203.0.113.9"}, "other": {"address": "203.0.113.8"}},
        "servers": [{"host": "other"}],
    }
    meant = Description.model_validate(content)
    job = plan(meant, locate(meant), {}, HostResources(), {})
    requests: dict[str, dict[str, object]] = {}

    class Asked(AgentPool):
        def __init__(self) -> None:
            pass

        def ask(self, each, patience):
            requests.update(each)
            return {}

    check_hosts(job, Asked(), {}, 0)
    assert (requests["other"]["checkpoints"], requests["other"]["functions"]) == (None, [])
    assert requests["far"]["functions"] == [(network, digest(network))]
    assert json.loads(json.dumps(requests["far"]["checkpoints"])) == asked


def test_agent_probe_reports_which_ports_of_other_hosts_answer(tmp_path):
    """Two agents on this machine; one port answers, one refuses, and one drops packets."""
    one, other = Agent(), Agent()
    with socket.socket() as closed, socket.socket() as full, contextlib.ExitStack() as callers:
        for each in (closed, full):
            each.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(3):  # more than it takes: whoever comes next waits for an answer
            caller = callers.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(full.getsockname())
        with Ports() as ports:
            (held,) = ports.free(1)
            good = ("left", "127.0.0.1", held)
            assert one.answer({"do": "listen", "endpoints": [good]}) == {}
            wanted = [good, ("left", *closed.getsockname()), ("left", *full.getsockname())]
            failed = other.answer({"do": "reach", "endpoints": wanted})["failed"]
            assert [each[2] for each in failed] == [closed.getsockname()[1], full.getsockname()[1]]
            assert one.answer({"do": "hush", "endpoints": []}) == {}
            socket.create_server(("127.0.0.1", held)).close()  # it is free for whom it is held
    (sentence,) = sentences("right", failed)
    assert sentence == (
        f"host right cannot reach left at 127.0.0.1, port {failed[0][2]}, {failed[1][2]} (Connection refused); "
        "open the firewall between them, or correct hosts.left.address"
    )
    error = one.answer({"do": "listen", "endpoints": [("left", "203.0.113.9", 1)]})["error"]
    assert error.startswith("nothing can listen at 203.0.113.9:1: ")
