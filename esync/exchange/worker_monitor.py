"""The monitor of a server's workers: which of them are dead, and whether the run goes on without them.

A worker whose connection has ended without a goodbye is dead. With --elastic the others go on
without it at once, and also without a worker that has been silent for the lease while others wait
for it. Without --elastic they wait for a replacement if one is promised. If none is, the run ends
with an error that names the worker, unless rounds do not wait for it. At the end of a run, only a
promised replacement of worker 0 is awaited.

A server checks for dead workers whenever a message has arrived, on the thread that handles
messages. Heartbeats of the workers make sure that this happens often.
"""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass

from .. import config
from ..membership.failure_detector import FailureDetector
from ..membership.peers import Peers
from .protocol.parameter_server import ParameterServer

log = logging.getLogger(__name__)

#: The worker that writes the final model.
WRITER = 0
#: Seconds between two checks.
CHECK_EVERY = 0.25


@dataclass
class SlotHolder:
    """The process that holds a slot.

    Attributes:
        address: at which it listens, host:port.
        replacement: seconds that the others wait for a replacement once it is gone; may be
            infinite.
        disconnected_at: the time at which it was found to be gone; infinite: it is not.
    """

    address: str
    replacement: float
    disconnected_at: float = math.inf


class WorkerMonitor:
    """Detects dead workers, and has the server drop them or end the run.

    Use it in one thread, except where noted.

    Args:
        server: the parameter server.
        lease: seconds that a worker may be silent while others wait for it, with --elastic;
            infinite without.
        clock: seconds, monotonic; the one of the server.
        peers: returns the connected ranks.
    """

    def __init__(self, server: ParameterServer, lease: float, clock: Callable[[], float], peers: Peers[int]) -> None:
        self._server, self._lease, self._clock, self._peers = server, lease, clock, peers
        self._detector: FailureDetector[int] = FailureDetector(config.CONNECTION_TIMEOUT)
        self._holders: dict[int, SlotHolder] = {}
        self._checked_at = clock()

    def joined(self, rank: int, address: str, replacement: float = math.inf) -> None:
        """Monitor a worker, which has just sent its handshake.

        Args:
            rank: its slot.
            address: at which it listens, host:port; "": not known, it is not monitored.
            replacement: see `SlotHolder`.
        """
        self._detector.forget(rank)
        self._peers.discard(rank)
        host, _, port = address.rpartition(":")
        if port:
            self._holders[rank] = SlotHolder(address, replacement)
            self._peers.add(rank, host, int(port))
            self._detector.expect(rank, self._clock() + config.PEER_TIMEOUT)  # it may have died already

    @property
    def patience(self) -> float:
        """Seconds that the server waits for replacements when no worker is left; for any thread."""
        round_state = self._server.round_state
        if round_state.failure or (round_state.over and WRITER in round_state.left):
            return 0.0
        longest = max((holder.replacement for holder in list(self._holders.values())), default=math.inf)
        expected = self._lease < math.inf or longest == math.inf
        return config.NO_WORKERS_TIMEOUT if expected else max(config.PEER_TIMEOUT, longest)

    def failure_reasons(self) -> list[str]:
        """Return a sentence for each worker that is gone without a goodbye; for any thread."""
        left = self._server.round_state.left
        holders = sorted(self._holders.items())
        return [
            failure_reason(rank, holder.address, holder.replacement) for rank, holder in holders if rank not in left
        ]

    def check(self) -> None:
        """Handle the deaths of workers.

        Do nothing within `CHECK_EVERY` of the last check, unless the run is over.
        """
        now, round_state = self._clock(), self._server.round_state
        if now - self._checked_at < CHECK_EVERY and not round_state.over:
            return
        self._checked_at = now
        for rank in self._detector.observe(self._peers.connected(), now):
            if rank in round_state.left:
                self._detector.forget(rank)
                self._peers.discard(rank)
            else:
                self._handle_death(rank, now)
        if self._lease < math.inf:
            for rank in range(round_state.slots):
                silent = now - self._server.active_at.get(rank, now) > self._lease
                if silent and round_state.member[rank] and round_state.waits_for(rank):
                    self._drop(rank, f"it has not been heard for {self._lease:g} s")

    def _handle_death(self, rank: int, now: float) -> None:
        """Go on without a worker whose connection has ended, await a replacement, or end the run."""
        holder, round_state = self._holders[rank], self._server.round_state
        holder.disconnected_at = min(holder.disconnected_at, now)
        needed = rank == WRITER or not round_state.over
        awaited = needed and now - holder.disconnected_at < holder.replacement and not round_state.failure
        if awaited:
            round_state.promised.add(rank)
        else:
            round_state.promised.discard(rank)
        if not round_state.member[rank]:
            return
        if self._lease < math.inf:
            self._drop(rank, "its connection has ended")
        elif not awaited and round_state.aside[rank] and round_state.counted.any():
            self._drop(rank, "its connection has ended, and nobody waits for it")
        elif not awaited:
            if not round_state.over:
                reason = failure_reason(rank, holder.address, holder.replacement)
                log.error("%s", reason)
                self._server.abort(reason)
            self._server.drop(rank)

    def _drop(self, rank: int, reason: str) -> None:
        log.warning("worker %d is left out from now on: %s", rank, reason)
        self._server.drop(rank)


def failure_reason(rank: int, address: str, waited: float) -> str:
    """Return the reason why a run ends after the death of a worker.

    Args:
        rank: its slot.
        address: at which it listened, host:port.
        waited: seconds that the others have waited for a replacement.
    """
    if waited == math.inf:
        reason = "no replacement has come"
    elif waited:
        reason = f"no replacement has come within {waited:g} s (--wait-for-replacement)"
    else:
        reason = "nobody has promised to replace it (see --wait-for-replacement, and --elastic to go on without it)"
    return f"worker {rank} at {address} is gone: its connection has ended, and {reason}"
