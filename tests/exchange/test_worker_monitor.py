"""The monitor of workers, with real round states and a scripted clock and connections."""

import math

import numpy as np
import pytest

from esync import config
from esync.exchange.protocol import wire
from esync.exchange.worker_monitor import CHECK_EVERY, WorkerMonitor
from esync.membership.peers import Peers

from ..support.memory_servers import MemoryServers

LEASE = 10.0
#: After so many seconds a connection that has ended makes its worker gone.
GONE = config.CONNECTION_TIMEOUT + 2 * CHECK_EVERY


class Situation:
    """Three workers at ports 90, 91, 92, one server.

    Args:
        synchronous: whether there are rounds.
        lease: of the workers; infinite: rounds wait for everybody.
        replacement: seconds within which another worker is promised for one that is gone.
    """

    def __init__(self, synchronous: bool = True, lease: float = LEASE, replacement: float = math.inf) -> None:
        self.servers = MemoryServers(3, [0.0, 0.0], synchronous=synchronous)
        self.server, self.replacement = self.servers.nodes[0].server, replacement
        self.connected = {("127.0.0.1", 90 + rank) for rank in range(3)}
        peers: Peers[int] = Peers(lambda among: self.connected & set(among))
        self.monitor = WorkerMonitor(self.server, lease, self.servers.clock, peers)
        for rank in range(3):
            self.monitor.joined(rank, f"127.0.0.1:{90 + rank}", replacement)
        self.wait(CHECK_EVERY)

    def lose(self, *ports: int) -> None:
        """End the connections of the workers at these ports."""
        self.connected -= {("127.0.0.1", port) for port in ports}

    def replace(self, rank: int, connected: bool = True) -> None:
        """Let another process, at port 99, take the place of a worker."""
        self.servers.join(rank, nonce=77)
        self.monitor.joined(rank, "127.0.0.1:99", self.replacement)
        self.connected |= {("127.0.0.1", 99)} if connected else set()

    def wait(self, seconds: float, heard: tuple[int, ...] = (0, 1, 2)) -> None:
        """Let time go by, while some workers say something now and then."""
        for _ in range(round(seconds / CHECK_EVERY)):
            self.servers.clock.now += CHECK_EVERY
            for rank in heard:
                self.servers.say(0, rank)
            self.monitor.check()

    def commit(self, *ranks: int, value: float = 1.0) -> None:
        """Let workers send their first payload, of twice that value."""
        for rank in ranks:
            self.servers.send(rank, 1, np.full(2, value, np.float32))

    @property
    def members(self) -> list[int]:
        return np.flatnonzero(self.server.round_state.member).tolist()

    @property
    def failure(self) -> str:
        return self.server.round_state.failure


@pytest.mark.parametrize("synchronous", [True, False])
def test_monitor_drops_worker_whose_connection_ended(synchronous):
    now = Situation(synchronous)
    now.lose(91)
    now.wait(config.CONNECTION_TIMEOUT, heard=(0, 2))
    assert now.members == [0, 1, 2]  # ps-lite may be connecting again
    now.wait(2 * CHECK_EVERY, heard=(0, 2))
    assert now.members == [0, 2]


@pytest.mark.parametrize("committed", [False, True])
def test_monitor_drop_lets_the_round_continue_and_keeps_what_was_committed(committed):
    now = Situation()
    now.commit(0, value=3)
    if committed:
        now.commit(1, value=9)
    else:  # it dies before its commit
        now.servers.deliver(*now.servers.buckets(1, 1, [9, 9]))
    now.lose(91)
    now.wait(GONE, heard=(0, 2))
    assert now.members == [0, 2]
    now.commit(2, value=9)
    assert now.servers.weights().tolist() == [-(3 + 9 + 9 * committed) / (2 + committed)] * 2
    assert now.servers.status()["round"] == 1
    assert now.server.memory.staged_bytes == 0


def test_monitor_drops_silent_worker_only_when_others_wait_for_it():
    now = Situation()
    now.wait(2 * LEASE, heard=(0, 1))
    assert now.members == [0, 1, 2]  # a long iteration, and nobody waits
    now.commit(0, 1)
    now.wait(CHECK_EVERY, heard=(0, 1))
    assert now.members == [0, 1]
    assert now.servers.status()["round"] == 1


def test_monitor_waits_for_slow_worker_with_heartbeats():
    now = Situation()
    now.commit(0, 1)
    now.wait(3 * LEASE)
    assert now.members == [0, 1, 2]


def test_monitor_counts_a_replacement_in_again_and_ignores_late_messages_of_the_dead_worker():
    now = Situation()
    now.lose(91)
    now.wait(2, heard=(0, 2))
    now.replace(1, connected=False)
    before = now.server.active_at[1]
    now.wait(2, heard=(0, 1, 2))  # its connection is not there yet, and 1 has the old nonce
    assert now.members == [0, 1, 2]
    assert now.server.active_at[1] == before
    now.connected.add(("127.0.0.1", 99))
    now.wait(2)
    assert now.members == [0, 1, 2]


def test_monitor_without_replacement_ends_the_run_and_names_the_worker():
    now = Situation(lease=math.inf, replacement=0)
    now.lose(91)
    now.wait(config.CONNECTION_TIMEOUT, heard=(0, 2))
    assert not now.failure
    now.wait(2 * CHECK_EVERY, heard=(0, 2))
    assert now.failure.startswith("worker 1 at 127.0.0.1:91 is gone: its connection has ended, and nobody has promised")
    for rank in (0, 2):
        now.servers.say(wire.LEAVE, rank)
    assert now.server.round_state.can_exit


def test_monitor_notices_worker_that_dies_before_its_connection_was_seen():
    now = Situation(lease=math.inf, replacement=0)
    now.replace(1, connected=False)
    now.wait(config.PEER_TIMEOUT - CHECK_EVERY, heard=(0, 2))
    assert not now.failure
    now.wait(1, heard=(0, 2))
    assert now.failure.startswith("worker 1 at 127.0.0.1:99 is gone")


def test_monitor_waits_for_a_replacement_for_the_given_time():
    now = Situation(lease=math.inf, replacement=60)
    now.lose(91)
    now.wait(GONE + 50, heard=(0, 2))
    now.replace(1)
    now.wait(100)
    assert not now.failure
    now.lose(99)
    now.wait(GONE + 60, heard=(0, 2))
    assert "worker 1 at 127.0.0.1:99 is gone" in now.failure
    assert "no replacement has come within 60 s (--wait-for-replacement)" in now.failure


def test_monitor_waits_forever_for_a_promised_replacement():
    now = Situation(lease=math.inf)
    now.lose(91)
    now.wait(500, heard=(0, 2))
    assert not now.failure
    assert now.members == [0, 1, 2]


@pytest.mark.parametrize(
    ("victim", "promised", "lease"),
    [(0, True, math.inf), (0, True, LEASE), (0, False, LEASE), (1, True, math.inf), (1, True, LEASE)],
)
def test_monitor_after_the_end_waits_only_for_a_promised_worker_0(victim, promised, lease):
    now = Situation(lease=lease, replacement=math.inf if promised else 0)
    now.servers.say(wire.DONE, 1 - victim)
    now.lose(90, 91)
    now.wait(GONE, heard=(2,))
    now.servers.say(wire.DONE, 2)
    now.monitor.check()
    assert not now.failure
    awaited = promised and victim == 0
    assert now.server.round_state.can_exit == (not awaited)
    if awaited:
        now.replace(0, connected=False)
        now.servers.say(wire.DONE, 0, nonce=77)
        assert now.server.round_state.can_exit


def test_monitor_ignores_leave_of_a_dropped_worker_during_the_run():
    now = Situation()
    now.commit(0, 1)
    now.wait(2 * LEASE, heard=(0, 1))  # 2 hangs
    assert now.members == [0, 1]
    now.lose(90, 91)
    now.wait(GONE, heard=(2,))
    now.servers.say(wire.LEAVE, 2)
    now.monitor.check()
    assert not now.server.round_state.can_exit
    assert not now.server.round_state.over
