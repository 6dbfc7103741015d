"""The real world: MXNet's servers, a state server over HTTP, and this machine's clock."""

import functools
import logging
import math
from collections.abc import Sequence
from dataclasses import replace

from . import config
from .coordination import Coordination
from .exchange import Exchange, Specification
from .exchange.collectives import COLLECTIVES, per_host_refusal
from .exchange.host_group import HostGroup
from .runtime.batch_sizes import StepTime
from .runtime.device import Device, RealDevice
from .runtime.environment import (
    Cluster,
    EnvironmentProblemError,
    replacement_promised,
    state_server_address,
    take_role,
)
from .runtime.phase_timer import PhaseTimer
from .runtime.processes import niceness_of_emulated, set_niceness
from .runtime.straggler_injection import NETWORK, StragglerEvent
from .runtime.watchdog import Watchdog
from .runtime.worker_environment import HostGroupName, WorkerEnvironment

log = logging.getLogger(__name__)


class RealWorld:
    """Connects an algorithm to real servers and clocks; see `algorithms.context.World`.

    Args:
        step_time: seconds of one iteration on the slower device that this one emulates; None: no
            emulation.
        watchdog: warns of long waits.
        start_timeout: seconds to wait for the other processes of the cluster to start.
        round_timeout: seconds to wait for the others in one exchange.
        lease: seconds of silence after which the others go on without a worker; infinite: they wait
            for it or its replacement.
        straggler_events: times at which this worker is an artificial straggler.
        collective: the parameter server ("ps"), or a name in `collectives.COLLECTIVES`.
        replacement: seconds that the others wait for a replacement once this worker is gone;
            ignored if the launcher has promised one.
        job: name of the training on the state server, if the algorithm has none.
        per_host: the most workers of one host that exchange as one; 1: each exchanges by itself.
        host_group: the workers of this host; None: this worker exchanges by itself.
        step_times: of all devices, by which batches are divided; empty: all batches are equal.
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
        job: str = config.JOB,
        per_host: int = 1,
        host_group: HostGroupName | None = None,
        step_times: Sequence[StepTime] = (),
    ) -> None:
        device = RealDevice(step_time, straggler_events)
        self.device, self._straggler = device, device.straggler
        self.recorder = PhaseTimer(self.device.now)
        self.watchdog = watchdog or Watchdog()
        self._start_timeout = start_timeout
        self._round_timeout = round_timeout
        self._lease, self._replacement = lease, replacement
        self._collective, self._job = collective, job
        self.per_host, self._host_group = per_host, host_group
        self.step_times = step_times

    @classmethod
    def from_environment(cls) -> "RealWorld":
        """Make the world that the ESYNC_* variables describe.

        A process that emulates a slower device lowers its priority.

        Raises:
            EnvironmentProblemError: a variable is wrong.
        """
        environment = WorkerEnvironment.read()
        if environment.collective not in COLLECTIVES:
            raise EnvironmentProblemError(
                f"ESYNC_COLLECTIVE is {environment.collective!r}, but should be one of {', '.join(COLLECTIVES)}"
            )
        _lower_priority(niceness_of_emulated(environment.step_time))
        return cls(
            environment.step_time,
            start_timeout=environment.start_timeout,
            round_timeout=environment.round_timeout,
            lease=environment.lease,
            straggler_events=environment.straggler_events,
            collective=environment.collective,
            replacement=environment.wait_for_replacement,
            job=environment.job,
            per_host=environment.per_host,
            host_group=environment.host_group,
            step_times=environment.step_times,
        )

    def exchange(self, specification: Specification) -> Exchange:
        """Connect to MXNet's parameter servers (see DMLC_*), or to the other ranks of MPI.

        Raises:
            EnvironmentProblemError: this collective does not support `per_host`.
            PerHostError: this mode does not support `per_host`.
        """
        timeouts = self._start_timeout, self._round_timeout
        if self._collective != "ps":
            if self.per_host > 1:
                raise EnvironmentProblemError(per_host_refusal(self._collective))
            from .exchange.collectives.worker_exchange import over_mpi

            return over_mpi(specification, self._collective, self.watchdog, *timeouts, self._inject_delay)
        from .exchange.keystores.mxnet_store import MXNetStore
        from .exchange.protocol.client import ParameterServerExchange

        specification = replace(specification, per_host=self.per_host)  # raises PerHostError before connecting
        take_role("worker")
        cluster = Cluster.from_environment()
        replacement = math.inf if replacement_promised() else self._replacement
        store = MXNetStore(cluster, self.watchdog, *timeouts, self._lease, replacement, self._inject_delay)
        return ParameterServerExchange(specification, store, host_group=self._group_of(store.rank))

    def _group_of(self, rank: int) -> HostGroup | None:
        """Return the shared memory of the workers with which this one exchanges as one, if any."""
        from .exchange.keystores.shared_host_group import SharedHostGroup

        if self.per_host == 1:
            return None
        group = self._host_group
        if group is not None and rank not in group.ranks:
            log.warning("worker %d is not among those of this host (%s): it exchanges by itself", rank, group)
            group = None
        token, ranks = ("", (rank,)) if group is None else (group.token, group.ranks)
        return SharedHostGroup(token, rank, ranks, self.per_host, self._round_timeout)

    def _inject_delay(self) -> None:
        """Delay a transmission while this worker is an artificial straggler."""
        if longer := self._straggler.delay(NETWORK):
            self.device.sleep(longer)

    def coordination(
        self, address: str | None, rank: int, job: str = config.JOB, delayed: bool = False
    ) -> Coordination:
        """Connect to the state server.

        A `job` other than the default takes precedence over that of the constructor.
        """
        from .coordination.client import StateServerClient
        from .coordination.delayed import DelayedClient

        host, port = state_server_address(address)
        client = StateServerClient(host, port, rank=rank, job=self._job if job == config.JOB else job)
        return DelayedClient(client) if delayed else client


_lower_priority = functools.cache(set_niceness)  # once for each process, however many Trainers it makes
