"""The interface of the exchange for algorithms: payloads, results, sources and sinks.

An algorithm starts an exchange with a `Payload`, gets a handle, and waits for the `Result`. The
interface is implemented by parameter servers (`protocol.client`) and by collectives
(`collectives.worker_exchange`). Models are exchanged as named flat float32 vectors: the weights (or
gradients, or updates), the statistics, and further ones of an algorithm. They are read and written
piece by piece, so no second copy of the model is needed.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ..runtime.errors import ExpectedError
from ..runtime.futures import Handle
from .codecs.quantization import COMPRESSIONS
from .codecs.sparse import Sparse
from .protocol import wire
from .protocol.layout import WEIGHTS
from .protocol.resume_negotiation import Offers, ResumeState, RunProgress
from .protocol.round_state import Limits
from .protocol.scalars import COMPRESSION
from .protocol.wire import Use

NO_OFFERS = Offers()


class Source(Protocol):
    """A flat vector that can be read piece by piece."""

    def read(self, start: int, stop: int, out: np.ndarray) -> None:
        """Write values `start` to `stop` to `out` (float32, stop − start values)."""
        ...


class SizedSource(Source, Protocol):
    """A source that knows its size."""

    @property
    def size(self) -> int:
        """Number of values."""


class Flat:
    """A flat vector in one array; see `Source`.

    Attributes:
        values: float32.
        size: number of values.
    """

    def __init__(self, values: np.ndarray) -> None:
        self.values, self.size = values, values.size

    def read(self, start: int, stop: int, out: np.ndarray) -> None:
        """See `Source`."""
        out[:] = self.values[start:stop]

    def write(self, start: int, values: np.ndarray) -> None:
        """Replace the values from `start` on."""
        self.values[start : start + values.size] = values


def values_of(source: SizedSource) -> np.ndarray:
    """Return a copy of all values of a source."""
    values = np.empty(source.size, np.float32)
    source.read(0, source.size, values)
    return values


class ModelSink(Protocol):
    """A sink for a received model."""

    def write(self, vector: str, start: int, values: np.ndarray) -> None:
        """Write values of a vector from `start` on; `values` is valid only during the call."""
        ...

    def add(self, step: Sparse) -> None:
        """Add a sparse vector to the weights."""
        ...

    def put(self, step: Sparse) -> None:
        """Replace the weights at the indices of a sparse vector by its values."""


@dataclass(frozen=True)
class Control:
    """How a payload is used, and what its worker requests for the next rounds.

    Requests of the leader, the first rank that rounds wait for, apply to all workers after the end
    of the round.

    Attributes:
        use: together with the payloads of all workers (`Use.TOGETHER`), at once (`AT_ONCE`), or
            according to the specification (`AS_AGREED`). A worker that is excluded (see
            `Result.excluded`) sends `DISCARD`; its payload is only acknowledged. An `UNAWAITED`
            payload is used in the first round that finds it on all servers, and rounds do not wait
            for its worker from now on; after one with `BACK` they do again.
        switch: requests that the next payloads are used together (True) or at once (False); None:
            no change. While payloads are used at once, any worker may request True.
        excluded: requests that the next rounds do not wait for these ranks; None: no change.
    """

    use: Use = Use.AS_AGREED
    switch: bool | None = None
    excluded: Sequence[int] | None = None

    @property
    def in_later_round(self) -> bool:
        """Whether the payload is included in a later round, which does not wait for it."""
        return self.use in (Use.UNAWAITED, Use.BACK)

    @property
    def in_this_round(self) -> bool:
        """Whether the payload is part of the current round, or used at once."""
        return self.use not in (Use.DISCARD, Use.UNAWAITED, Use.BACK)

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of a commit; see `wire.MESSAGE`."""
        switch = {None: Use.AS_AGREED, True: Use.TOGETHER, False: Use.AT_ONCE}[self.switch]
        return {"use": self.use, "switch": switch, "text": wire.encode_ranks(self.excluded)}


@dataclass(frozen=True)
class Payload:
    """A worker's contribution to one exchange.

    Attributes:
        vectors: name of each vector → its values; at `WEIGHTS` gradients or model updates, unless
            there is a step. If the payload is used at once, vectors that are replaced by their
            mean, such as the statistics, get the mean of the latest values of all workers.
        samples: number of training samples.
        learning_rate: for the rule.
        momentum: for the rule.
        weight_decay: for the rule.
        step: sparse vector to subtract from the weights, if the specification is sparse.
        pace: seconds of an iteration on this worker; 0: not sent.
        gradient_scale: the values are this multiple of the mean gradient of a batch; see
            `rules.Step`.
        requested: names of the vectors to receive; None: the weights and all that were sent.
        scalars: name of each scalar of the specification → its value.
        compression: of the weights, one of COMPRESSIONS, if that of the specification is AUTO.
        control: how the payload is used.
        position: number of this payload among those of an iteration of several optimizers, from 1;
            0: the last or the only one, which ends the round.
    """

    vectors: Mapping[str, Source]
    samples: int
    learning_rate: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    step: Sparse | None = None
    pace: float = 0.0
    gradient_scale: float = 1.0
    requested: Collection[str] | None = None
    scalars: Mapping[str, float] = field(default_factory=dict)
    compression: str = ""
    control: Control = Control()
    position: int = 0

    @property
    def returned(self) -> frozenset[str]:
        """Names of the vectors to receive."""
        return frozenset({WEIGHTS, *self.vectors} if self.requested is None else self.requested)

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of the payload's commit; see `wire.MESSAGE`."""
        return {
            "learning_rate": self.learning_rate,
            "momentum": self.momentum,
            "weight_decay": self.weight_decay,
            "samples": self.samples,
            "pace": self.pace or math.nan,
            "gradient_scale": self.gradient_scale,
            "position": self.position,
            **self.control.fields,
            **self.scalars,
            **({COMPRESSION: self.compression_number} if self.compression else {}),
        }

    @property
    def compression_number(self) -> int:
        """Position of the compression in COMPRESSIONS; 0 if the specification names the compression."""
        return list(COMPRESSIONS).index(self.compression) if self.compression else 0


@dataclass(frozen=True)
class Result:
    """The result of an exchange, after the model has been written.

    Attributes:
        round: rounds completed with this exchange (`round_state.RoundState.round`).
        version: number of commits applied to the weights.
        samples: training samples of all workers so far.
        wait: seconds from this worker's commit to the last one of its round, by the server's clock.
        transfer: seconds of the exchange without the wait.
        finished: whether the run is over.
        used: whether the payload was applied to the weights; False if it was discarded, or arrived
            after the end of an asynchronous run.
        elapsed: seconds of the run.
        exchanged_at: seconds of the run when the weights last changed: the same on all workers of a
            round, and on a replacement.
        members: ranks that take part in the rounds: all, except dead ones that are left out.
        needed: ranks whose parts a checkpoint written now needs. Without rank 0, which has the
            model, no checkpoint can be written.
        whole: round of the newest checkpoint known to be complete; 0: none.
        step: number of changes of the weights: one per round, or per payload used at once.
        synchronous: whether the next payloads should be used together; None if this never changes.
        samples_together: those of `samples` that were used in rounds of several workers; None if
            they are not counted.
        excluded: members that rounds do not wait for at the leader's request, on any server.
        aside: members that rounds do not wait for at their own request.
        resting: those of `aside` that did not send payloads either when this round ended (mode
            tiered: they are left out); the same on all workers of the round.
        fastest: seconds of an iteration on the fastest worker; 0: not known.
        scalars: the scalars of the specification, combined over the round, or over the latest
            payloads of all workers if they are used at once; those that any worker has sent.
    """

    round: int = 0
    version: int = 0
    samples: int = 0
    wait: float = 0.0
    transfer: float = 0.0
    finished: bool = False
    used: bool = True
    elapsed: float = 0.0
    exchanged_at: float = 0.0
    members: tuple[int, ...] = ()
    needed: tuple[int, ...] = ()
    whole: int = 0
    step: int = 0
    synchronous: bool | None = None
    excluded: tuple[int, ...] = ()
    aside: tuple[int, ...] = ()
    resting: tuple[int, ...] = ()
    fastest: float = 0.0
    samples_together: int | None = None
    scalars: Mapping[str, float] = field(default_factory=dict)

    @property
    def since_change(self) -> float:
        """Seconds from the last change of the weights to the end of this exchange."""
        return max(0.0, self.elapsed - self.exchanged_at)

    @property
    def progress(self) -> RunProgress:
        """The progress of the run with this exchange."""
        return RunProgress(
            self.round,
            self.version,
            self.samples,
            self.elapsed,
            self.step,
            self.synchronous,
            self.samples_together or 0,
            self.scalars,
            self.resting,
        )


class ExchangeError(ExpectedError):
    """The exchange has failed; the message gives the reason and advice."""


class JobAbortedError(ExchangeError):
    """A worker has aborted the run; the message is its reason."""

    consequence = True


class SlotLostError(ExchangeError):
    """The others have gone on without this worker, because it was replaced or silent for too long."""

    transient = True


class Exchange(Protocol):
    """The exchange of one worker with the others.

    Attributes:
        rank: this worker's slot, from 0.
        workers: number of slots.
        replacement: whether this worker has taken over the slot of a dead one; set by `join`.
        exchanges: number of exchanges of this slot that were used before; set by `join`.
        job: number of this job; set by `join`.
        resume_at: round of the checkpoint that the workers resume from, or −1: they start from
            scratch; set by `join`.
        part: round of the newest part of a checkpoint of this run on this worker's disk, which is
            sent with payloads; 0: none.
    """

    rank: int
    workers: int
    replacement: bool
    exchanges: int
    job: int
    resume_at: int
    part: int

    def join(
        self,
        sizes: Mapping[str, int],
        limits: Limits,
        agreement: dict[str, Any],
        offers: Offers = NO_OFFERS,
    ) -> None:
        """Join the job.

        Args:
            sizes: name of each vector of the model → number of values.
            limits: of the run.
            agreement: settings that must be the same on all workers; name → value.
            offers: checkpoints that this worker could resume from.

        Raises:
            JobAbortedError: this worker does not match another one; the message says in what.
        """
        ...

    def resume(self, state: ResumeState) -> None:
        """Resume from a checkpoint; call it before `begin`, which distributes rank 0's weights."""
        raise RuntimeError("there are no checkpoints here")

    def begin(self, vectors: Mapping[str, Source], model: ModelSink) -> Result:
        """Write the common model to `model`.

        It is the initial model of rank 0, or the current one of a running job. At the start of a
        job, this is a barrier of all workers.
        """
        ...

    def start(self, payload: Payload, model: ModelSink) -> Handle[Result]:
        """Start an exchange; `result` and `wait` of the handle write the new model to `model`.

        The vectors of the payload must not change until then, unless the specification has
        `overlap`.
        """
        ...

    def step_aside(self, resting: bool = False) -> None:
        """Request that rounds not wait for this worker until a payload of it with `Use.BACK`.

        Call it between exchanges.

        Args:
            resting: whether the worker sends no payloads to be used until then.
        """
        raise RuntimeError("here, every round waits for all workers")

    def rest(self, seconds: float) -> bool:
        """Wait that long, or until the run is over or no other worker takes part in rounds.

        Returns:
            Whether the wait has ended early, for one of these reasons.
        """
        raise RuntimeError("here, every round waits for all workers")

    def heartbeat(self) -> None:
        """Report that this worker's program makes progress; called regularly between exchanges.

        With --elastic the others go on without a worker that has neither called this nor exchanged
        for half of the round timeout, and without one whose process is suspended for the lease.
        """

    def rule_state(self) -> list[np.ndarray | None]:
        """Return the state of the weights' rule: flat vectors of the weights' size.

        The states of further optimizers' rules follow. None stands for a vector that does not exist
        yet.
        """
        raise RuntimeError("there are no checkpoints here")

    def server_weights(self) -> np.ndarray | None:
        """Return the exact weights of the servers, flat; None: the workers have the same."""
        return None

    def assign(self, weights: np.ndarray, vector: str = WEIGHTS) -> None:
        """Replace the common weights of a vector before the next payload of this worker is used.

        Every worker of the round has to assign the same weights.

        Args:
            weights: flat, float32.
            vector: its name; one of the next payload's.
        """
        raise RuntimeError("the weights cannot be assigned here")

    def unsent(self) -> dict[str, Any]:
        """Return the residuals of compression, for a checkpoint; call it between exchanges."""
        return {}

    def restore_unsent(self, state: dict[str, Any]) -> None:
        """Restore what `unsent` has returned; call it after `begin`.

        Raises:
            KeyError, ValueError: the residuals do not fit this exchange.
        """
        raise ValueError(
            "it has values that were not sent yet, and this exchange keeps none; go on with the --compression and the "
            "mode that it was written with"
        )

    def version(self) -> int:
        """Return the number of commits applied to the weights."""
        raise RuntimeError("there are no checkpoints here")

    def newest_round(self) -> int:
        """Return the number of rounds that are over, which may be more than this worker has seen."""
        raise RuntimeError("there are no checkpoints here")

    def stop(self) -> None:
        """Request the end of the run after the current round, on all workers."""
        ...

    def abort(self, reason: str) -> None:
        """Abort the run on all workers because this one has failed."""
        ...

    def close(self) -> None:
        """Leave the job; the others no longer wait for this worker."""
        ...
