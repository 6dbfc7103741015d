"""The interface of the exchange that algorithms see: payloads, results, sources and sinks.

An algorithm starts an exchange with a `Payload`, gets a handle, and asks or waits for the `Result`.
Behind the interface are parameter servers (`protocol.client`) or a collective
(`collectives.worker_exchange`). Models are exchanged as named flat float32 vectors: the weights (or
gradients, or updates), the statistics and whatever else an algorithm has. Both sides see them piece
by piece, so that no second copy of a model is needed.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ..runtime.errors import ExpectedError
from ..runtime.futures import Handle
from .codecs.sparse import Sparse
from .protocol import wire
from .protocol.layout import WEIGHTS
from .protocol.resume_negotiation import Offers, ResumeState, RunProgress
from .protocol.round_state import Limits
from .protocol.wire import Use

NO_OFFERS = Offers()


class Source(Protocol):
    """A flat vector that can be read piece by piece."""

    def read(self, start: int, stop: int, out: np.ndarray) -> None:
        """Write the values start to stop into `out` (float32, stop − start values)."""
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
    """A sink for the model that comes back, piece by piece."""

    def write(self, vector: str, start: int, values: np.ndarray) -> None:
        """Take values of the vector of that name, from `start` on; valid only during the call."""
        ...

    def add(self, step: Sparse) -> None:
        """Add a sparse vector to the weights."""
        ...

    def put(self, step: Sparse) -> None:
        """Replace the weights at some places."""


@dataclass(frozen=True)
class Control:
    """How a payload takes part in rounds, and what its worker asks for the next ones.

    Attributes:
        use: whether it is used with those of all workers (`Use.TOGETHER`) or at once (`AT_ONCE`),
            or as the specification says (`AS_AGREED`). A worker that is excluded (see
            `Result.excluded`) says `DISCARD`: it is only acknowledged. An `UNAWAITED` one is used
            together with those of the next round that finds it on all servers, and from now on
            rounds do not wait for its worker; with `BACK`, they do again from the end of that round
            on.
        switch: of the leader, the first of those that rounds wait for: whether the next payloads
            are to be used together (True) or at once (False); None: as before. It holds from the
            end of the round on, for all workers. Of a payload that is used at once, every worker
            may ask for the next ones to be used together.
        excluded: of the leader: the ranks that rounds are not to wait for from the end of this one
            on; None: as before.
    """

    use: Use = Use.AS_AGREED
    switch: bool | None = None
    excluded: Sequence[int] | None = None

    @property
    def unawaited(self) -> bool:
        """Whether a later round takes the payload in, for which it does not wait."""
        return self.use in (Use.UNAWAITED, Use.BACK)

    @property
    def awaited(self) -> bool:
        """Whether the payload is part of the round under way, or used at once."""
        return self.use not in (Use.DISCARD, Use.UNAWAITED, Use.BACK)

    @property
    def fields(self) -> dict[str, Any]:
        """Its fields in a commit; see `wire.MESSAGE`."""
        switch = {None: Use.AS_AGREED, True: Use.TOGETHER, False: Use.AT_ONCE}[self.switch]
        return {"use": self.use, "switch": switch, "text": wire.encode_ranks(self.excluded)}


@dataclass(frozen=True)
class Payload:
    """A worker's contribution to one exchange.

    Attributes:
        vectors: name of each vector that is sent → its values; at `WEIGHTS` gradients or model
            updates, unless there is a step. Where the payload is used at once, the mean of a vector
            that is replaced by it, as the statistics are, is that of all workers' latest.
        samples: training samples that went into it.
        learning_rate: for the rule on the other side, as are momentum and weight_decay.
        step: sparse vector to subtract from the weights, where the specification is sparse.
        pace: seconds of an iteration on this worker, where the others want to know; 0: they do not.
        gradient_scale: the values are this multiple of the mean gradient of a batch; see
            `rules.Step`.
        wanted: names of the vectors that come back; None: the weights and all that were sent.
        scalars: further ones by name, as the specification has them.
        control: how it takes part in rounds.
    """

    vectors: Mapping[str, Source]
    samples: int
    learning_rate: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    step: Sparse | None = None
    pace: float = 0.0
    gradient_scale: float = 1.0
    wanted: Collection[str] | None = None
    scalars: Mapping[str, float] = field(default_factory=dict)
    control: Control = Control()

    @property
    def returned(self) -> frozenset[str]:
        """Names of the vectors that come back."""
        return frozenset({WEIGHTS, *self.vectors} if self.wanted is None else self.wanted)

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of its commit; see `wire.MESSAGE`."""
        return {
            "learning_rate": self.learning_rate,
            "momentum": self.momentum,
            "weight_decay": self.weight_decay,
            "samples": self.samples,
            "pace": self.pace or math.nan,
            "gradient_scale": self.gradient_scale,
            **self.control.fields,
            **self.scalars,
        }


@dataclass(frozen=True)
class Result:
    """The outcome of an exchange; the model has been written by then.

    Attributes:
        round: rounds completed with this exchange (`round_state.RoundState.round`).
        version: commits that had gone into the weights by then.
        samples: of all workers, so far.
        wait: seconds from this worker's commit to the last one of its round, by the server's clock.
        transfer: seconds that the whole exchange took, less the wait.
        finished: whether the run is over.
        used: whether the payload went into the weights; False where it was discarded, or came after
            the end of an asynchronous run.
        elapsed: seconds of the run.
        exchanged_at: seconds of the run when the weights last changed: the same on all workers that
            have taken part in the same round, and on a replacement.
        members: ranks that take part in the rounds; all of them, unless dead ones are left out.
        needed: ranks whose parts a checkpoint written now needs. Where rank 0, which has the model,
            is not among them, no checkpoint can be written.
        whole: round of the newest checkpoint that is known to be whole; 0: none.
        step: times that the weights had changed by then: once per round, or once per payload used
            at once.
        synchronous: whether the next payloads should be used together; None where that never
            changes.
        samples_together: those of `samples` that were used in rounds of several workers; None where
            nobody counts them.
        excluded: ranks that are there, but that rounds do not wait for (on some server at least).
        aside: ranks that are there, but have said that rounds need not wait for them.
        resting: those of them that sent nothing either when this round ended (mode tiered: they are
            left out): the same on all workers that have taken part in it.
        fastest: seconds of an iteration on the fastest worker that has said so; 0: none has.
        scalars: the specification's further scalars, combined over the round, or over all workers'
            latest where payloads are used at once; only those that some worker has sent.
    """

    round: int
    version: int
    samples: int
    wait: float
    transfer: float
    finished: bool
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
    def progress(self) -> RunProgress:
        """How far the run has come with this exchange."""
        return RunProgress(
            self.round,
            self.version,
            self.samples,
            self.elapsed,
            self.step,
            self.synchronous,
            self.samples_together or 0,
        )


class ExchangeError(ExpectedError):
    """The exchange failed; the message says why and what to look at."""


class JobAbortedError(ExchangeError):
    """Some worker has ended the run because it failed; the message is its reason."""

    consequence = True


class SlotLostError(ExchangeError):
    """The others have gone on without this worker: it was replaced, or silent for too long."""

    transient = True


class Exchange(Protocol):
    """The exchange of one worker with the others.

    Attributes:
        rank: this worker's slot, from 0.
        workers: number of slots.
        replacement: whether this worker has taken over the slot of a dead one (known after `join`).
        exchanges: number of exchanges of this slot that have been used so far (known after `join`).
        job: number of this job (known after `join`).
        resume_at: the round of the checkpoint that the workers go on from; −1: from the beginning
            (known after `join`).
        part: round of the newest part of a checkpoint of this run that is on this worker's disk;
            payloads say it. 0: none.
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
        """Introduce this worker to the others.

        Args:
            sizes: name of each vector of its model → number of values.
            limits: what ends the run.
            agreement: settings that must be the same on all workers; name → value.
            offers: checkpoints that this worker could go on from.

        Raises:
            JobAbortedError: this worker and another one do not match, in what the message names.
        """
        ...

    def resume(self, state: ResumeState) -> None:
        """Go on from a checkpoint; before `begin`, which then takes rank 0's weights from there."""
        raise RuntimeError("there are no checkpoints here")

    def begin(self, vectors: Mapping[str, Source], model: ModelSink) -> Result:
        """Write the common model into `model`.

        It is rank 0's initial one, or the current one of a running job. No worker gets past this
        before all have come to it, except in a running job.
        """
        ...

    def start(self, payload: Payload, model: ModelSink) -> Handle[Result]:
        """Send a payload; the handle's `result` and `wait` write the new model into `model`.

        Unless the specification says that exchanges are overlapped, the payload's vectors must stay
        as they are until then.
        """
        ...

    def step_aside(self, resting: bool = False) -> None:
        """Have rounds not wait for this worker from now on, until a payload of its own is `back`.

        Call it while no exchange is under way.

        Args:
            resting: whether it sends no payloads that are used meanwhile, either.
        """
        raise RuntimeError("here, every round waits for all workers")

    def rest(self, seconds: float) -> bool:
        """Wait that long, or until the run is over or no other worker takes part in rounds.

        Returns:
            Whether one of these has happened.
        """
        raise RuntimeError("here, every round waits for all workers")

    def heartbeat(self) -> None:
        """Report that this worker's program makes progress; called now and then between exchanges.

        With --elastic the others go on without a worker that has not called this, or exchanged, for
        half of the round timeout, and without one whose process stands still for the lease.
        """

    def rule_state(self) -> list[np.ndarray | None]:
        """Return the vectors that the rule of the weights remembers on the other side.

        They are flat and as long as the weights; None stands for one that is not kept.
        """
        raise RuntimeError("there are no checkpoints here")

    def server_weights(self) -> np.ndarray | None:
        """Return the flat weights that the rule on the other side works on; None: the workers'."""
        return None

    def assign(self, weights: np.ndarray) -> None:
        """Let the next payload of this worker be used on these weights, in place of the common ones.

        It holds for the round that uses that payload together with others. Every worker of the
        round has to do the same.

        Args:
            weights: flat, float32.
        """
        raise RuntimeError("the weights cannot be assigned here")

    def unsent(self) -> dict[str, Any]:
        """Return what this worker keeps for a later exchange, for a checkpoint; empty if nothing.

        Call it while no exchange is under way.
        """
        return {}

    def restore_unsent(self, state: dict[str, Any]) -> None:
        """Go on with what `unsent` has returned; after `begin`.

        Raises:
            KeyError, ValueError: that is not possible, because this exchange keeps something else.
        """
        raise ValueError(
            "it has values that were not sent yet, and this exchange keeps none; go on with the --compression and the "
            "mode that it was written with"
        )

    def version(self) -> int:
        """Return the number of commits that have gone into the weights."""
        raise RuntimeError("there are no checkpoints here")

    def stop(self) -> None:
        """Ask for the run to end after the round under way, on all workers."""
        ...

    def abort(self, reason: str) -> None:
        """End the run on all workers because this one has failed."""
        ...

    def close(self) -> None:
        """Leave the job: the others no longer wait for this worker."""
        ...
