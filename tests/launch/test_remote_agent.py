"""The launcher's agent on another machine."""

import contextlib
import json
import shutil
import socket
from contextlib import closing
from pathlib import Path

import pytest
from launching import description
from test_plan import make

from esync.algorithms.loading import digest as algorithm_digest
from esync.algorithms.loading import find
from esync.launch.agent_pool import AgentPool
from esync.launch.preflight import check_hosts
from esync.launch.reachability import sentences
from esync.launch.remote_agent import Agent
from esync.launch.resources import Ports
from esync.runtime.user_functions import digest

HERE = "127.0.0.1"
TESTS = Path(__file__).parents[1]
NETWORK, ALGORITHM = f"{TESTS}/support/user_networks.py:small", f"{TESTS}/algorithms/halfway.py:Halfway"
CHECK = {
    "do": "check",
    "ports": 1,
    "claims": {"scheduler.port": 0},
    "data": None,
    "engine": False,
    "address": HERE,
    "algorithm": None,
    "program": None,
    "functions": [],
    "checkpoints": ["kept", 2],
}


def test_agent_on_host_with_checkpoints_of_an_earlier_run_refuses(tmp_path):
    """It refuses before moving anything aside; parts of ranks that the job lacks do not matter."""
    request = {**CHECK, "address": "", "checkpoints": [str(tmp_path), 2]}
    with closing(Agent()) as agent:
        for name in ("round-30/worker-2.json", "round-40/worker-0.npz", "round-old/worker-0.json"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).touch()
        assert "error" not in agent.answer(dict(request))
        (tmp_path / "round-30/worker-1.json").touch()
        error = agent.answer(dict(request))["error"]
        assert error.startswith(f"{tmp_path} holds checkpoints of an earlier run (round 30): go on with --resume, ")
        assert "error" not in agent.answer({**request, "checkpoints": None})


@pytest.mark.parametrize(("kind", "source"), [("functions", NETWORK), ("algorithm", ALGORITHM)])
def test_agent_without_a_source_or_with_another_one_refuses(code_folder, kind, source):
    path, _, name = source.rpartition(":")
    file = Path(path).name
    entry = [f"{file}:{name}", "another digest"]
    request = {**CHECK, "address": "", "checkpoints": None, kind: [entry] if kind == "functions" else entry}
    with closing(Agent()) as agent:
        absent = agent.answer(dict(request))["error"]
        assert f"{file}:{name}: the file {code_folder}/{file} is not there" in absent
        (code_folder / file).write_text("import no_such_package\n")
        broken = agent.answer(dict(request))["error"]
        assert (f"{file}, line 1: ModuleNotFoundError" in broken) == (kind == "algorithm")  # a function is not imported
        shutil.copy(path, code_folder)
        other = agent.answer(dict(request))["error"]
        assert f"the source of {file}:{name} there differs from this machine's" in other
        for text in (absent, other):
            assert f"copy {file} there; a relative path begins in the host's workdir, {code_folder}" in text


@pytest.mark.parametrize(
    ("flags", "asked"), [({}, ["~/kept", 1]), ({"resume": True}, None), ({"overwrite": True}, None)]
)
@pytest.mark.usefixtures("code_folder")
def test_agent_is_asked_about_checkpoints_and_sources_only_on_hosts_of_workers(flags, asked):
    train = {"mode": ALGORITHM, "local_lr": 0.001, "checkpoint_dir": "~/kept", "network": NETWORK}
    content = {
        **description([0.1], ["far"], **train, **flags),
        "hosts": {"far": {"address": "203.0.113.9"}, "other": {"address": "203.0.113.8"}},
        "servers": [{"host": "other"}],
    }
    requests: dict[str, dict[str, object]] = {}

    class Asked(AgentPool):
        def __init__(self) -> None:
            pass

        def ask(self, questions, patience):
            requests.update(questions)
            return {}

    check_hosts(make(content), Asked(), {}, 0)
    assert [requests["other"][name] for name in ("checkpoints", "functions", "algorithm")] == [None, [], None]
    assert requests["far"]["functions"] == [(NETWORK, digest(NETWORK))]
    assert requests["far"]["algorithm"] == (ALGORITHM, algorithm_digest(find(ALGORITHM)))
    assert json.loads(json.dumps(requests["far"]["checkpoints"])) == asked


def test_agent_probe_reports_which_ports_of_other_hosts_answer(tmp_path):
    """Two agents on this machine; one port answers, one refuses, and one drops packets."""
    one, other = Agent(), Agent()
    with socket.socket() as closed, socket.socket() as full, contextlib.ExitStack() as callers:
        for sock in (closed, full):
            sock.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(3):  # more than it takes: whoever comes next waits for an answer
            caller = callers.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(full.getsockname())
        with Ports() as ports:
            (held,) = ports.free(1)
            good = ("left", "127.0.0.1", held)
            assert one.answer({"do": "listen", "endpoints": [good]}) == {}
            endpoints = [good, ("left", *closed.getsockname()), ("left", *full.getsockname())]
            failed = other.answer({"do": "reach", "endpoints": endpoints})["failed"]
            assert [endpoint[2] for endpoint in failed] == [closed.getsockname()[1], full.getsockname()[1]]
            assert one.answer({"do": "stop_listening", "endpoints": []}) == {}
            socket.create_server(("127.0.0.1", held)).close()  # it is free for whom it is held
    (sentence,) = sentences("right", failed)
    assert sentence == (
        f"host right cannot reach left at 127.0.0.1, port {failed[0][2]}, {failed[1][2]} (Connection refused); "
        "open the firewall between them, or correct hosts.left.address"
    )
    error = one.answer({"do": "listen", "endpoints": [("left", "203.0.113.9", 1)]})["error"]
    assert error.startswith("nothing can listen at 203.0.113.9:1: ")
