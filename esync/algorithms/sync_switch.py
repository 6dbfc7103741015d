"""Sync-Switch (Li, Mangoubi, Xu, Guo, ICDCS 2021): synchronous SGD first, asynchronous later, switched in place."""

from collections.abc import Sequence
from dataclasses import replace

from ..exchange import Exchange, Payload, Service
from ..exchange.ledger import Limits
from .every_iteration import EveryIteration
from .switch_schedule import Plan, Schedule, decayed


class SyncSwitch(EveryIteration):
    """BSP and ASP on the same servers; weights and momentum stay where they are at a switch.

    Rank 0 asks for the switch with its commit of a segment's last round; the servers' status tells all workers together
    with the end of that round, and every commit says how it is to be used. Configuration policy (the paper's §4): batch
    n·B and learning rate n·η in BSP, B and η in ASP, the momentum's buffer kept as it is. It holds gradients
    (v ← μ·v + g; w ← w − rate·v), so that another learning rate does not scale what has been gathered. Weight decay is
    part of g, and is scaled by n with it.

    Args:
        schedule: what was asked for.
        batch_size: of one worker: what a global step of ASP stands for.
        decay: (share of the samples, factor of the learning rate), ascending.

    Attributes:
        plan: once started.
    """

    name = "sync-switch"

    def __init__(
        self,
        schedule: Schedule | None = None,
        batch_size: int = 1,
        decay: Sequence[tuple[float, float]] = (),
    ) -> None:
        super().__init__()
        self._schedule = schedule or Schedule()
        self._batch_size, self._decay = batch_size, tuple(decay)
        self.plan: Plan | None = None
        self.synchronous = self._schedule.begins_synchronous

    @property
    def evaluate_every(self) -> int | None:
        """Global steps between two evaluations, where the schedule says so."""
        if self.plan is None or self.result is None:
            return None
        return self.plan.at(self.result.samples).evaluate_every

    def service(self) -> Service:
        """SGD whose buffer outlives a switch; it begins as the schedule does."""
        return Service(rule="momentum_sgd", synchronous=self.synchronous)

    def _limits(self, exchange: Exchange) -> Limits:
        """The schedule's end ends the run, too."""
        limits = self.surroundings.limits
        self.plan = self._schedule.plan(exchange.workers, self._batch_size, limits.samples)
        return replace(limits, samples=min(limits.samples, self.plan.samples))

    def _begin(self, exchange: Exchange) -> None:
        super()._begin(exchange)
        self._follow()
        self.round = exchange.exchanges

    def _payload(self, batch_size: int) -> Payload:
        """The gradient with the hyper-parameters of this segment, and at its end the wish to switch."""
        payload = super()._payload(batch_size)
        if self.plan is None or self.result is None or self.exchange is None:
            raise RuntimeError("the algorithm has not been started")
        samples, workers = self.result.samples, self.exchange.workers
        hyper = self.plan.at(samples).hyper
        rate = hyper.get("learning_rate", payload.learning_rate) * decayed(self._decay, samples / self.plan.samples)
        after = self.plan.at(samples + batch_size * (workers if self.synchronous else 1)).synchronous
        wish = self.exchange.rank == 0 and after != self.synchronous
        return replace(
            payload,
            learning_rate=rate * (workers if self.synchronous else 1),
            momentum=hyper.get("momentum", payload.momentum),
            weight_decay=hyper.get("weight_decay", payload.weight_decay),
            together=self.synchronous,
            switch=after if wish else None,
        )

    def step(self, batch_size: int) -> None:
        """Send the gradient, take the new model; go on as the servers say."""
        before = self.round
        super().step(batch_size)
        self.round = before + self.exchanged
        self._follow()

    def _follow(self) -> None:
        if self.result is not None and self.result.synchronous is not None:
            self.synchronous = self.result.synchronous
