"""Sync-Switch (Li, Mangoubi, Xu, Guo, ICDCS 2021): synchronous SGD, then asynchronous SGD.

The switch happens in place.
"""

import logging
import os
import re
from argparse import Namespace
from collections.abc import Set
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from typing_extensions import override

from .. import config
from ..coordination import Coordination, JobSettings, OnlinePolicySettings
from ..coordination.straggler_policies import GREEDY, PolicyDirective
from ..coordination.stragglers import Detection
from ..exchange import Control, Exchange, Payload, Specification, Use
from ..exchange.protocol.round_state import Limits
from ..rules import RESET_MOMENTUM
from ..runtime.futures import Handle
from .every_iteration import EveryIteration
from .exchange_options import AsynchronousOptions
from .options import option
from .rate_scaling import decayed
from .registry import register
from .styles import Style
from .switch_schedule import (
    HYPER_PARAMETERS,
    KEEP,
    MOMENTUM_AT_SWITCH,
    RAMPS,
    RESET,
    Schedule,
    SwitchPlan,
)

log = logging.getLogger(__name__)


#: Option → the field of Detection that it sets.
_DETECTION = {f"straggler_{name}": name for name in Detection.__dataclass_fields__}


@register("sync-switch", label="Sync-Switch", style=Style("#D55E00", (0, (8, 2)), "P"))
class SyncSwitch(EveryIteration):
    """BSP and ASP on the same servers, which keep weights and momentum at a switch.

    The leader, rank 0 unless rounds continue without it, requests the switch in its commit of a
    segment's last round; the servers' status announces it to all workers with the end of that
    round, and every commit says how it is to be used. The directives of an online policy travel in
    the same way. The first worker that notices that an asynchronous segment's samples are used up
    requests the switch back. A worker that rounds do not wait for trains on with the others' model;
    its gradients are discarded, but its speed is still reported.

    A detour to asynchronous training (policy greedy) uses samples that the schedule has for its
    asynchronous segments. A synchronous segment ends when its number of samples has been used
    synchronously, an asynchronous one when its number has been used asynchronously, and the run when
    all samples have been used. A detour ends before the samples of the asynchronous segments do.

    Configuration policy (as in the published runs): batch n·B and learning rate n·η in BSP, B and η
    in ASP, the momentum's buffer kept as it is. It holds gradients (v ← μ·v + g; w ← w − rate·v),
    so a change of the learning rate does not scale it. Weight decay is part of g and scaled by n
    with it. While rounds continue without m workers, n − m replaces n. The option `switch_momentum`
    changes the momentum at a switch to ASP.

    Attributes:
        plan: the segments in samples, once started.
    """

    class Options(AsynchronousOptions):
        """The options of the schedule, of its segments, and of the policy for stragglers."""

        switch_order: str = option(
            config.SWITCH_ORDER,
            help="kinds of the segments in order, 1 synchronous and 0 asynchronous: 10, 101, …",
        )
        train_steps: tuple[Annotated[int, Field(ge=1)], ...] = option(
            (), metavar="STEP", help="global step at which each segment ends"
        )
        bsp_share: float | None = option(
            None,
            ge=0,
            le=1,
            help=f"instead of --train-steps: share of --epochs trained synchronously (default: {config.BSP_SHARE})",
        )
        ckpt_frequency: tuple[Annotated[int, Field(ge=1)], ...] = option(
            (), metavar="STEPS", help="global steps between two evaluations, of each segment"
        )
        hparams: tuple[str, ...] = option(
            (),
            metavar="NAME=NUMBER",
            help=f"hyperparameters of each segment, joined by commas: {', '.join(HYPER_PARAMETERS)}, or - for none; "
            "the learning rate is one worker's and multiplies the sum over its batch",
        )
        switch_momentum: Literal["keep", "reset", "zero", "scale", "linear", "doubling"] = option(
            "keep",
            help="momentum at a switch to asynchronous: keep it, reset its buffer, set it to zero, scale it by 1/n (n "
            "workers), or scale it and restore it by 1/n at a time (linear) or by doubling",
        )
        momentum_ramp: float = option(
            config.MOMENTUM_RAMP,
            gt=0,
            le=1,
            metavar="SHARE",
            help="share of all samples after which linear and doubling have restored the momentum",
        )
        online_policy: Literal["none", "elastic", "greedy"] | None = option(
            None,
            help="what to do about stragglers in synchronous segments: continue without them (elastic), train "
            "asynchronously and make up the synchronous share later (greedy), or wait (none) (default: "
            f"{config.ONLINE_POLICY} with a state server, which runs the policy)",
        )
        straggler_window: int = option(
            config.STRAGGLER_WINDOW,
            ge=1,
            le=config.STRAGGLER_WINDOW_MAX,
            help="steps over which a worker's throughput is measured",
        )
        straggler_stride: int = option(config.STRAGGLER_STRIDE, ge=1, help="steps between two checks")
        straggler_raise_after: int = option(
            config.STRAGGLER_RAISE_AFTER, ge=1, help="successive checks after which a slow worker is a straggler"
        )
        straggler_clear_after: int = option(
            config.STRAGGLER_CLEAR_AFTER, ge=1, help="successive checks after which it is no longer one"
        )
        straggler_sigmas: float = option(
            config.STRAGGLER_SIGMAS, ge=0, help="standard deviations below the mean throughput that make a worker slow"
        )
        straggler_floor: float = option(
            config.STRAGGLER_FLOOR,
            gt=0,
            le=1,
            help="share of the mean throughput that a slow worker must also be below",
        )
        batch_size: int = option(1, ge=1, shared="batch_size")
        state_server: str | None = option(None, shared="state_server", per_device=True)
        job: str = option(config.JOB, shared="job", per_device=True)

        @model_validator(mode="after")
        def _fits(self) -> "SyncSwitch.Options":
            self.schedule  # noqa: B018 - its lists fit each other
            if self.switch_momentum != KEEP and not re.search("1[^1]", self.switch_order):
                raise ValueError(
                    f"switch-momentum {self.switch_momentum} is for a switch from synchronous to asynchronous, but "
                    f"switch order {self.switch_order} has none: leave it out, or choose an order such as 10"
                )
            return self

        @property
        def schedule(self) -> Schedule:
            """Schedule that the options describe; ValueError where its lists do not fit."""
            return Schedule(self.switch_order, self.train_steps, self.bsp_share, self.ckpt_frequency, self.hparams)

        @property
        def watching(self) -> OnlinePolicySettings | None:
            """Settings for the state server's policy; None: no policy, or no known server."""
            policy = self.online_policy
            if policy is None:
                address = self.state_server or os.environ.get("ESYNC_STATE_SERVER")
                policy = config.ONLINE_POLICY if address else "none"  # type: ignore[assignment]
            if policy is None or policy == "none":
                return None
            detection = {name: getattr(self, flag) for flag, name in _DETECTION.items()}
            return OnlinePolicySettings(**detection, policy=policy)

    options: Options
    per_worker_rates = False
    switches_synchrony = True
    without_state_server = "nobody looks for stragglers"
    instead_of_state_server = "do without a policy"

    def __init__(self, *values: Any, **settings: Any) -> None:
        super().__init__(*values, **settings)
        options = self.options
        self._schedule, self._decay, self._watching = options.schedule, options.decay, options.watching
        self._straggler_client: StragglerClient | None = None
        self.plan: SwitchPlan | None = None
        self.synchronous = self._schedule.begins_synchronous

    @classmethod
    def check_flags(cls, options: Namespace, typed: Set[str]) -> None:
        """See `Algorithm.check_flags`; something has to say when to switch."""
        super().check_flags(options, typed)
        needless = typed & set(_DETECTION)
        if needless and options.online_policy == "none":
            raise ValueError(f"--{min(needless).replace('_', '-')} makes no sense with --online-policy none")
        if "momentum_ramp" in typed and options.switch_momentum not in RAMPS:
            raise ValueError(f"--momentum-ramp needs --switch-momentum {' or '.join(RAMPS)}")
        if not options.train_steps and not options.epochs:
            raise ValueError(f"--mode {cls.name} needs --train-steps, or --epochs of which --bsp-share is synchronous")

    @property
    @override
    def asks_state_server(self) -> bool:
        return self._watching is not None

    @property
    def effective_options(self) -> dict[str, Any]:
        """See `Algorithm.effective_options`; the policy is the one in effect."""
        followed = self._watching.policy if self._watching is not None else "none"
        share = self.plan.bsp_share if self.plan is not None else self.options.bsp_share
        return {**super().effective_options, "online_policy": followed, "bsp_share": share}

    @property
    def checkpoint_terms(self) -> dict[str, Any]:
        """The settings that make up a plan; see `Algorithm.checkpoint_terms`."""
        options = self.options
        terms = {
            "batch size": options.batch_size,
            "schedule": str(self._schedule),
            "decay of the learning rate": str(self._decay),
            "online policy": str(self._watching),
            "momentum at the switch": options.switch_momentum,
        }
        if options.switch_momentum in RAMPS:
            terms["momentum ramp"] = options.momentum_ramp
        return terms

    @property
    def terms(self) -> dict[str, Any]:
        """The settings that make up a plan, and the evaluated statistics; see `Algorithm.terms`."""
        return {**self.checkpoint_terms, "evaluated statistics": self.options.statistics}

    @property
    def rate_factor(self) -> float:
        """1: the segment's learning rate falls with the samples of the plan; see `_payload`."""
        return 1.0

    @property
    def updates(self) -> int:
        """Rounds, in which commits used at once count together; see `Algorithm.updates`."""
        return self.round

    @property
    def evaluate_every(self) -> int | None:
        """Global steps between two evaluations, where the schedule says so."""
        if self.plan is None:
            return None
        return self.plan.settings(self.synchronous, *self._done).evaluate_every

    @property
    def facts(self) -> dict[str, Any]:
        """Share of the samples used synchronously so far; `bsp_share` is the planned one."""
        samples, together = self._done
        return {"bsp_share_done": together / samples if samples else None}

    def specification(self) -> Specification:
        """Ask for SGD whose buffer outlives a switch; it begins as the schedule does."""
        scalars = {RESET_MOMENTUM: "maximum"} if self.options.switch_momentum == RESET else {}
        return Specification(rule="momentum_sgd", synchronous=self.synchronous, scalars=scalars)

    def _limits(self, exchange: Exchange) -> Limits:
        """Return the limits of the run, with the end of the schedule."""
        limits = self.context.limits
        self.plan = self._schedule.plan(exchange.workers, self.options.batch_size, limits.samples)
        return replace(limits, samples=min(limits.samples, self.plan.samples))

    def _begin(self, exchange: Exchange) -> None:
        if self._watching is not None:
            world = self.context.world
            coordination = world.coordination(self.options.state_server, exchange.rank, self.options.job, delayed=True)
            if exchange.rank == 0 and not exchange.replacement:
                coordination.init(JobSettings(exchange.workers, None, watching=self._watching))
            self._straggler_client = StragglerClient(coordination)
            asynchronous_ahead = self.plan is None or "10" in self.plan.order
            if exchange.rank == 0 and self._watching.policy == GREEDY and not asynchronous_ahead:
                log.warning(
                    "online policy greedy: the schedule has nothing that could be trained asynchronously ahead of "
                    "time, so all workers wait for stragglers; plan an asynchronous share, or choose elastic"
                )
        super()._begin(exchange)
        self._follow()
        self.exchange_count = exchange.exchanges

    def _payload(self, batch_size: int) -> Payload:
        """Return the gradient with this segment's hyper-parameters, and the leader's requests."""
        payload = super()._payload(batch_size)
        assert self.plan is not None
        assert self.exchange is not None
        (samples, together), excluded = self._done, self.result.excluded
        workers = self.exchange.workers - len(excluded)
        hyper = self.plan.settings(self.synchronous, samples, together).hyper
        rate = hyper.get("learning_rate", payload.learning_rate) * decayed(self._decay, samples / self.plan.samples)
        if self.synchronous:  # progress of the run after this step
            progress = samples + batch_size * workers, together + batch_size * workers
        else:
            progress = samples + batch_size, together
        after = self.plan.at(*progress).synchronous
        requested = excluded
        leads = self.exchange.rank == min(set(range(self.exchange.workers)) - set(excluded), default=0)
        # Any worker may request the return to rounds: until the commit of a slow leader, the others
        # would use samples of the synchronous share.
        asks = leads or not self.synchronous
        if self._straggler_client is not None and after:
            directive = self._straggler_client.directive
            # At the return to rounds, every other worker has sent a commit already, and may send
            # one more before it knows.
            late = 2 * (self.exchange.workers - 1) * batch_size
            after = not ((directive.asynchronous or not leads) and self.plan.asynchronous_left(*progress) > late)
            requested = directive.excluded
        use = Use.TOGETHER if self.synchronous else Use.AT_ONCE
        if self.synchronous and self.exchange.rank in excluded:
            use = Use.DISCARD
        switch = after if asks and after != self.synchronous else None
        resets = switch is False and self.options.switch_momentum == RESET
        return replace(
            payload,
            learning_rate=rate * (workers if self.synchronous else 1),
            momentum=self._momentum(payload.momentum),
            weight_decay=hyper.get("weight_decay", payload.weight_decay),
            scalars={RESET_MOMENTUM: 1.0} if resets else {},
            control=Control(
                use,
                switch=switch,
                excluded=requested if leads and self.synchronous and set(requested) != set(excluded) else None,
            ),
        )

    def moving_without_gradient(self, momentum: float, weight_decay: float) -> list[str]:
        """See `Algorithm.moving_without_gradient`; hyper-parameters are the segment's."""
        hyper = self.plan.settings(self.synchronous, *self._done).hyper if self.plan is not None else {}
        return super().moving_without_gradient(self._momentum(momentum), hyper.get("weight_decay", weight_decay))

    def _momentum(self, default: float) -> float:
        """Return the momentum of the next step; `default` is the optimizer's."""
        if self.plan is None:
            return default
        samples, together = self._done
        momentum = self.plan.settings(self.synchronous, samples, together).hyper.get("momentum", default)
        since = None if self.synchronous else self.plan.since_switch(samples, together)
        if since is None or self.exchange is None:
            return momentum
        ramped = since / (self.options.momentum_ramp * self.plan.samples)
        return momentum * MOMENTUM_AT_SWITCH[self.options.switch_momentum](self.exchange.workers, ramped)

    def step(self, batch_size: int) -> None:
        """Send the gradient, receive the new model, and switch if the servers do."""
        assert self.plan is not None
        assert self.exchange is not None
        before, result = self.exchange_count, self.result
        self.left_out = result.excluded if self.synchronous else ()
        self.abandoned = self.exchange.rank in self.left_out
        super().step(batch_size)
        self.exchange_count = before + self.exchanged
        if self._straggler_client is not None and self.plan.at(result.samples, result.samples_together).synchronous:
            self._straggler_client.step(self.step_seconds)
        self._follow()

    def close(self) -> None:
        """Disconnect from the state server and the other workers."""
        super().close()
        if self._straggler_client is not None:
            self._straggler_client.close()

    @property
    def _done(self) -> tuple[int, float]:
        """Number of samples used so far, and of those that were used synchronously."""
        if self.plan is None:
            return 0, 0.0
        together = self.result.samples_together
        return self.result.samples, self.plan.planned_together(self.result.samples) if together is None else together

    def _follow(self) -> None:
        if self.result.synchronous is not None:
            self.synchronous = self.result.synchronous


class StragglerClient:
    """The client of an online policy, which reports the duration of steps and keeps the directive.

    It does not wait for answers; steps until the next answer are reported together.

    Args:
        coordination: of this worker.

    Attributes:
        directive: the newest one received.
    """

    def __init__(self, coordination: Coordination) -> None:
        self._coordination = coordination
        self._question: Handle[PolicyDirective] | None = None
        self._reported, self._steps, self._seconds = 0, 0, 0.0
        self.directive = PolicyDirective()

    def step(self, seconds: float) -> None:
        """Report a step that took that many seconds, without waiting for others."""
        self._steps += 1
        self._seconds += seconds
        if self._question is not None:
            if not self._question.done():
                return
            self.directive = self._question.wait()
        self._question = self._coordination.report_steps(self._reported, self._steps, self._seconds)
        self._reported, self._steps, self._seconds = self._reported + self._steps, 0, 0.0

    def close(self) -> None:
        """Close the connection to the state server."""
        self._coordination.close()
