"""The shared memory of a host's workers, with real processes, which are killed."""

import contextlib
import os
import resource
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from esync.exchange.host_group import HostMemoryPlan, table_type
from esync.exchange.keystores import shared_host_group
from esync.exchange.keystores.shared_host_group import SharedHostGroup
from esync.exchange.protocol import wire
from esync.runtime.memory_file import exclusive
from tests.support.child import until
from tests.support.process_members import ChildError, ChildProcess

SECONDS = 20
RANKS = (1, 3, 4)
leave, alive = SharedHostGroup.leave, SharedHostGroup.alive


def plan_of(weights: int = 1000, servers: int = 2) -> HostMemoryPlan:
    sizes = {"weights": weights, "statistics": 0, "control": 7}
    return HostMemoryPlan(sizes, 5, [weights + 8] * servers, table_type(len(RANKS), servers, wire.message_type()))


# --- what the processes do ------------------------------------------------------------------------


def joined(token: str, rank: int, patience: float = 600.0) -> SharedHostGroup:
    group = SharedHostGroup(token, rank, RANKS, 3, patience)
    assert group.join(plan_of())
    return group


def not_joined(token: str, rank: int) -> SharedHostGroup:
    return SharedHostGroup(token, rank, RANKS, 3)


def join(group: SharedHostGroup, weights: int = 1000) -> bool:
    return group.join(plan_of(weights))


def add(group: SharedHostGroup, times: int) -> None:
    """Count up, in a field that other processes count up in, too."""
    for _ in range(times):
        with group.locked() as table:
            table["round"] += 1


def counted(group: SharedHostGroup) -> int:
    with group.locked() as table:
        return int(table["round"])


def die_inside(group: SharedHostGroup) -> None:
    """Be killed when half of a change is made."""
    with group.locked() as table:
        table["round"] += 1000
        table["workers"]["nonce"][:] = 5
        os.kill(os.getpid(), signal.SIGKILL)


def stop_inside(group: SharedHostGroup) -> int:
    with group.locked():
        os.kill(os.getpid(), signal.SIGSTOP)
    return os.getpid()


def fill(group: SharedHostGroup, rank: int, value: float) -> None:
    group.contribution(rank, "weights")[:] = value


def all_of(group: SharedHostGroup, rank: int) -> set[float]:
    return set(group.contribution(rank, "weights").tolist())


def wait_for_change(group: SharedHostGroup, seconds: float) -> float:
    """Wait for a change after the last look at the table; return how long it took."""
    start_time = time.monotonic()
    group.wait(seconds)
    return time.monotonic() - start_time


def add_in_threads(group: SharedHostGroup, threads: int, times: int) -> None:
    adders = [threading.Thread(target=add, args=(group, times)) for _ in range(threads)]
    for thread in adders:
        thread.start()
    for thread in adders:
        thread.join()


def fork_child(group: SharedHostGroup) -> int:
    """Fork a process that lives on, as that of a DataLoader does."""
    child = os.fork()
    if child == 0:
        time.sleep(SECONDS)
        os._exit(0)
    return child


def descriptors_of_subprocess(group: SharedHostGroup) -> str:
    """Return what a program has open that a worker starts, even where nothing is closed for it."""
    return subprocess.run(["ls", "-l", "/proc/self/fd"], capture_output=True, text=True, close_fds=False).stdout


def limit_files(group: SharedHostGroup, maximum: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (maximum, maximum))


# --- the tests ------------------------------------------------------------------------------------


@pytest.fixture
def token() -> str:
    return f"test-{secrets.token_hex(8)}"


@pytest.fixture
def start() -> Iterator[Callable[..., ChildProcess]]:
    with ExitStack() as stack:
        yield lambda *words: stack.enter_context(ChildProcess(*words))


def processes_with(token: str) -> list[int]:
    """Return the processes that have the memory open or mapped."""
    processes = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            links = "".join(os.readlink(link) for link in (process / "fd").iterdir())
            if token in links + (process / "maps").read_text():
                processes.append(int(process.name))
    return processes


def test_shared_host_group_processes_that_begin_at_once_share_one_memory(token, start):
    processes = [start(not_joined, token, rank) for rank in RANKS]
    for process in processes:
        process.begin(join)
    assert all(process.end() for process in processes)
    for process, rank in zip(processes, RANKS, strict=True):
        process.call(add, 10)
        process.call(fill, rank, float(rank))
    for process in processes:
        assert process.call(counted) == 30
        assert [process.call(all_of, rank) for rank in RANKS] == [{1.0}, {3.0}, {4.0}]
        assert all(process.call(alive, rank) for rank in RANKS)


def test_shared_host_group_lock_excludes_others_and_who_is_killed_under_it_has_changed_nothing(token, start):
    processes = [start(joined, token, rank) for rank in RANKS]
    for process in processes:
        process.begin(add_in_threads, 3, 40)
    for process in processes:
        process.end()
    one, two, three = processes
    assert one.call(counted) == 3 * 3 * 40
    two.begin(die_inside)
    assert three.call(counted) == 3 * 3 * 40
    one.call(add, 1)
    assert three.call(counted) == 3 * 3 * 40 + 1
    until(lambda: not one.call(alive, 3), SECONDS)
    assert one.call(alive, 4)


def test_shared_host_group_error_under_the_lock_changes_nothing(token):
    group = joined(token, 1)
    with contextlib.suppress(KeyError), group.locked() as table:
        table["round"] = 7
        raise KeyError
    assert counted(group) == 0
    group.leave()


def test_shared_host_group_maker_killed_is_gone_at_once_and_others_share_with_its_replacement(token, start):
    one, two, three = (start(joined, token, rank) for rank in RANKS)
    two.call(add, 5)
    one.call(fill, 1, 8.0)
    one.kill()
    assert not two.call(alive, 1)
    again = start(not_joined, token, 1)
    assert again.call(join)
    assert again.call(counted) == 5
    assert again.call(all_of, 1) == {8.0}
    assert three.call(alive, 1)
    two.kill()
    three.kill()
    assert start(joined, token, 3).call(counted) == 5


def test_shared_host_group_that_all_have_left_is_made_anew(token, start):
    one, two = start(joined, token, 1), start(joined, token, 3)
    one.call(add, 5)
    one.call(leave)
    one.call(leave)
    assert not two.call(alive, 1)
    two.call(leave)
    assert processes_with(token) == []
    assert one.call(join)
    assert one.call(counted) == 0


def test_shared_host_group_forked_process_holds_no_locks(token, start):
    one, two = start(joined, token, 1), start(joined, token, 3)
    one.call(add, 5)
    child = one.call(fork_child)
    try:
        one.kill()
        assert not two.call(alive, 1)
        again = start(joined, token, 1)
        assert again.call(alive, 3)
        two.kill()
        again.kill()
        assert processes_with(token) == [child]
        assert start(joined, token, 3).call(counted) == 0  # what the child keeps belongs to nobody any more
    finally:
        os.kill(child, signal.SIGKILL)


def test_shared_host_group_behind_a_process_that_hangs_exchanges_alone(token, monkeypatch, caplog):
    monkeypatch.setattr(shared_host_group, "_PATIENCE", 0.05)
    with exclusive(f"esync-{token}", 1.0):
        assert not not_joined(token, 1).join(plan_of())
    assert "has kept esync-test" in caplog.text
    group = joined(token, 1)
    group.leave()


def test_shared_host_group_subprocess_inherits_nothing(token, start):
    descriptors = start(joined, token, 1).call(descriptors_of_subprocess)
    assert "pipe:" in descriptors
    assert "memfd" not in descriptors


def test_shared_host_group_with_place_taken_exchanges_alone(token, start):
    one, two = start(joined, token, 1), start(joined, token, 3)
    os.kill(two.number, signal.SIGSTOP)
    other = start(not_joined, token, 3)
    assert not other.call(join)
    other.call(leave)
    assert one.call(alive, 3)
    os.kill(two.number, signal.SIGCONT)
    two.call(add, 1)
    assert one.call(counted) == 1


def test_shared_host_group_with_stopped_holder_of_the_lock_ends_with_its_number(token, start, caplog):
    one, two = start(joined, token, 1, 1.0), start(joined, token, 3)
    two.begin(stop_inside)
    until(lambda: Path(f"/proc/{two.number}/stat").read_text().split()[2] == "T", SECONDS)
    with pytest.raises(ChildError, match=f"process {two.number} of this host has kept what the workers share for 1 s"):
        one.call(add, 1)
    os.kill(two.number, signal.SIGCONT)
    two.end()
    one.call(add, 1)
    assert two.call(counted) == 1


def test_shared_host_group_without_memory_says_how_much_is_needed(token, start):
    process = start(not_joined, token, 1)
    process.call(limit_files, 1_000_000)
    needed = r"ExchangeError: cannot allocate \d+\.\d MB of shared memory: .*; the 3 workers .* leave per_host out"
    with pytest.raises(ChildError, match=needed):
        process.call(join, 1_000_000)
    assert processes_with(token) == []


def test_shared_host_group_wait_ends_with_a_change(token, start):
    one, two = start(joined, token, 1), start(joined, token, 3)
    one.call(counted)
    one.begin(wait_for_change, float(SECONDS))
    two.call(add, 1)
    assert one.end() < SECONDS
    one.call(counted)
    assert one.call(wait_for_change, 0.05) >= 0.05


def test_shared_host_group_rank_of_another_host_is_an_error(token):
    with pytest.raises(ValueError, match="worker 2 is not among those of its host: 1, 3, 4"):
        SharedHostGroup(token, 2, RANKS, 3)
