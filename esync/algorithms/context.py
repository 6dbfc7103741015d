"""The context of an algorithm: its interfaces to its worker, the other workers and time.

Real ones are made by `esync.trainer` and `esync.world`, simulated ones by `esync.simulate`, so the
same object runs on a real cluster and on a modelled one.
"""

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from .. import config
from ..coordination import Coordination
from ..exchange import NO_OFFERS, WEIGHTS, Exchange, ModelSink, SizedSource, Source, Specification
from ..exchange.protocol.resume_negotiation import Offers, ResumeState
from ..exchange.protocol.round_state import Limits
from ..rules import PLAIN_SGD, RuleChoice
from ..runtime.batch_sizes import StepTime
from ..runtime.device import Device
from ..runtime.phase_timer import PhaseTimer
from .assigned_weights import Assignment
from .model_view import Hook


class ModelMerge(ModelSink, Protocol):
    """Takes the common model of a worker that has trained on; see `overlap_merge.OverlapMerge`."""

    iterations: int

    def discard(self) -> None:
        """Take the common model as it is."""


class ModelReplica(ModelSink):
    """This worker's copy of the model; see `replica.Replica`.

    What is not abstract does nothing here: there is no device, and nobody assigns weights.
    """

    weights: Any
    statistics: Any
    further: dict[str, Any]
    contributions: dict[str, Any]

    def open(self) -> None:
        """Wait for the device, then give access to the values until `close`."""

    def close(self) -> None:
        """Hand what was written back to the device."""

    def keep_anchor(self) -> None:
        """Remember the weights of the last exchange."""

    def sample_weights(self) -> None:
        """Remember a sample of the weights, for `assigned_since_sample`; nothing writes them."""

    def assigned_since_sample(self) -> Assignment | None:
        """Return weights that the program has assigned since `sample_weights`, None if there are none."""
        return None

    def assigned_since_exchange(self, vectors: Collection[str]) -> Assignment | None:
        """Return weights of these vectors that differ from those that the last exchange has written.

        The replica is open and keeps an anchor.
        """
        return None

    def assign(self, assignment: Assignment) -> None:
        """Set the weights to assigned ones."""

    def reaches(self, assignment: Assignment) -> bool:
        """Return whether a finite update leads from the common weights to assigned ones."""
        return True

    @abstractmethod
    def add_vectors(self, names: Iterable[str]) -> None:
        """Keep further vectors, each as long as the weights, which begin with zeros."""

    def enable_overlap(self) -> None:
        """Prepare for exchanges during which this worker trains on."""

    def settle(self) -> None:
        """Wait until nothing reads or writes this model's own arrays any more."""

    def keep_statistics(self, separate: bool) -> None:
        """Choose where the mean of all workers' statistics is put.

        That is beside this worker's own, or in their place.
        """

    @abstractmethod
    def keep_common(self) -> ModelMerge:
        """Keep the common model, which this one is now, beside this worker's own."""

    @abstractmethod
    def begin_overlap(self) -> ModelMerge:
        """Begin an exchange during which this worker trains on; return where to put the answer."""

    @property
    @abstractmethod
    def vectors(self) -> Mapping[str, SizedSource]:
        """Name of each vector of weights → its values; one, unless there are several optimizers."""

    @abstractmethod
    def gradient(self, factor: float, vector: str = WEIGHTS) -> Source:
        """Return the gradient that backward has computed, times a factor."""

    @abstractmethod
    def update(self) -> SizedSource:
        """Return how far the weights have moved since the last exchange."""

    def local_step(self, batch_size: int) -> float:
        """Take one step of the local optimizer.

        Returns:
            The learning rate that has multiplied the mean gradient of the batch; 0 where the step
            was left out.
        """
        return 0.0

    def call_hook(self, hook: Hook, batch_size: int | None = None, fixed_weights: bool = False) -> None:
        """Call a hook with a view of the model, and take over its changes.

        The view has a gradient where there is a batch. Where nothing is computed, the hook is not
        called.
        """


class World(Protocol):
    """Makes the interfaces of one worker: real ones, or simulated ones.

    Attributes:
        step_times: described step times of all devices, by rank, by which batches are divided; empty
            if all batches are equal.
    """

    device: Device
    recorder: PhaseTimer
    step_times: Sequence[StepTime]

    def exchange(self, specification: Specification) -> Exchange:
        """Connect to the other workers."""

    def coordination(
        self, address: str | None, rank: int, job: str = config.JOB, delayed: bool = False
    ) -> Coordination:
        """Connect to the state server.

        Args:
            address: host:port; None: as the environment says.
            rank: of this worker.
            job: the name of the training there.
            delayed: whether answers arrive in the background instead of being waited for.
        """


@dataclass(frozen=True)
class Hyper:
    """The present hyper-parameters of SGD, for the rule on the other side; see `rules.Step`."""

    learning_rate: float
    momentum: float
    weight_decay: float
    rescale: float  # multiplies the gradient
    gradient_scale: float = 1.0  # the product is this multiple of the mean gradient of a batch

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of a `Payload` with a gradient; `rescale` is in its values."""
        return {
            "learning_rate": self.learning_rate,
            "momentum": self.momentum,
            "weight_decay": self.weight_decay,
            "gradient_scale": self.gradient_scale,
        }


@dataclass(frozen=True)
class OptimizerPart:
    """The trainer's own optimizer, or a further one; see `Trainer.add_optimizer`.

    Attributes:
        vectors: name of each vector of its parameters → the multipliers of their learning rate and
            weight decay. There are several where these differ, and the algorithm's servers step.
        rule: by which servers can take its steps, where the algorithm sends gradients.
        hyper: returns its hyper-parameters; called before every gradient that is sent.
        local_step: takes one step of it; see `ModelReplica.local_step`.
        momentum: returns the momentum of its local steps, Adam's β₁; 0: they have none.
    """

    vectors: Mapping[str, tuple[float, float]]
    rule: RuleChoice
    hyper: Callable[[], Hyper]
    local_step: Callable[[int], float]
    momentum: Callable[[], float] = float


class CheckpointHooks:
    """What an algorithm needs of this worker's checkpoints; see `checkpoints.Checkpoints`.

    Where there are none, they do nothing.

    Attributes:
        enabled: whether there are any.
    """

    enabled = False

    def offers(self, rank: int, workers: int) -> Offers:
        """Return what this worker, as holder of slot `rank` of `workers`, could go on from."""
        return NO_OFFERS

    def due(self, round_: int) -> bool:
        """Return whether a checkpoint is due after this round, before the next exchange begins."""
        return False

    def save_ahead(self, round_: int) -> None:
        """Write this worker's part if a checkpoint is due after this round, which does not wait for it.

        Call it before an exchange. The part fits every checkpoint from the worker's last exchange up
        to this one.
        """

    def settle(self, rank: int, job: int, resume_at: int, replacement: bool) -> ResumeState | None:
        """Load the checkpoint that the workers agreed on in the handshake.

        Args:
            rank: of this worker.
            job: number of this job.
            resume_at: round of the checkpoint; −1: the run begins from the beginning.
            replacement: whether this worker has taken over the slot of a dead one in a running job.

        Returns:
            How far this worker had come; None where there is nothing to go back to.
        """
        return None


@dataclass(frozen=True)
class AlgorithmContext:
    """The context of an algorithm, which it is given when it starts.

    Attributes:
        replica: this worker's model.
        world: makes the interfaces.
        hyper: returns the hyper-parameters; called before every gradient that is sent. A learning
            rate schedule is then as far as `Algorithm.updates` says.
        capability: returns the seconds that one iteration takes on this device, 0 while unknown.
        limits: what ends the run.
        agreement: settings that must be the same on all workers; name → value.
        checkpoints: those to go on from.
        individual: settings of this worker that may differ from other workers'; name → value.
        joined: called when this worker is among the others and none of them has begun to train,
            unless it takes the place of one that is gone.
        rule: by which the servers can take the steps of the user's optimizer, where the algorithm
            sends gradients.
        optimizers: the trainer's own optimizer, and further ones.
        scalars: returns numbers of the trainer that every exchange carries, by name; all workers get
            the maximum of each. The names stay the same.
    """

    replica: ModelReplica
    world: World
    hyper: Callable[[], Hyper]
    capability: Callable[[], float]
    limits: Limits = field(default_factory=Limits)
    agreement: dict[str, Any] = field(default_factory=dict)
    checkpoints: CheckpointHooks = field(default_factory=CheckpointHooks)
    individual: dict[str, Any] = field(default_factory=dict)
    joined: Callable[[], None] = lambda: None
    rule: RuleChoice = PLAIN_SGD
    optimizers: Sequence[OptimizerPart] = ()
    scalars: Callable[[], Mapping[str, float]] = dict
