"""Sync-Switch (Li, Mangoubi, Xu, Guo, ICDCS 2021): synchronous SGD first, asynchronous later, switched in place."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from .. import config
from ..coordination import Watching
from ..coordination.online import GREEDY
from ..exchange import Exchange, Payload, Service
from ..exchange.ledger import Limits
from ..exchange.resumption import Progress
from .every_iteration import EveryIteration
from .outlook import Outlook
from .switch_schedule import Plan, Schedule, decayed

log = logging.getLogger(__name__)


class SyncSwitch(EveryIteration):
    """BSP and ASP on the same servers; weights and momentum stay where they are at a switch.

    The leader, rank 0 unless the rounds go on without it, asks for the switch with its commit of a segment's last
    round; the servers' status tells all workers together with the end of that round, and every commit says how it is to
    be used. What an online policy wants goes the same way. Whoever notices first that the samples of an asynchronous
    segment are used up asks for the way back. A worker that the rounds do not wait for trains on with the others'
    model, and its gradients are put aside, so that its speed can still be told.

    A detour to asynchronous training (policy greedy) uses samples that the schedule has for its asynchronous segments:
    a segment ends when as many samples as it has were used in its own way, and the run when its samples are used up.
    A detour ends before the asynchronous share does.

    Configuration policy (as in the published runs): batch n·B and learning rate n·η in BSP, B and η in ASP, the
    momentum's buffer kept as it is. It holds gradients (v ← μ·v + g; w ← w − rate·v), so that another learning rate
    does not scale what has been gathered. Weight decay is part of g, and is scaled by n with it. Where rounds go on
    without m workers, n − m takes the place of n.

    Args:
        schedule: what was asked for.
        batch_size: of one worker: what a global step of ASP stands for.
        decay: (share of the samples, factor of the learning rate), ascending.
        watching: the online policy against stragglers, and when a worker is one; None: nothing is done about them.
        state_server: host:port of the one that runs the policy; None: as the environment says.
        job: name of this training there.
        statistics: as in `ASGD`, for ASP; in BSP all workers have the mean.

    Attributes:
        plan: once started.
    """

    name = "sync-switch"
    own_statistics = True
    own_rates = False

    def __init__(
        self,
        schedule: Schedule | None = None,
        batch_size: int = 1,
        decay: Sequence[tuple[float, float]] = (),
        watching: Watching | None = None,
        state_server: str | None = None,
        job: str = config.JOB,
        statistics: str = config.STATISTICS,
    ) -> None:
        super().__init__(statistics)
        self._watching, self._address, self._job = watching, state_server, job
        self._outlook: Outlook | None = None
        self._schedule = schedule or Schedule()
        self._batch_size, self._decay = batch_size, tuple(decay)
        self.plan: Plan | None = None
        self.synchronous = self._schedule.begins_synchronous

    @property
    def terms(self) -> dict[str, Any]:
        """What a plan is made of; see `Algorithm.terms`."""
        return {
            "batch size": self._batch_size,
            "schedule": str(self._schedule),
            "decay of the learning rate": str(self._decay),
            "online policy": str(self._watching),
        }

    @property
    def updates(self) -> int:
        """Rounds, in which commits used at once count together; see `Algorithm.updates`."""
        return self.result.round if self.result is not None else 0

    @property
    def evaluate_every(self) -> int | None:
        """Global steps between two evaluations, where the schedule says so."""
        if self.plan is None or self.result is None:
            return None
        return self.plan.settings(self.synchronous, *self._done).evaluate_every

    @property
    def facts(self) -> dict[str, Any]:
        """The share of the samples so far that was used synchronously; `bsp_share` is the planned one."""
        samples, together = self._done
        return {"bsp_share_done": together / samples if samples else None}

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
            if exchange.rank == 0 and self._watching.policy == GREEDY and self._never_asynchronous:
                log.warning(
                    "online policy greedy: the schedule has nothing that could be trained asynchronously ahead of "
                    "time, so all workers wait for stragglers; plan an asynchronous share, or choose elastic"
                )
        super()._begin(exchange)
        self._follow()
        self.round = exchange.exchanges

    def _payload(self, batch_size: int) -> Payload:
        """The gradient with the hyper-parameters of this segment; the leader's says what holds from now on."""
        payload = super()._payload(batch_size)
        if self.plan is None or self.result is None or self.exchange is None:
            raise RuntimeError("the algorithm has not been started")
        (samples, together), apart = self._done, self.result.apart
        workers = self.exchange.workers - len(apart)
        hyper = self.plan.settings(self.synchronous, samples, together).hyper
        rate = hyper.get("learning_rate", payload.learning_rate) * decayed(self._decay, samples / self.plan.samples)
        if self.synchronous:  # where the run will stand after this step
            then = samples + batch_size * workers, together + batch_size * workers
        else:
            then = samples + batch_size, together
        after = self.plan.at(*then).synchronous
        wanted = apart
        leads = self.exchange.rank == min(set(range(self.exchange.workers)) - set(apart), default=0)
        # The way back is asked for by whoever notices first that the asynchronous samples are used up: until the commit
        # of a leader that is slow, the others would use up synchronous ones.
        asks = leads or not self.synchronous
        if self._outlook is not None and after:
            directive = self._outlook.directive
            # On the way back every other worker has a commit under way, and learns of it with the answer to the next.
            late = 2 * (self.exchange.workers - 1) * batch_size
            after = not ((directive.asynchronous or not leads) and self.plan.asynchronous_left(*then) > late)
            wanted = directive.apart
        aside = self.synchronous and self.exchange.rank in apart
        return replace(
            payload,
            learning_rate=rate * (workers if self.synchronous else 1),
            momentum=hyper.get("momentum", payload.momentum),
            weight_decay=hyper.get("weight_decay", payload.weight_decay),
            together=self.synchronous,
            switch=after if asks and after != self.synchronous else None,
            aside=aside,
            apart=wanted if leads and self.synchronous and set(wanted) != set(apart) else None,
        )

    def moving_without_gradient(self, momentum: float, weight_decay: float) -> list[str]:
        """See `Algorithm.moving_without_gradient`; the segment may have hyper-parameters of its own."""
        hyper = self.plan.settings(self.synchronous, *self._done).hyper if self.plan is not None else {}
        return super().moving_without_gradient(hyper.get("momentum", momentum), hyper.get("weight_decay", weight_decay))

    def step(self, batch_size: int) -> None:
        """Send the gradient, take the new model; go on as the servers say."""
        if self.plan is None or self.result is None or self.exchange is None:
            raise RuntimeError("the algorithm has not been started")
        before, result = self.round, self.result
        self.left_out = result.apart if self.synchronous else ()
        self.abandoned = self.exchange.rank in self.left_out
        super().step(batch_size)
        self.round = before + self.exchanged
        if self._outlook is not None and self.plan.at(result.samples, result.samples_together).synchronous:
            self._outlook.step(self.own_seconds)
        self._follow()

    def close(self) -> None:
        """Leave."""
        super().close()
        if self._outlook is not None:
            self._outlook.close()

    @property
    def _never_asynchronous(self) -> bool:
        return self.plan is not None and "10" not in self.plan.order

    @property
    def _done(self) -> tuple[int, float]:
        """Samples used so far, and those of them that were used synchronously."""
        if self.plan is None or self.result is None:
            return 0, 0.0
        together = self.result.samples_together
        return self.result.samples, self.plan.planned_together(self.result.samples) if together is None else together

    def _regained(self, progress: Progress) -> Progress:
        """Take the schedule's word for a checkpoint that does not tell how much was done synchronously."""
        books = progress.books
        if self.plan is None or books is None or books.samples_together is not None:
            return progress
        return replace(
            progress, books=replace(books, samples_together=round(self.plan.planned_together(books.samples)))
        )

    def _follow(self) -> None:
        if self.result is not None and self.result.synchronous is not None:
            self.synchronous = self.result.synchronous
