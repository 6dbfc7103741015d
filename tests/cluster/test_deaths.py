"""Workers, servers, schedulers and state servers that are killed or hang in real clusters.

--long adds modes and moments; tests/exchange and tests/search have all of them, in memory.
"""

import json
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ..support.variants import variants
from .harness import SCRIPTS, Cluster
from .test_worker_program import MODES, rounds

WORKER = ["-m", "esync.worker", "-c", "1", "-n", "lenet", "-b", "16", "--no-evaluation"]


def until(cluster: Cluster, condition: Callable[[], object]) -> None:
    """Wait for something to happen while the cluster runs."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "\n".join(cluster.output(name)[-1000:] for name in cluster.processes)
        time.sleep(0.02)


def kill(cluster: Cluster, name: str) -> None:
    cluster.processes[name].kill()
    cluster.processes[name].wait()


def test_worker_that_is_killed_is_replaced(tmp_path: Path) -> None:
    number = 14
    with Cluster(tmp_path, 2) as cluster:
        address = ["-ip", "127.0.0.1", "-port", str(cluster.start_state_server())]
        ends = ["--rounds", str(number), "--step-time", "0.3", "--wait-for-replacement", "60"]
        flags = [*WORKER, *MODES["esync"], *address, *ends]
        arguments = [[*flags, "-ld", str(tmp_path / f"logs-{rank}")] for rank in range(2)]
        for rank in range(2):
            cluster.start_worker(rank, arguments[rank])
        until(cluster, lambda: all(rounds(tmp_path / f"logs-{rank}" / "cpu") for rank in range(2)))
        kills = (0, 1, 1)  # MXNet's own scheduler does not survive the second replacement
        for rank in kills:
            kill(cluster, f"worker-{rank}")
            cluster.start(f"worker-{rank}", arguments[rank])
            until(cluster, lambda rank=rank: f"worker {rank} of 2" in cluster.output(f"worker-{rank}"))
        cluster.finish()
    facts = [json.loads((tmp_path / f"logs-{rank}" / "cpu" / "run.json").read_text()) for rank in range(2)]
    assert [fact["rank"] for fact in facts] == [0, 1]
    assert all(fact["finished"] for fact in facts)
    logs = [rounds(tmp_path / f"logs-{rank}" / "cpu") for rank in range(2)]
    for log in logs:
        assert log[-1]["num_iters"] == number
        assert number - len(kills) <= len(log) <= number  # the round in whose exchange a worker dies may not be logged
        times = [entry["total_time"] for entry in log]
        assert times == sorted(times)
    assert not list(tmp_path.glob("logs-*/cpu/earlier-*"))


@pytest.mark.parametrize("elastic", variants([False, True], quick=[False]))
def test_worker_that_hangs_after_the_run_is_given_up(tmp_path: Path, elastic: bool) -> None:
    ends = ["-m", "async", "--step-time", "0.1", "--rounds", "20", "--no-export", *["--elastic"] * elastic]
    with Cluster(tmp_path, 2, server_flags=["--round-timeout", "12"]) as cluster:
        for rank in range(2):
            cluster.start_worker(rank, [*WORKER, *ends, "-ld", str(tmp_path / f"logs-{rank}")])
        until(cluster, lambda: rounds(tmp_path / "logs-1" / "cpu"))
        cluster.processes["worker-1"].send_signal(signal.SIGSTOP)
        assert cluster.wait("worker-0") == 0
        assert cluster.wait("server-0") == 0
        assert "the run is over; waiting for the goodbye of worker 1 for 1" in cluster.output("server-0")
        assert "gave up after 12 s of waiting for the goodbye of worker 1" in cluster.output("server-0")
        cluster.processes["worker-1"].send_signal(signal.SIGCONT)
        assert cluster.wait("worker-1") == 0
        assert "the run is finished, without this worker" in cluster.output("worker-1")
        assert cluster.wait("scheduler") == 0


def test_replacement_is_waited_for_as_long_as_the_flag_says(tmp_path: Path) -> None:
    """The first replacement comes in time, the second never comes."""
    ends = ["--rounds", "100000", "--no-export", "--step-time", "0.1", "--wait-for-replacement", "20"]
    with Cluster(tmp_path, 2) as cluster:
        arguments = [[*WORKER, "-m", "sync", *ends, "-ld", str(tmp_path / f"logs-{rank}")] for rank in range(2)]
        for rank in range(2):
            cluster.start_worker(rank, arguments[rank])
        until(cluster, lambda: all(rounds(tmp_path / f"logs-{rank}" / "cpu") for rank in range(2)))
        kill(cluster, "worker-1")
        cluster.start("worker-1", [*arguments[1], "--wait-for-replacement", "1"])
        until(cluster, lambda: "worker 1 of 2" in cluster.output("worker-1"))
        kill(cluster, "worker-1")
        assert cluster.wait("worker-0") == 1
        assert "worker 1 at 127.0.0.1:" in cluster.output("worker-0")
        assert "no replacement has come within 1 s (--wait-for-replacement)" in cluster.output("worker-0")


#: Moment → a worker that dies then: when all have met, with its handshake said, or with the shared
#: keys set up.
BEFORE_THE_START = {
    "met": "MXNetStore.send_handshake",
    "introduced": "MXNetStore.init_shared",
    "half-way": "MXNetStore._meet",
}


@pytest.mark.parametrize("moment", variants(BEFORE_THE_START, quick=["introduced"]))
def test_worker_0_that_dies_before_the_start_ends_the_run_and_is_named(tmp_path: Path, moment: str) -> None:
    flags = [*WORKER[2:], "-m", "sync", "--rounds", "3", "--no-export", "-ld", str(tmp_path / "logs")]
    dies = (
        "import os, sys; from esync.exchange.keystores.mxnet_store import MXNetStore; "
        f"{BEFORE_THE_START[moment]} = lambda *_: os.kill(os.getpid(), 9); "
        "from esync.worker import main; sys.exit(main())"
    )
    with Cluster(tmp_path, 3, servers=2) as cluster:
        cluster.start_worker(0, ["-c", dies, *flags])
        for rank in (1, 2):
            cluster.start_worker(rank, ["-m", "esync.worker", *flags])
        for name in ("worker-1", "worker-2", "server-0", "server-1"):
            assert cluster.wait(name) == 1
        for rank in (1, 2):
            output = cluster.output(f"worker-{rank}")
            assert re.search(
                r"worker 0 at 127\.0\.0\.1:\d+ is gone: its connection has ended before the run", output
            ), output
            assert "Traceback" not in output
        assert cluster.wait("scheduler") == 1


#: Moment → the function that worker 0 is about to call then.
MOMENTS = {
    "before the run has begun": "esync.exchange.keystores.mxnet_store:MXNetStore.send_handshake",
    "while a checkpoint is written": "esync.checkpoints.store:CheckpointStore.write",
    "when the end is reached": "esync.models.export:save",
}


def start_two(cluster: Cluster, moment: str, victim: str, number: int, flags: list[str]) -> None:
    """Start two workers, the first of which sends the victim a signal at that moment."""
    folders = [["-ld", str(cluster.folder / f"logs-{rank}")] for rank in range(2)]
    cluster.start_worker(1, [*WORKER, *flags, *folders[1]])
    program = [str(SCRIPTS / "fatal_worker.py"), MOMENTS[moment], str(int(number)), str(cluster.processes[victim].pid)]
    cluster.start_worker(0, [*program, *WORKER[2:], *flags, *folders[0]])


@pytest.mark.parametrize(
    ("moment", "victim"),
    [
        *variants(((moment, "server-1") for moment in MOMENTS), quick=["while a checkpoint is written"]),
        *variants(
            ((moment, "scheduler") for moment in MOMENTS),
            quick=["while a checkpoint is written", "when the end is reached"],
        ),
    ],
)
def test_server_or_scheduler_killed_at_any_moment_ends_or_leaves_finished_run(
    tmp_path: Path, victim: str, moment: str
) -> None:
    """If the run is finished, all processes succeed; otherwise all of them end and name the dead
    one.
    """
    finished = "end" in moment
    checkpoints = ["--checkpoint-dir", str(tmp_path / "checkpoints"), "--checkpoint-every", "2"]
    flags = ["-m", "sync", "--rounds", "5" if finished else "100000", "--step-time", "0.05", *checkpoints]
    with Cluster(tmp_path, 2, servers=2) as cluster:
        start_two(cluster, moment, victim, signal.SIGKILL, flags)
        survivors = {"server-0", "server-1"} - {victim}
        for name in ("worker-0", "worker-1", *survivors):
            assert cluster.wait(name) == (0 if finished else 1), cluster.output(name)
            assert "Traceback" not in cluster.output(name)
        for rank in range(2):
            who = "a parameter server" if victim == "server-1" else "the scheduler"
            assert finished or f"error: {who} at 127.0.0.1:" in cluster.output(f"worker-{rank}")
        if victim != "scheduler":
            assert cluster.wait("scheduler") == (0 if finished else 1)
    if finished:
        assert (tmp_path / "checkpoints" / "model").is_dir()


def test_worker_0_replaced_by_hand_after_the_others_left_writes_the_final_model(tmp_path: Path) -> None:
    """The other worker's slot has been empty for longer, but it has nothing left to do."""
    ends = ["-m", "sync", "--rounds", "3", "--step-time", "0.05", "--wait-for-replacement", "60"]
    checkpoints = ["--checkpoint-dir", str(tmp_path / "checkpoints")]
    flags = [[*WORKER[2:], *ends, *checkpoints, "-ld", str(tmp_path / f"logs-{rank}")] for rank in range(2)]
    itself = "0"  # its process group
    stops = [str(SCRIPTS / "fatal_worker.py"), MOMENTS["when the end is reached"], str(int(signal.SIGSTOP)), itself]
    with Cluster(tmp_path, 2) as cluster:
        cluster.start_worker(1, [*WORKER[:2], *flags[1]])
        cluster.start_worker(0, [*stops, *flags[0]])
        assert cluster.wait("worker-1") == 0
        kill(cluster, "worker-0")
        assert not (tmp_path / "checkpoints" / "model").exists()
        cluster.start("worker-0", [*WORKER[:2], *flags[0]])
        cluster.finish()
    assert (tmp_path / "checkpoints" / "model").is_dir()


#: A program of a user's own, which ends worker 0's server in the middle of the goodbye.
GOODBYE = """
import os, sys
from esync.exchange.keystores.mxnet_store import MXNetStore
from tests.cluster.lenet_worker import backward
import esync
from esync.algorithms import ALGORITHMS
from esync.runtime.mxnet_import import mx
from esync.models.networks import build
look = MXNetStore._without_servers
def last_look(store):
    found = look(store)
    os.kill(int(sys.argv[1]), 9)
    return found
MXNetStore._without_servers = last_look
net = build("lenet", 10, mx.cpu(), seed=0)
trainer = esync.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, algorithm=ALGORITHMS["sync"]())
trainer.start()
for number in range(3):
    if number == 2:
        trainer.stop()
    trainer.step(backward(net, [0, 1]))
trainer.close()
print("closed", flush=True)
"""


def test_program_whose_server_dies_during_close_does_its_work_and_ends(tmp_path: Path) -> None:
    with Cluster(tmp_path, 1, servers=2) as cluster:
        cluster.environment["PYTHONPATH"] = str(SCRIPTS.parent.parent)
        cluster.start_worker(0, ["-c", GOODBYE, str(cluster.processes["server-1"].pid)], interpreter=True)
        assert cluster.wait("worker-0") == 1
        lines = cluster.output("worker-0").splitlines()
        assert lines[0] == "closed"
        assert lines[1].startswith("error: a parameter server at 127.0.0.1:")
        assert lines[1].endswith("MXNet would wait for it for ever: ending, with all work done")
        assert cluster.wait("server-0") == 0


#: A program of a user's own.
OWN_PROGRAM = """
from tests.cluster.lenet_worker import backward
import esync
from esync.runtime.mxnet_import import mx
from esync.models.networks import build

net = build("lenet", 10, mx.cpu(), seed=0)
trainer = esync.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, algorithm="sync")
trainer.start()
trainer.step(backward(net, [0, 1]))
"""


def test_program_that_waits_at_the_start_is_ended_by_ctrl_c(tmp_path: Path) -> None:
    """Python sees the signal only after MXNet's wait."""
    with Cluster(tmp_path, 2) as cluster:
        cluster.environment["PYTHONPATH"] = str(SCRIPTS.parent.parent)
        program = cluster.start_worker(0, ["-c", OWN_PROGRAM], interpreter=True)
        while "waiting for 1 of 2 workers" not in cluster.output("worker-0"):
            assert program.poll() is None, cluster.output("worker-0")
            time.sleep(0.05)
        program.send_signal(signal.SIGINT)
        assert cluster.wait("worker-0") == -signal.SIGINT


@pytest.mark.parametrize(
    "moment", ["before the run has begun", pytest.param("when the end is reached", marks=pytest.mark.long)]
)
def test_state_server_killed_at_the_start_is_restarted_and_at_the_end_not_needed(tmp_path: Path, moment: str) -> None:
    with Cluster(tmp_path, 2) as cluster:
        port = cluster.start_state_server()
        flags = ["-m", "esync", "-ip", "127.0.0.1", "-port", str(port), "--rounds", "5"]
        start_two(cluster, moment, "state-server", signal.SIGKILL, flags)
        assert cluster.wait("state-server") == -signal.SIGKILL
        if moment == "before the run has begun":
            cluster.start_state_server(port)
        cluster.finish()


def test_worker_that_hangs_before_the_start_is_given_up(tmp_path: Path) -> None:
    with Cluster(tmp_path, 2) as cluster:
        flags = ["-m", "sync", "--rounds", "5", "--elastic", "--lease", "3", "--round-timeout", "12"]
        start_two(cluster, "before the run has begun", "worker-1", signal.SIGSTOP, flags)
        assert cluster.wait("worker-0") == 1
        output = cluster.output("worker-0")
        assert re.search(r"gave up after \d+ s of waiting for the handshake of", output), output
        assert "the cluster waits for worker 1 at 127.0.0.1:" in output


def test_worker_that_waits_for_a_place_ends_when_the_server_is_gone(tmp_path: Path) -> None:
    """A worker that hangs keeps the scheduler; the newcomer once waited for the round timeout."""
    flags = ["-m", "sync", "--rounds", "100000", "--step-time", "0.2", "--wait-for-replacement", "60"]
    flags += ["-ld", str(tmp_path / "logs")]
    with Cluster(tmp_path, 2) as cluster:
        for rank in range(2):
            cluster.start_worker(rank, [*WORKER, *flags], ESYNC_DEVICE_FOLDER=f"cpu-{rank}")
        while any(f"worker {rank} is here" not in cluster.output("server-0") for rank in range(2)):
            assert time.monotonic() < cluster.deadline
            time.sleep(0.1)
        cluster.start("worker-2", [*WORKER, *flags])
        while "all places are taken" not in cluster.output("scheduler"):
            assert time.monotonic() < cluster.deadline
            time.sleep(0.1)
        cluster.processes["worker-1"].send_signal(signal.SIGSTOP)
        cluster.processes["server-0"].kill()
        assert cluster.wait("worker-2") == 1
        output = cluster.output("worker-2")
        assert re.search(r"error: server 0 at 127\.0\.0\.1:\d+ is gone: .*nothing can go on", output), output
        assert cluster.wait("scheduler") == 1


@pytest.mark.parametrize("variable", ["DMLC_NUM_WORKER", "DMLC_NUM_SERVER"])
def test_worker_with_another_number_than_the_scheduler_ends_and_names_it(tmp_path: Path, variable: str) -> None:
    with Cluster(tmp_path, 2) as cluster:
        cluster.start("worker-0", [*WORKER, "-m", "sync", "--rounds", "1"], **{variable: "3"})
        assert cluster.wait("worker-0") == 1
        assert f"error: {variable} is 3, but {2 if 'WORKER' in variable else 1} where" in cluster.output("worker-0")


#: Mode → flags with which a round has many iterations, or one.
UNREPLACED = {"sync": (), "async": (), "local-sgd": ("--local-iterations", "1000")}


@pytest.mark.parametrize("mode", variants(UNREPLACED, quick=["sync"]))
def test_worker_that_nobody_replaces_ends_the_run_and_is_named(tmp_path: Path, mode: str) -> None:
    ends = ["--rounds", "100000", "--no-export", "--step-time", "0.1"]
    with Cluster(tmp_path, 3, servers=2) as cluster:
        for rank in range(3):
            logs = ["-ld", str(tmp_path / f"logs-{rank}")]
            cluster.start_worker(rank, [*WORKER, "-m", mode, *UNREPLACED[mode], *ends, *logs])
        until(cluster, lambda: all(f"worker {rank} of 3" in cluster.output(f"worker-{rank}") for rank in range(3)))
        kill(cluster, "worker-2")
        for name in ("worker-0", "worker-1", "server-0", "server-1"):
            assert cluster.wait(name) == 1
            output = cluster.output(name)
            assert re.search(r"worker 2 at 127\.0\.0\.1:\d+ is gone: its connection has ended, and nobody", output), (
                output
            )
            assert "Traceback" not in output
        assert cluster.wait("scheduler") == 0, cluster.output("scheduler")


#: A program whose worker 1 is killed, and whose worker 0 goes on with the argument.
LEAVING_PROGRAM = (
    OWN_PROGRAM
    + """
import os, sys
if trainer.rank == 1:
    os.kill(os.getpid(), 9)
exec(sys.argv[1])
"""
)

#: Programs of users' own that leave without having closed their trainer: how worker 0 ends → with
#: which exit code, and what the server says of the end.
UNCLOSED = {
    "trainer.step(backward(net, [0, 1]))": (1, r"worker 1 at .* is gone: its connection has ended"),
    "raise RuntimeError('no such file')": (1, "worker 0: RuntimeError: no such file"),
    "sys.exit(3)": (3, "worker 0: exit code 3"),
}


@pytest.mark.parametrize("end", variants(UNCLOSED, quick=["sys.exit(3)"]))
def test_program_that_does_not_close_its_trainer_keeps_its_exit_code(tmp_path: Path, end: str) -> None:
    """MXNet aborts where its threads outlive Python. The servers wait for nobody: the run has
    failed.
    """
    with Cluster(tmp_path, 2) as cluster:
        cluster.environment["PYTHONPATH"] = str(SCRIPTS.parent.parent)
        for rank in range(2):
            cluster.start_worker(rank, ["-c", LEAVING_PROGRAM, end], interpreter=rank == 0)
        code, reason = UNCLOSED[end]
        assert cluster.wait("worker-0") == code, cluster.output("worker-0")
        assert "terminate called" not in cluster.output("worker-0")
        assert cluster.wait("server-0") == 1
        assert re.search(f"all workers have left: {reason}", cluster.output("server-0"))
        assert cluster.wait("scheduler") == 0
