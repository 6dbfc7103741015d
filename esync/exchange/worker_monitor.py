"""The monitor of a server's workers: which of them are alive, and what their death means.

A worker whose connection has ended without a goodbye is dead. With --elastic the others go on
without it at once; they also go on without one that has been silent for the length of the lease
while others wait for it, because its process or its machine hangs. Without --elastic they wait for
a replacement where one is promised; where none is, the run ends, naming the worker, unless it is
one that rounds do not wait for. At the end of a
run only worker 0 is waited for, where its replacement is promised.

A server looks for dead workers when a message has come, on the thread that handles messages:
workers send heartbeats.
"""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass

from .. import config
from ..membership.failure_detector import FailureDetector
from ..membership.names import is_address
from ..membership.peers import Peers
from .protocol.parameter_server import ParameterServer

log = logging.getLogger(__name__)

#: The worker that writes the final model.
WRITER = 0
#: Seconds between two looks.
LOOK_EVERY = 0.25


@dataclass
class SlotHolder:
    """The process that holds a slot.

    Attributes:
        address: at which it listens, host:port.
        replacement: seconds that the others wait for a replacement once it is gone; infinite: for
            as long as it takes.
        gone: the time at which it was found to be gone; infinite while it is there.
    """

    address: str
    replacement: float
    gone: float = math.inf


class WorkerMonitor:
    """Finds out which workers are gone, and has the server drop them or end the run.

    It is for one thread.

    Args:
        server: the parameter server.
        lease: seconds that a worker may be silent while others wait for it, with --elastic;
            infinite without.
        clock: seconds, monotonic; the one of the server.
        peers: tells which ranks are connected; None: as the kernel says.
    """

    def __init__(
        self, server: ParameterServer, lease: float, clock: Callable[[], float], peers: Peers[int] | None = None
    ) -> None:
        self._server, self._lease, self._clock = server, lease, clock
        self._peers: Peers[int] = Peers() if peers is None else peers
        self._detector: FailureDetector[int] = FailureDetector(config.CONNECTION_GONE)
        self._holders: dict[int, SlotHolder] = {}
        self._looked = clock()

    def joined(self, rank: int, address: str, replacement: float = math.inf) -> None:
        """Watch a worker, which has just sent its handshake.

        Args:
            rank: its slot.
            address: at which it listens, host:port; "" where it does not know; then it is not
                watched.
            replacement: see `SlotHolder`.
        """
        self._detector.forget(rank)
        self._peers.discard(rank)
        host, _, port = address.rpartition(":")
        if port:
            self._holders[rank] = SlotHolder(address, replacement)
            self._peers.add(rank, host, int(port))
            if is_address(host):  # a name may take long to look up
                self._detector.expect(rank, self._clock() + config.PEER_GONE)  # it may be dead by now

    @property
    def patience(self) -> float:
        """Seconds that the server waits for replacements when no worker is left; for any thread."""
        round_state = self._server.round_state
        if round_state.failure or (round_state.over and WRITER in round_state.left):
            return 0.0
        longest = max((holder.replacement for holder in list(self._holders.values())), default=math.inf)
        expected = self._lease < math.inf or longest == math.inf
        return config.WORKERS_GONE if expected else max(config.PEER_GONE, longest)

    def failure_reasons(self) -> list[str]:
        """Return why the run ends, a sentence for each worker that has not said goodbye.

        It may be called in any thread.
        """
        left = self._server.round_state.left
        holders = sorted(self._holders.items())
        return [failure_reason(rank, each.address, each.replacement) for rank, each in holders if rank not in left]

    def look(self) -> None:
        """Find out who is gone, and act on it.

        Does nothing within `LOOK_EVERY` of the last time, unless the run is over.
        """
        now, round_state = self._clock(), self._server.round_state
        if now - self._looked < LOOK_EVERY and not round_state.over:
            return
        self._looked = now
        for rank in self._detector.look(self._peers.connected(), now):
            if rank in round_state.left:
                self._detector.forget(rank)
                self._peers.discard(rank)
            else:
                self._handle_death(rank, now)
        if self._lease < math.inf:
            for rank in range(round_state.slots):
                silent = now - self._server.heard.get(rank, now) > self._lease
                if silent and round_state.member[rank] and round_state.waits_for(rank):
                    self._drop(rank, f"it has not been heard for {self._lease:g} s")

    def _handle_death(self, rank: int, now: float) -> None:
        """Go on without a worker whose connection has ended, await another one, or end the run."""
        holder, round_state = self._holders[rank], self._server.round_state
        holder.gone = min(holder.gone, now)
        # Once the run is over there is nothing left to do but for worker 0, which writes the final
        # model.
        needed = rank == WRITER if round_state.over else True
        awaited = needed and now - holder.gone < holder.replacement and not round_state.failure
        if awaited:
            round_state.awaited.add(rank)
        else:
            round_state.awaited.discard(rank)
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
    """Return why a run ends without a worker.

    Args:
        rank: its slot.
        address: where it listened, host:port.
        waited: seconds that a replacement was waited for.
    """
    if waited == math.inf:
        vain = "no replacement has come"
    elif waited:
        vain = f"no replacement has come within {waited:g} s (--wait-for-replacement)"
    else:
        vain = "nobody has promised to replace it (see --wait-for-replacement, and --elastic to go on without it)"
    return f"worker {rank} at {address} is gone: its connection has ended, and {vain}"
