"""The real world: interfaces that lead to MXNet's key store, a state server over HTTP, and this machine's clock."""

import math
from collections.abc import Sequence

from . import config
from .coordination import Coordination
from .exchange import Exchange, Specification
from .runtime.device import Device, RealDevice
from .runtime.environment import Cluster, replacement_promised, state_server_address, take_role
from .runtime.phase_timer import PhaseTimer
from .runtime.straggler_injection import NETWORK, StragglerEvent
from .runtime.watchdog import Watchdog


class RealWorld:
    """Makes the real interfaces; see `algorithms.context.World`.

    Args:
        step_time: seconds of one iteration on the slower device that this one stands for; None: as
            fast as it is.
        watchdog: speaks up when something takes long.
        start_timeout: seconds to wait for the other processes of the cluster to appear.
        round_timeout: seconds to wait for the others in one exchange.
        lease: seconds of silence after which the others go on without a worker; infinite: they wait
            for it, or for its replacement.
        straggler_events: when this worker is a straggler on purpose.
        replacement: seconds that the others wait for another worker in the place of this one,
            should it die; they wait for ever where the launcher has promised one.
        collective: how vectors are summed over the workers: by a parameter server ("ps"), or as
            `collectives` says.
    """

    device: Device

    def __init__(
        self,
        step_time: float | None = None,
        watchdog: Watchdog | None = None,
        start_timeout: float = config.START_TIMEOUT,
        round_timeout: float = config.ROUND_TIMEOUT,
        lease: float = math.inf,
        straggler_events: Sequence[StragglerEvent] = (),
        collective: str = config.COLLECTIVE,
        replacement: float = config.WAIT_FOR_REPLACEMENT,
    ) -> None:
        device = RealDevice(step_time, straggler_events)
        self.device, self._straggler = device, device.straggler
        self.recorder = PhaseTimer(self.device.now)
        self.watchdog = watchdog or Watchdog()
        self._start_timeout = start_timeout
        self._round_timeout = round_timeout
        self._lease, self._replacement = lease, replacement
        self._collective = collective

    def exchange(self, specification: Specification) -> Exchange:
        """Connect to MXNet's parameter servers, as the DMLC_* variables say; or to the other ranks of MPI."""
        if self._collective != "ps":
            from .exchange.collectives.worker_exchange import over_mpi

            timeouts = self._start_timeout, self._round_timeout
            return over_mpi(specification, self._collective, self.watchdog, *timeouts, self._inject_delay)
        from .exchange.keystores.mxnet_store import MXNetStore
        from .exchange.protocol.client import ParameterServerExchange

        take_role("worker")
        cluster = Cluster.from_environment()
        timeouts = self._start_timeout, self._round_timeout
        replacement = math.inf if replacement_promised() else self._replacement
        store = MXNetStore(cluster, self.watchdog, *timeouts, self._lease, replacement, self._inject_delay)
        return ParameterServerExchange(specification, store)

    def _inject_delay(self) -> None:
        """Called before anything is sent to a parameter server: a straggler's messages leave later."""
        if longer := self._straggler.delay(NETWORK):
            self.device.sleep(longer)

    def coordination(
        self, address: str | None, rank: int, job: str = config.JOB, delayed: bool = False
    ) -> Coordination:
        """Connect to the state server."""
        from .coordination.client import StateServerClient
        from .coordination.delayed import DelayedClient

        host, port = state_server_address(address)
        client = StateServerClient(host, port, rank=rank, job=job)
        return DelayedClient(client) if delayed else client
