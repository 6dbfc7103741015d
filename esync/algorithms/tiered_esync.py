"""ESync in tiers: rounds wait for the fastest workers only; slower ones join when they are ready.

The term "tier" is from TiFL (Chai et al., HPDC 2020) and FedAT (Chai et al., SC 2021), which group
clients by measured speed. Here there is one model and one sequence of rounds, those of the first
tier, with ESync's rule among its workers. A worker of a slower tier sends its update relative to
the weights it began with. The next round includes it in its mean like the updates of the first tier.
"""

import logging
from argparse import Namespace
from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import model_validator
from typing_extensions import override

from .. import config
from ..coordination import ExchangeDecision, TierSettings
from ..coordination.tiers import AUTO, NONE
from ..exchange import STATISTICS, WEIGHTS, Control, Payload, Result, Source, Use
from ..runtime.progress import ASIDE, report_event
from .esync import ESync
from .options import inherited, option
from .registry import register
from .styles import Style

log = logging.getLogger(__name__)


@register("tiered", label="Tiered ESync", style=Style("#AA4499", (0, (5, 1, 1, 1)), "x"))
class TieredESync(ESync):
    """ESync whose rounds wait for the fastest workers only.

    The state server divides the workers into tiers by their speeds (`coordination.tiers`). A worker
    whose share of the speed is too small can be left out; it then only measures its speed
    occasionally.
    """

    class Options(ESync.Options):
        """The options of ESync, and of the division into tiers."""

        tiers: str = option(
            AUTO,
            help="tier of each rank, such as 0,0,1; rounds wait for tier 0 only; auto: by speed",
        )
        leave_out: str = option(
            AUTO,
            help="ranks that send nothing, such as 4,5, or none; auto: those that bring too little, or would lengthen "
            "the exchanges",
        )
        leave_out_probe: float = option(
            config.LEAVE_OUT_PROBE,
            gt=0,
            help="seconds between two iterations by which a left-out worker measures its speed",
        )
        weighting: Literal["uniform", "samples", "normalized"] = inherited(ESync.Options, "weighting", "samples")

        @model_validator(mode="after")
        def _lists(self) -> "TieredESync.Options":
            self.tiering  # noqa: B018 - its lists can be read
            if self.local_iterations is not None:
                raise ValueError("--local-iterations: in mode tiered the state server says how many there are")
            return self

        @property
        @override
        def tiering(self) -> TierSettings:
            """The division that the options describe; ValueError where they cannot be read."""
            tiers = None if self.tiers == AUTO else _ranks("tiers", self.tiers, f"{AUTO}, or a tier for each rank")
            if self.leave_out == AUTO:
                return TierSettings(tiers, None)
            if self.leave_out == NONE:
                return TierSettings(tiers, ())
            return TierSettings(tiers, _ranks("leave-out", self.leave_out, f"{AUTO}, {NONE}, or ranks"))

    options: Options
    serverless = False
    instead_of_state_server = "choose a mode without one, such as local-sgd"
    excludes: ClassVar = {}

    def __init__(self, *values: Any, **settings: Any) -> None:
        super().__init__(*values, **settings)
        self.leaves_out = self.options.tiering.leave_out != ()
        self._tier = 0
        self._resting = False  # whether this worker is left out: it sends nothing for now
        # Whether the next round waits for this worker, though it is aside, so that it writes a checkpoint.
        self._awaits_checkpoint = False
        self._rounds_before_exchange = 0  # number of the newest round when the exchange under way began
        self._rounds_per_exchange = 1  # rounds that ended during the last exchange

    @classmethod
    @override
    def check_flags(cls, options: Namespace, typed: Set[str]) -> None:
        super().check_flags(options, typed)
        if "leave_out_probe" in typed and options.leave_out == NONE:
            raise ValueError(f"--leave-out-probe makes no sense beside --leave-out {NONE}: nobody is left out")

    @override
    def check_workers(self, workers: int) -> None:
        self.options.tiering.check(workers)

    @property
    @override
    def prevents_batch_by_speed(self) -> str:
        return "rounds of mode tiered do not wait for slow workers; leave it out, or choose mode esync"

    @property
    def facts(self) -> dict[str, Any]:
        """The tier of this worker, and whether it is left out now."""
        return {**super().facts, "tier": self._tier, "left_out": self._resting}

    def step(self, batch_size: int) -> None:
        """Take one local step, and exchange where it is time; see `ModelAveraging.step`.

        A worker that is left out only measures its speed.
        """
        self.checkpoint_written()  # at the latest
        if self._resting:
            self._probe()
        else:
            super().step(batch_size)

    def _apply_answer(self, answer: ExchangeDecision) -> None:
        """Step aside if this worker is not in the first tier, or is left out."""
        super()._apply_answer(answer)
        assert self.exchange is not None
        aside = answer.tier > 0 or answer.left_out
        if (aside and not self._aside) or (answer.left_out and not self._resting):
            self.exchange.step_aside(resting=answer.left_out)
            self._aside = True
            report_event(ASIDE, aside=True, text=self._left_out_line(answer) if answer.left_out else "")
        self._tier, self._resting = answer.tier, answer.left_out

    def _due(self) -> bool:
        return super()._due() and not self._resting

    @override
    def aggregate(self) -> None:
        """Exchange the model updates; see `ModelAveraging.aggregate`.

        Rounds do not wait until a worker that is aside has written its part of a checkpoint. It
        therefore writes one, with its update, before an exchange during which a checkpoint may
        become due. Worker 0, without which there is no checkpoint, has the next round wait for it.
        """
        checkpoints = self.context.checkpoints
        self._awaits_checkpoint = False
        if self._aside and checkpoints.enabled and self.exchange is not None:
            self._rounds_before_exchange = self.exchange.newest_round()
            if self._leads:
                self._awaits_checkpoint = self._tier > 0 and checkpoints.due(self._rounds_before_exchange + 1)
            else:
                checkpoints.save_ahead(self._rounds_before_exchange + self._rounds_per_exchange)
        super().aggregate()

    @override
    def checkpoint_written(self) -> None:
        if self._awaits_checkpoint and not self.in_flight and self.exchange is not None:
            self._awaits_checkpoint = False
            self.exchange.step_aside()

    @property
    @override
    def _behind(self) -> bool:
        return self._aside and not self._awaits_checkpoint

    def _payload(self, vectors: Mapping[str, Source]) -> Payload:
        use = Use.AS_AGREED
        if self._aside:
            use = Use.BACK if self._tier == 0 or self._awaits_checkpoint else Use.UNAWAITED
        return replace(super()._payload(vectors), control=Control(use))

    def _begin_round(self, result: Result) -> None:
        if self._aside:
            self._rounds_per_exchange = max(1, result.round - self._rounds_before_exchange)
        self._awaits_checkpoint = self._awaits_checkpoint and result.used
        if self._aside and self._tier == 0 and result.used:
            self._aside = False
            report_event(ASIDE, aside=False)
        self.left_out = result.aside
        super()._begin_round(result)

    def _left_out_line(self, answer: ExchangeDecision) -> str:
        share = f"{100 * answer.share:.2g}% of the speed of all" if answer.share else "what is not known yet"
        line = (
            f"left out (--leave-out): it would have brought {share}; it measures its speed every "
            f"{self.options.leave_out_probe:g} s. The built-in worker deals its data to the others, a program of your "
            "own does without them; --leave-out none keeps it in"
        )
        log.info("%s", line)
        return line

    # --- left out ---------------------------------------------------------------------------------

    def _probe(self) -> None:
        """Report the duration of an iteration to the state server, and wait for the next probe.

        When this worker is needed again, it adopts the common model and takes part.
        """
        assert self.exchange is not None
        assert self._coordination is not None
        self.exchange.heartbeat()
        seconds = self._end_iteration()
        self.exchanged, self.abandoned = False, True
        self.recorder.next_iteration()
        self._samples, self._iterations = 0, 0
        self._unasked, self._unasked_seconds = 0, 0.0
        self._asked_after += 1  # the state server ignores a smaller number than that of the question before
        self._apply_answer(self._coordination.ask(self._asked_after, seconds).wait())
        over = self._resting and self.exchange.rest(self.options.leave_out_probe)
        if over or not self._resting:
            self._adopt_model()

    def _adopt_model(self) -> None:
        """Adopt the common model, and take part again; after the end of the run, adopt the last one."""
        replica = self.replica
        with self.recorder.phase(self.exchange_phase):
            replica.open()
            payload = Payload(
                {}, 0, self.options.global_lr, requested={WEIGHTS, STATISTICS}, control=Control(Use.DISCARD)
            )
            merge = replica.begin_overlap() if self._run_ahead else None
            result = self._start_exchange(payload, replica if merge is None else merge).wait()
            replica.close()
        self._resting = False
        self._rounds_before_exchange = result.round
        self._begin_round(result)


def _ranks(flag: str, text: str, expected: str) -> tuple[int, ...]:
    """Return the numbers of a list such as 0,0,1."""
    words = text.split(",")
    if not all(word.strip().isdecimal() for word in words):
        raise ValueError(f"--{flag} {text!r} should be {expected}, with commas in between")
    return tuple(int(word) for word in words)
