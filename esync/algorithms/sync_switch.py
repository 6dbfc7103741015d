"""Sync-Switch (Li, Mangoubi, Xu, Guo, ICDCS 2021): synchronous SGD first, asynchronous later, switched in place."""

from collections.abc import Sequence
from dataclasses import replace

from .. import config
from ..coordination import Watching
from ..exchange import Exchange, Payload, Service
from ..exchange.ledger import Limits
from .every_iteration import EveryIteration
from .outlook import Outlook
from .switch_schedule import Plan, Schedule, decayed


class SyncSwitch(EveryIteration):
    """BSP and ASP on the same servers; weights and momentum stay where they are at a switch.

    The leader, rank 0 unless the rounds go on without it, asks for the switch with its commit of a segment's last
    round; the servers' status tells all workers together with the end of that round, and every commit says how it is to
    be used. What an online policy wants goes the same way. A worker that the rounds do not wait for trains on with the
    others' model, and its gradients are put aside, so that its speed can still be told.

    Configuration policy (the paper's §4): batch n·B and learning rate n·η in BSP, B and η in ASP, the momentum's buffer
    kept as it is. It holds gradients (v ← μ·v + g; w ← w − rate·v), so that another learning rate does not scale what
    has been gathered. Weight decay is part of g, and is scaled by n with it. Where rounds go on without m workers,
    n − m takes the place of n.

    Args:
        schedule: what was asked for.
        batch_size: of one worker: what a global step of ASP stands for.
        decay: (share of the samples, factor of the learning rate), ascending.
        watching: the online policy against stragglers, and when a worker is one; None: nothing is done about them.
        state_server: host:port of the one that runs the policy; None: as the environment says.
        job: name of this training there.

    Attributes:
        plan: once started.
    """

    name = "sync-switch"

    def __init__(
        self,
        schedule: Schedule | None = None,
        batch_size: int = 1,
        decay: Sequence[tuple[float, float]] = (),
        watching: Watching | None = None,
        state_server: str | None = None,
        job: str = config.JOB,
    ) -> None:
        super().__init__()
        self._watching, self._address, self._job = watching, state_server, job
        self._outlook: Outlook | None = None
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
        if self._watching is not None:
            world = self.surroundings.world
            coordination = world.coordination(self._address, exchange.rank, self._job, delayed=True)
            if exchange.rank == 0 and not exchange.replacement:
                coordination.init(exchange.workers, None, watching=self._watching)
            self._outlook = Outlook(coordination)
        super()._begin(exchange)
        self._follow()
        self.round = exchange.exchanges

    def _payload(self, batch_size: int) -> Payload:
        """The gradient with the hyper-parameters of this segment; the leader's says what holds from now on."""
        payload = super()._payload(batch_size)
        if self.plan is None or self.result is None or self.exchange is None:
            raise RuntimeError("the algorithm has not been started")
        samples, apart = self.result.samples, self.result.apart
        workers = self.exchange.workers - len(apart)
        hyper = self.plan.at(samples).hyper
        rate = hyper.get("learning_rate", payload.learning_rate) * decayed(self._decay, samples / self.plan.samples)
        after = self.plan.at(samples + batch_size * (workers if self.synchronous else 1)).synchronous
        wanted = apart
        if self._outlook is not None and after:
            directive = self._outlook.directive
            after, wanted = not directive.asynchronous, directive.apart
        leads = self.exchange.rank == min(set(range(self.exchange.workers)) - set(apart), default=0)
        aside = self.synchronous and self.exchange.rank in apart
        return replace(
            payload,
            learning_rate=rate * (workers if self.synchronous else 1),
            momentum=hyper.get("momentum", payload.momentum),
            weight_decay=hyper.get("weight_decay", payload.weight_decay),
            together=self.synchronous,
            switch=after if leads and after != self.synchronous else None,
            aside=aside,
            apart=wanted if leads and self.synchronous and set(wanted) != set(apart) else None,
        )

    def step(self, batch_size: int) -> None:
        """Send the gradient, take the new model; go on as the servers say."""
        if self.plan is None or self.result is None or self.exchange is None:
            raise RuntimeError("the algorithm has not been started")
        before, result = self.round, self.result
        self.left_out = result.apart if self.synchronous else ()
        self.abandoned = self.exchange.rank in self.left_out
        super().step(batch_size)
        self.round = before + self.exchanged
        if self._outlook is not None and self.plan.at(result.samples).synchronous:
            self._outlook.step(self.own_seconds)
        self._follow()

    def close(self) -> None:
        """Leave."""
        super().close()
        if self._outlook is not None:
            self._outlook.close()

    def _follow(self) -> None:
        if self.result is not None and self.result.synchronous is not None:
            self.synchronous = self.result.synchronous
