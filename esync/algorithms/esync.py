"""ESync (Li, Zhou, Yu): local iterations until the slowest device has nearly finished.

The state server tells each worker when to exchange.
"""

import logging
import math
from argparse import Namespace
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from typing_extensions import override

from .. import config
from ..coordination import Coordination, ExchangeDecision, JobSettings, TierSettings
from ..exchange import Exchange, Payload, Result, Source
from ..exchange.codecs.quantization import AUTO, COMPRESSIONS
from ..runtime.batch_sizes import EQUAL_ROUNDS, Division
from ..runtime.futures import Handle
from ..runtime.phase_timer import CHECK_READY
from ..runtime.progress import SETTINGS, report_event
from .automatic_interval import LocalIterations
from .model_averaging import ModelAveraging
from .options import inherited, option
from .registry import register
from .styles import Style

log = logging.getLogger(__name__)

#: Options that have no meaning where nobody asks a state server.
_FOR_THE_STATE_SERVER = frozenset(
    {"state_server_ip", "state_server_port", "epsilon", "slowest_iterations", "query_mode"}
)


@register("esync", label="ESync", style=Style("#0072B2", "-", "o"))
class ESync(ModelAveraging):
    """Local iterations until the state server answers READY, then one exchange of model updates.

    w ← w + ε·mean(Δ). The option `local_iterations` fixes their number; no state server is asked
    then.
    """

    class Options(ModelAveraging.Options):
        """The options of the state server's decision."""

        local_iterations: LocalIterations | None = inherited(ModelAveraging.Options, "local_iterations", None)
        state_server: str | None = option(None, shared="state_server", per_device=True)
        job: str = option(config.JOB, shared="job", per_device=True)
        epsilon: Annotated[float, Field(ge=0)] | Literal["auto"] = option(
            config.EPSILON, help="margin of READY in seconds; auto: from the jitter of iterations and questions"
        )
        slowest_iterations: Annotated[int, Field(ge=1)] | Literal["auto"] = option(
            config.SLOWEST_ITERATIONS,
            help="local iterations of the slowest device per round; auto: as many as fit into "
            f"{config.ROUND_ITERATIONS} iterations of the fastest one, more where exchanges are long",
        )
        query_mode: Literal["blocking", "delayed-ack"] = option(
            config.QUERY_MODE,
            per_device=True,
            help="wait for the state server's answers, or train on and abandon the iteration in flight when READY "
            "arrives (paper, section 4.2)",
        )

        @property
        @override
        def asks_state_server(self) -> bool:
            return self.local_iterations is None

        @property
        def tiering(self) -> TierSettings:
            """How the state server divides the workers: not at all."""
            return TierSettings((), ())

    options: Options
    excludes: ClassVar = {
        "local_iterations": (
            _FOR_THE_STATE_SERVER,
            "it fixes the number of local iterations; nobody asks a state server then",
        )
    }
    instead_of_state_server = "fix the number of local iterations with local_iterations"

    def __init__(self, *values: Any, **settings: Any) -> None:
        super().__init__(*values, **settings)
        self._coordination: Coordination | None = None
        self._question: Handle[ExchangeDecision] | None = None
        self._asked_after = 0  # local iterations at the newest question
        self._asked_at = 0.0
        self._free_until = -math.inf  # the device's time at the end of a lease, before which nothing is asked
        self._ready_after = math.inf  # local iterations at the question that the last round's READY answered
        self._unasked, self._unasked_seconds = 0, 0.0  # iterations since the newest question, and what they took
        self._last = 0.0  # seconds of the newest iteration
        self._complete = True
        self._aside = False  # whether rounds do not wait for this worker
        self._chosen: list[dict[str, Any]] = []  # settings that the state server has chosen, by the first round
        self._compression = next(reversed(COMPRESSIONS)) if self.weight_compression == AUTO else ""

    @classmethod
    @override
    def check_flags(cls, options: Namespace, typed: Set[str]) -> None:
        super().check_flags(options, typed)
        if options.overlap and "query_mode" in typed and options.query_mode == "blocking":
            raise ValueError("--overlap never waits for the state server's answers, --query-mode blocking does")

    @property
    @override
    def asks_state_server(self) -> bool:
        return self.options.asks_state_server

    @property
    def equal_updates(self) -> bool:
        """See `Algorithm.equal_updates`; the state server gives each worker a number of its own."""
        return not self.asks_state_server

    @property
    @override
    def batch_division(self) -> Division:
        return EQUAL_ROUNDS if self.asks_state_server else super().batch_division

    def _begin(self, exchange: Exchange) -> None:
        """Take over the common model, and tell the state server this device's speed, if known."""
        options, world = self.options, self.context.world
        tiering = self._tiering
        if self.asks_state_server:
            delayed = options.query_mode == "delayed-ack" or options.overlap
            self._coordination = world.coordination(options.state_server, exchange.rank, options.job, delayed)
            if exchange.rank == 0 and not exchange.replacement:
                epsilon = None if isinstance(options.epsilon, str) else options.epsilon
                divided = tiering.divides or tiering.exchange_share is not None
                setting = options.slowest_iterations
                first = config.SLOWEST_ITERATIONS if isinstance(setting, str) else setting
                settings = JobSettings(exchange.workers, epsilon, first, tiering=tiering if divided else None)
                self._coordination.init(settings)
        super()._begin(exchange)
        if self._coordination is not None and not self.result.finished:
            self._coordination.round = self._round_of_job()
            self._aside = exchange.rank in self.result.aside
            if exchange.replacement or self._aside:
                members, aside = self._members(self.result), self._aside_field
                self._coordination.reset(self._round_of_job(), rejoin=exchange.replacement, members=members, **aside)
            self._apply_answer(self._coordination.ask(0, self.context.capability()).wait())

    @override
    def _count_iteration(self, batch_size: int, seconds: float) -> None:
        super()._count_iteration(batch_size, seconds)
        self._unasked += 1
        self._unasked_seconds += seconds
        self._last = seconds

    def _abandons_step(self) -> bool:
        """Return whether READY has come while the gradients were computed.

        A worker that runs ahead is not waited for, and never gives up.
        """
        return not self._run_ahead and self._called()

    def _due(self) -> bool:
        """Return whether to exchange after this iteration; ask if it is time to."""
        if self._coordination is None:
            return super()._due()
        enough = self._iterations >= self.max_iterations
        with self.recorder.phase(CHECK_READY):
            if self._called():
                return True
            if self._question is None and self.device.now() >= self._free_until and self._unasked:
                self._ask()
            if enough and self._question is not None:
                self._question.wait()  # an answer to this round must not be taken for one to the next
            return self._called() or enough

    def _ask(self) -> None:
        """Ask whether to exchange; wait for the answer where another iteration would be in vain."""
        assert self._coordination is not None
        mean, self._unasked, self._unasked_seconds = self._unasked_seconds / self._unasked, 0, 0.0
        self._asked_after, self._asked_at = self._iterations, self.device.now()
        self._question = self._coordination.ask(self._iterations, mean)
        if self._asked_after >= self._ready_after and self._last > self._coordination.round_trip:
            # The last round got READY at this point, and the answer comes long before another
            # iteration would end: to begin one would only make the others wait.
            self._question.wait()

    def _called(self) -> bool:
        """Return whether READY has arrived; keep the lease of a NOT-READY."""
        if self._question is None or not self._question.done():
            return False
        question, self._question = self._question, None
        answer = question.wait()
        self._apply_answer(answer)
        if answer.ready:
            self._ready_after = self._asked_after
        else:
            self._free_until = self._asked_at + answer.lease
        return answer.ready

    @cached_property
    def _tiering(self) -> TierSettings:
        """How the state server divides the workers, and what it chooses for each round."""
        iterations, compression = self.options.slowest_iterations == "auto", self.weight_compression == AUTO
        share = config.EXCHANGE_SHARE_OVERLAPPED if self._run_ahead else config.EXCHANGE_SHARE
        return replace(
            self.options.tiering,
            exchange_share=share if iterations or compression else None,
            chooses_iterations=iterations,
            compressions=COMPRESSIONS if compression else {},
        )

    def _apply_answer(self, answer: ExchangeDecision) -> None:
        """Do what an answer says beside READY and NOT-READY; no exchange is under way."""
        if answer.iterations:
            self._compression = answer.compression
            self._note_settings(
                {"iterations": answer.iterations, "compression": answer.compression or self.weight_compression}
            )

    def _note_settings(self, chosen: dict[str, Any]) -> None:
        """Keep the settings of a round for run.json, and print them where they have changed."""
        chosen |= {"aside": list(self.result.aside), "left_out": list(self.result.resting)}
        before = self._chosen[-1] if self._chosen else {}
        if chosen.items() <= before.items():
            return
        self._chosen.append({"round": self.round + 1, **chosen})
        if self._leads:
            aside = chosen.get("aside", [])
            others = self.exchange.workers - 1 if self.exchange is not None else 0
            speeds = self.effective_workers  # 1 until another worker has joined
            alone = speeds <= 1 + config.PLAN_GAIN and (speeds > 1 or 0 < others == len(aside))
            waits = f"; rounds do not wait for workers {', '.join(map(str, aside))}" if aside else ""
            iterations = "1 iteration" if chosen["iterations"] == 1 else f"{chosen['iterations']} iterations"
            text = (
                f"from round {self.round + 1} on: {iterations} of the slowest worker that rounds wait for, "
                f"compression {chosen['compression']}{waits}"
                f"{'; the fastest worker alone may be as fast (--mode local)' if alone else ''}"
            )
            log.info("%s", text)
            report_event(SETTINGS, text=text)

    @property
    def facts(self) -> dict[str, Any]:
        """The settings that the state server has chosen, if any."""
        return {**super().facts, **({"chosen_settings": self._chosen} if self._chosen else {})}

    @override
    def _payload(self, vectors: Mapping[str, Source]) -> Payload:
        return replace(super()._payload(vectors), compression=self._compression)

    @override
    def aggregate(self) -> None:
        self._unasked, self._unasked_seconds = 0, 0.0
        self._free_until = -math.inf
        super().aggregate()

    @override
    def _begin_round(self, result: Result) -> None:
        super()._begin_round(result)
        if self._coordination is not None and not result.finished:
            fields = self._aside_field
            if self._tiering.exchange_share is not None:
                fields["exchange"] = result.transfer
            self._coordination.reset(self._round_of_job(), members=self._members(result), **fields)

    def close(self) -> None:
        """Disconnect from the state server and the other workers."""
        super().close()
        if self._coordination is not None:
            self._coordination.close()

    @property
    def _aside_field(self) -> dict[str, Any]:
        """The field of a RESET that says that rounds do not wait for this worker; empty if they do."""
        return {"aside": True} if self._aside else {}

    def _members(self, result: Result) -> Sequence[int] | None:
        """Return the ranks to tell the coordinator; None if all take part, as before."""
        complete = self.exchange is None or len(result.members) in (0, self.exchange.workers)
        changed, self._complete = not (complete and self._complete), complete
        return result.members if changed else None

    def _round_of_job(self) -> int:
        """Return the round that begins, as the state server counts.

        It counts from 1, even where a run goes on from a checkpoint.
        """
        before = max(self.exchange.resume_at, 0) if self.exchange is not None else 0
        return self.round - before + 1
