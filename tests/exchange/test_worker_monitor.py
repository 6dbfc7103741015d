"""The monitor of workers, with real round states and a scripted clock and connections."""

import math

import numpy as np
import pytest

from esync import config
from esync.exchange.protocol import wire
from esync.exchange.worker_monitor import CHECK_EVERY, WorkerMonitor
from esync.membership.peers import Peers

from .memory_servers import MemoryServers

LEASE = 10.0


class Situation:
    """Three workers at ports 90, 91, 92, one server."""

    def __init__(self, synchronous: bool = True) -> None:
        self.servers = MemoryServers(3, [0.0, 0.0], synchronous=synchronous)
        self.server = self.servers.nodes[0].server
        self.connected = {("127.0.0.1", 90 + rank) for rank in range(3)}
        self.peers: Peers[int] = Peers(lambda among: self.connected & set(among))
        self.watch(LEASE)

    def watch(self, lease: float, replacement: float = math.inf) -> None:
        """Have a new monitor watch all workers."""
        self.monitor = WorkerMonitor(self.server, lease, self.servers.clock, self.peers)
        for rank in range(3):
            self.monitor.joined(rank, f"127.0.0.1:{90 + rank}", replacement)
        self.pass_by(CHECK_EVERY)

    def lose(self, *ports: int) -> None:
        """End the connections of the workers at these ports."""
        self.connected -= {("127.0.0.1", port) for port in ports}

    def pass_by(self, seconds: float, heard: tuple[int, ...] = (0, 1, 2)) -> None:
        """Time goes by, while some workers say something now and then."""
        for _ in range(round(seconds / CHECK_EVERY)):
            self.servers.clock.now += CHECK_EVERY
            for rank in heard:
                self.servers.say(0, rank)
            self.monitor.check()

    @property
    def members(self) -> list[int]:
        return np.flatnonzero(self.server.round_state.member).tolist()


@pytest.mark.parametrize("synchronous", [True, False])
def test_monitor_drops_worker_whose_connection_ended(synchronous):
    now = Situation(synchronous)
    now.lose(91)
    now.pass_by(config.CONNECTION_GONE, heard=(0, 2))
    assert now.members == [0, 1, 2]  # ps-lite may be connecting again
    now.pass_by(2 * CHECK_EVERY, heard=(0, 2))
    assert now.members == [0, 2]


def test_monitor_drop_lets_the_round_continue_with_the_others():
    now = Situation()
    values = np.float32([3, 6])
    now.servers.send(0, 1, values)
    now.servers.deliver(*now.servers.buckets(1, 1, values))  # dies before its commit
    now.servers.send(2, 1, 3 * values)
    now.lose(91)
    now.pass_by(config.CONNECTION_GONE + 2 * CHECK_EVERY, heard=(0, 2))
    assert now.servers.weights().tolist() == [-6, -12]  # the mean over two
    assert now.servers.status()["round"] == 1
    assert now.server.memory.staged_bytes == 0


def test_monitor_drop_keeps_the_commits_of_the_dropped_worker():
    now = Situation()
    for rank in (0, 1):
        now.servers.send(rank, 1, np.float32([3, 3]))
    now.lose(91)
    now.pass_by(config.CONNECTION_GONE + 2 * CHECK_EVERY, heard=(0, 2))
    assert now.members == [0, 2]
    now.servers.send(2, 1, np.float32([6, 6]))
    assert now.servers.weights().tolist() == [-4, -4]


def test_monitor_drops_silent_worker_only_when_others_wait_for_it():
    now = Situation()
    now.pass_by(2 * LEASE, heard=(0, 1))
    assert now.members == [0, 1, 2]  # a long iteration, and nobody waits
    for rank in (0, 1):
        now.servers.send(rank, 1, np.float32([1, 1]))
    now.pass_by(CHECK_EVERY, heard=(0, 1))
    assert now.members == [0, 1]
    assert now.servers.status()["round"] == 1


def test_monitor_waits_for_slow_worker_with_heartbeats():
    now = Situation()
    for rank in (0, 1):
        now.servers.send(rank, 1, np.float32([1, 1]))
    now.pass_by(3 * LEASE)
    assert now.members == [0, 1, 2]


def test_monitor_counts_a_replacement_in_again():
    now = Situation()
    now.lose(91)
    now.pass_by(2, heard=(0, 2))
    now.servers.join(1, nonce=77)
    now.monitor.joined(1, "127.0.0.1:99")
    now.pass_by(2, heard=(0, 2))  # its connection is not there yet
    assert now.members == [0, 1, 2]
    now.connected.add(("127.0.0.1", 99))
    now.pass_by(2)
    assert now.members == [0, 1, 2]


def test_monitor_ignores_late_messages_of_the_dead_worker():
    now = Situation()
    now.servers.join(1, nonce=77)
    before = now.server.active_at[1]
    now.servers.clock.now += 1
    now.servers.say(0, 1)  # with the old nonce
    assert now.server.active_at[1] == before


class NotElastic(Situation):
    """Without --elastic: rounds wait for everybody."""

    def __init__(self, replacement: float) -> None:
        super().__init__()
        self.watch(math.inf, replacement)

    @property
    def failure(self) -> str:
        return self.server.round_state.failure


GONE = config.CONNECTION_GONE + 2 * CHECK_EVERY


def test_monitor_without_replacement_ends_the_run_and_names_the_worker():
    now = NotElastic(replacement=0)
    now.lose(91)
    now.pass_by(config.CONNECTION_GONE, heard=(0, 2))
    assert not now.failure
    now.pass_by(2 * CHECK_EVERY, heard=(0, 2))
    assert now.failure.startswith("worker 1 at 127.0.0.1:91 is gone: its connection has ended, and nobody has promised")
    for rank in (0, 2):
        now.servers.say(wire.LEAVE, rank)
    assert now.server.round_state.can_exit


def test_monitor_notices_worker_that_dies_before_its_connection_was_seen():
    now = NotElastic(replacement=0)
    now.servers.join(1, nonce=77)
    now.monitor.joined(1, "127.0.0.1:99", 0)
    now.pass_by(config.PEER_GONE - CHECK_EVERY, heard=(0, 2))
    assert not now.failure
    now.pass_by(1, heard=(0, 2))
    assert now.failure.startswith("worker 1 at 127.0.0.1:99 is gone")


def test_monitor_waits_for_a_replacement_for_the_given_time():
    now = NotElastic(replacement=60)
    now.lose(91)
    now.pass_by(GONE + 50, heard=(0, 2))
    now.servers.join(1, nonce=77)
    now.monitor.joined(1, "127.0.0.1:99", 60)
    now.connected.add(("127.0.0.1", 99))
    now.pass_by(100)
    assert not now.failure
    now.lose(99)
    now.pass_by(GONE + 60, heard=(0, 2))
    assert "worker 1 at 127.0.0.1:99 is gone" in now.failure
    assert "no replacement has come within 60 s (--wait-for-replacement)" in now.failure


def test_monitor_waits_forever_for_a_promised_replacement():
    now = NotElastic(replacement=math.inf)
    now.lose(91)
    now.pass_by(500, heard=(0, 2))
    assert not now.failure
    assert now.members == [0, 1, 2]


@pytest.mark.parametrize(
    ("victim", "promised", "elastic"),
    [(0, True, False), (0, True, True), (0, False, True), (1, True, False), (1, True, True)],
)
def test_monitor_after_the_end_waits_only_for_a_promised_worker_0(victim, promised, elastic):
    other = 1 - victim
    replacement = math.inf if promised else 0
    now = NotElastic(replacement)
    if elastic:
        now.watch(LEASE, replacement)
    now.servers.say(wire.DONE, other)
    now.lose(90, 91)
    now.pass_by(GONE, heard=(2,))
    now.servers.say(wire.DONE, 2)
    now.monitor.check()
    assert not now.failure
    awaited = promised and victim == 0
    assert now.server.round_state.can_exit == (not awaited)
    if awaited:
        now.servers.join(0, nonce=77)
        now.monitor.joined(0, "127.0.0.1:99", replacement)
        now.servers.say(wire.DONE, 0, nonce=77)
        assert now.server.round_state.can_exit


def test_monitor_ignores_leave_of_a_dropped_worker_during_the_run():
    now = Situation()
    for rank in (0, 1):
        now.servers.send(rank, 1, np.float32([1, 1]))
    now.pass_by(2 * LEASE, heard=(0, 1))  # 2 hangs
    assert now.members == [0, 1]
    now.lose(90, 91)
    now.pass_by(GONE, heard=(2,))
    now.servers.say(wire.LEAVE, 2)
    now.monitor.check()
    assert not now.server.round_state.can_exit
    assert not now.server.round_state.over
