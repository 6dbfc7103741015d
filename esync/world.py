"""The real world: seams that lead to MXNet's key store, a state server over HTTP, and this machine's clock."""

import os

from . import config
from .coordination import Coordination
from .device import Device, RealDevice
from .environment import Cluster, EnvironmentProblemError, take_role
from .exchange import Exchange, Service
from .measure import Recorder
from .watchdog import Watchdog


class RealWorld:
    """Makes the real seams; see `algorithms.base.World`.

    Args:
        step_time: seconds of one iteration on the slower device that this one stands for; None: as fast as it is.
        watchdog: speaks up when something takes long.
        start_timeout: seconds to wait for the other processes of the cluster to appear.
        round_timeout: seconds to wait for the others in one exchange.
    """

    device: Device

    def __init__(
        self,
        step_time: float | None = None,
        watchdog: Watchdog | None = None,
        start_timeout: float = config.START_TIMEOUT,
        round_timeout: float = config.ROUND_TIMEOUT,
    ) -> None:
        self.device = RealDevice(step_time)
        self.recorder = Recorder(self.device.now)
        self.watchdog = watchdog or Watchdog()
        self._start_timeout = start_timeout
        self._round_timeout = round_timeout

    def exchange(self, service: Service) -> Exchange:
        """Connect to MXNet's parameter servers, as the DMLC_* variables say."""
        from .exchange.kvstore_worker import KVStoreExchange

        take_role("worker")
        cluster = Cluster.from_environment()
        return KVStoreExchange(service, cluster, self.watchdog, self._start_timeout, self._round_timeout)

    def coordination(self, address: str | None, rank: int) -> Coordination:
        """Connect to the state server."""
        from .coordination.client import StateServerClient

        address = address or os.environ.get("ESYNC_STATE_SERVER", "")
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise EnvironmentProblemError(
                f"the state server's address is {address!r}, but should be host:port; give it to the algorithm, with "
                "--state-server-ip and --state-server-port, or in ESYNC_STATE_SERVER (or fix the number of local "
                "iterations with --local-iterations)"
            )
        return StateServerClient(host, int(port), rank=rank)
