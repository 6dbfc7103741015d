"""The server's end of the protocol: it processes commands and pushes in order of arrival."""

import logging
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import numpy as np

from ..codecs.factory import codec_of
from ..codecs.uncompressed import UncompressedCodec
from .handshake import Command, Handshake, Heartbeat, StartNotice
from .parameter_server import ParameterServer
from .payload_staging import Memory
from .round_state import RoundState

log = logging.getLogger(__name__)

#: Number of the server that decides when the run ends.
FIRST = 0


class EndpointMonitor(Protocol):
    """The part of a `worker_monitor.WorkerMonitor` that the endpoint needs."""

    def joined(self, rank: int, address: str, replacement: float) -> None:
        """Monitor a worker, which has just sent its handshake.

        Args:
            rank: its slot.
            address: at which it listens.
            replacement: seconds that the others wait for a replacement once it is gone.
        """

    def check(self) -> None:
        """Check which workers are gone; called after every push."""


class Endpoint:
    """Passes the workers' commands and pushes to one parameter server.

    The first handshake sets the server up; later ones are compared with it.

    Args:
        shard: number of this server.
        clock: seconds, monotonic.
        memory: allocates the memory in which payloads are staged and added up; None: host memory.
        make_monitor: makes the monitor of the server's workers, given the server and a lease in
            seconds; None: there is no monitor.
    """

    def __init__(
        self,
        shard: int,
        clock: Callable[[], float],
        memory: Memory | None = None,
        make_monitor: Callable[[ParameterServer, float], EndpointMonitor] | None = None,
    ) -> None:
        self._shard, self._clock, self._memory = shard, clock, memory
        self._make_monitor = make_monitor
        self._server: ParameterServer | None = None
        self._monitor: EndpointMonitor | None = None
        self._notice: StartNotice | None = None

    @property
    def server(self) -> ParameterServer:
        """The parameter server, made by the first handshake."""
        if self._server is None:
            raise RuntimeError("no handshake has come to this server yet")
        return self._server

    def command(self, command: Command) -> None:
        """Process a command: a handshake, a heartbeat, or the news that a worker has resumed."""
        if isinstance(command, Handshake):
            self._on_handshake(command)
        elif isinstance(command, Heartbeat):
            self.server.record_activity(command.rank, command.nonce)
            if self._monitor is not None:
                self._monitor.check()
        elif self._server is not None:
            self._server.resume(command.rank, command.nonce, command.exchanges, command.progress)

    def push(self, key: int, received: np.ndarray, stored: np.ndarray) -> None:
        """See `ParameterServer.push`."""
        self.server.push(key, received, stored)
        if self._monitor is not None:
            self._monitor.check()

    def _on_handshake(self, handshake: Handshake) -> None:
        if self._server is None or self._notice is None:
            self._server = serve(handshake, self._shard, self._clock, self._memory)
            self._notice = StartNotice(handshake)
            if self._make_monitor is not None:
                self._monitor = self._make_monitor(self._server, handshake.lease)
        self._server.join(handshake.rank, handshake.nonce, handshake.offers)
        if self._monitor is not None:
            self._monitor.joined(handshake.rank, handshake.address, handshake.replacement)
        notice, round_state = self._notice, self._server.round_state
        if differences := notice.first.differences(handshake):
            pair = f"worker {handshake.rank} does not match worker {notice.first.rank}"
            round_state.abort(f"{pair}: {'; '.join(differences)}")
        notice.add(handshake)
        round_state.notice = notice.text()
        if round_state.notice and notice.workers == handshake.slots:
            log.warning("%s", round_state.notice)
        log.debug("worker %d of %d is here", handshake.rank, handshake.slots)


def serve(
    handshake: Handshake, shard: int, clock: Callable[[], float], memory: Memory | None = None
) -> ParameterServer:
    """Make the parameter server that the first worker's handshake describes.

    Args:
        handshake: of the first worker.
        shard: number of this server.
        clock: seconds, monotonic.
        memory: in which the server works; None: host memory, which sparse and packed messages
            always use.
    """
    # Clocks differ between servers, so only the one that decides when the run ends has the time limit.
    limits = handshake.limits if shard == FIRST else replace(handshake.limits, seconds=math.inf)
    specification = handshake.specification
    round_state = RoundState(
        handshake.slots,
        specification.synchronous,
        limits,
        staleness=specification.staleness,
        decides=shard == FIRST,
        added=specification.scalars,
    )
    layout = handshake.layout()
    codec = codec_of(specification, layout, handshake.slots)
    if not isinstance(codec, UncompressedCodec):
        memory = None
    uplink, downlink = codec.uplink(shard), codec.downlink(shard)
    rules, weightings = specification.rules(), specification.weightings()
    return ParameterServer(layout, round_state, uplink, downlink, rules, clock, memory, weightings)
