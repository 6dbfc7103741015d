"""ESync: local iterations until the state server says that the slowest device is about to be done (paper, Alg. 1)."""

from .. import config
from ..coordination import Coordination
from ..exchange import Payload, Service
from ..measure import CHECK_READY, COMPUTE, GLOBAL_UPDATE, LOCAL_UPDATE
from .base import Algorithm, Surroundings


class ESync(Algorithm):
    """Local iterations, then one exchange of model updates: w ← w + ε·mean(Δ).

    Args:
        global_lr: ε, scales the mean update.
        local_iterations: a fixed number of them per round; None asks the state server instead.
        state_server: its address, host:port; None takes ESYNC_STATE_SERVER from the environment.
        epsilon: seconds that guard the state server's decision; see `coordination.coordinator`.
    """

    name = "esync"
    exchange_phase = GLOBAL_UPDATE

    def __init__(
        self,
        global_lr: float = config.LEARNING_RATE_GLOBAL,
        local_iterations: int | None = None,
        state_server: str | None = None,
        epsilon: float = config.EPSILON,
    ) -> None:
        super().__init__()
        if local_iterations is not None and local_iterations < 1:
            raise ValueError(f"local_iterations is {local_iterations}, but should be 1 or more (or None)")
        self.global_lr = global_lr
        self._fixed = local_iterations
        self._address = state_server
        self._epsilon = epsilon
        self._coordination: Coordination | None = None
        self._samples = 0

    def start(self, surroundings: Surroundings) -> None:
        """Connect, begin with the common model, and tell the state server what is known of this device's speed."""
        super().start(surroundings)
        self.replica.keep_anchor()
        exchange = self._join(Service(rule="add_mean_update", synchronous=True))
        if self._fixed is None:
            self._coordination = surroundings.world.coordination(self._address, exchange.rank)
            if exchange.rank == 0 and not exchange.replacement:
                self._coordination.init(exchange.workers, self._epsilon)
        self._begin(exchange)
        if self._coordination is not None:
            self._coordination.round = self.round + 1
            self._coordination.ask(0, surroundings.capability()).wait()

    def step(self, batch_size: int) -> None:
        """One local step; an exchange when the state server says READY."""
        with self.recorder.phase(LOCAL_UPDATE):
            self.replica.local_step(batch_size)
        with self.recorder.phase(COMPUTE):
            seconds = self.device.end_iteration()
        self._samples += batch_size
        self.local_iterations = 1 if self.exchanged else self.local_iterations + 1
        self.recorder.next_iteration()
        self.exchanged = self._ready(seconds)
        if self.exchanged:
            self.aggregate()

    def _ready(self, seconds: float) -> bool:
        if self._coordination is None:
            return self.local_iterations >= (self._fixed or 1)
        with self.recorder.phase(CHECK_READY):
            return self._coordination.ask(self.local_iterations, seconds).wait()

    def aggregate(self) -> None:
        """Exchange the model updates of all workers, and go on from their mean."""
        if self.exchange is None:
            raise RuntimeError("the algorithm has not been started")
        with self.recorder.phase(GLOBAL_UPDATE):
            replica = self.replica
            replica.open()
            payload = Payload(replica.update(), replica.statistics, self._samples, self.global_lr)
            self.result = self.exchange.start(payload, replica).wait()
            replica.close()
        self.round += self.result.used
        self.exchanged = self.result.used
        self._samples = 0
        if self._coordination is not None and not self.result.finished:
            self._coordination.reset(self.round + 1)
