"""What the other side does with what the workers send: the update rules, as pure functions.

A rule is `rule(weights, value, state, step) → (weights, state)`. Nothing is changed in place, nothing is remembered
outside `state` (`None` at first), and only arithmetic operators are used: the same function runs on NumPy arrays in a
parameter server, on MXNet arrays on a GPU, on every rank of a collective and in the simulator. All arrays of one call
have one shape; the rules are elementwise, so it does not matter how a model is cut into pieces.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import config

#: A NumPy or MXNet array of float32.
Array = Any


@dataclass(frozen=True)
class Step:
    """The inputs of a rule that travel with every commit, so that schedules reach the server.

    Attributes:
        learning_rate: multiplies the mean gradient, or the mean model update (ESync's global learning rate ε).
        momentum: of the velocity that the server keeps; 0 keeps none.
        weight_decay: adds `weight_decay · weights` to the mean gradient of a batch.
        sent: the weights that this worker was sent last; only rules that compensate delay look at it.
        turn: commits that have gone into the weights before this one.
        workers: slots of workers.
        gradient_scale: how many times the mean gradient of a batch the gradient is: 1, or the batch size where it is
            the sum over the batch. Only the learning rate notices it.
    """

    learning_rate: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    sent: Array = None
    turn: int = 0
    workers: int = 1
    gradient_scale: float = 1.0

    @classmethod
    def of(cls, message: Any, sent: Array = None, turn: int = 0, workers: int = 1) -> "Step":
        """As a commit (wire.MESSAGE) says them."""
        rate, momentum = float(message["learning_rate"]), float(message["momentum"])
        decay, scale = float(message["weight_decay"]), float(message["gradient_scale"])
        return cls(rate, momentum, decay, sent, turn, workers, scale)

    def decayed(self, gradient: Array, weights: Array) -> Array:
        """The gradient with the weight decay, which is relative to the mean gradient."""
        if not self.weight_decay:
            return gradient
        return gradient + self.weight_decay * self.gradient_scale * weights


Rule = Callable[[Array, Array, Any, Step], tuple[Array, Any]]


def sgd(weights: Array, gradient: Array, velocity: Array | None, step: Step) -> tuple[Array, Array | None]:
    """One step of SGD with momentum and weight decay, in MXNet's form.

    v ← momentum·v − learning_rate·(gradient + weight_decay·weights);  weights ← weights + v. Where the gradient is a
    multiple of the mean gradient (`Step.gradient_scale`), the weight decay is multiplied in the same way.
    """
    change = -step.learning_rate * step.decayed(gradient, weights)
    if not step.momentum:
        return weights + change, None
    if velocity is not None:
        change = change + step.momentum * velocity
    return weights + change, change


def momentum_sgd(weights: Array, gradient: Array, gathered: Array | None, step: Step) -> tuple[Array, Array | None]:
    """SGD whose momentum gathers gradients, not steps, so that a new learning rate acts at once (Sync-Switch).

    v ← momentum·v + gradient + weight_decay·weights;  weights ← weights − learning_rate·v. With one learning rate all
    the time this is `sgd`.
    """
    gradient = step.decayed(gradient, weights)
    if step.momentum:
        gradient = 1 * gradient if gathered is None else gradient + step.momentum * gathered
    return weights - step.learning_rate * gradient, gradient if step.momentum else None


def add_mean_update(weights: Array, update: Array, state: None, step: Step) -> tuple[Array, None]:
    """ESync's global step (ESync paper, Algorithm 1, line READY): w ← w + ε · mean(Δ)."""
    return weights + step.learning_rate * update, state


def outer_nesterov(weights: Array, update: Array, velocity: Array | None, step: Step) -> tuple[Array, Array | None]:
    """Nesterov's momentum on the mean update (DiLoCo, arXiv 2311.08105; SlowMo, ICLR 2020, has the plain kind).

    v ← momentum·v + mean(Δ);  w ← w + ε·(mean(Δ) + momentum·v). With momentum 0 it is `add_mean_update`.
    """
    if not step.momentum:
        return weights + step.learning_rate * update, None
    velocity = 1 * update if velocity is None else step.momentum * velocity + update
    return weights + step.learning_rate * (update + step.momentum * velocity), velocity


def delayed_nesterov(weights: Array, update: Array, state: Any, step: Step) -> tuple[Array, Any]:
    """Of asynchronous local SGD (arXiv 2401.09135, section 5, with c = 0): momentum once for so many updates.

    Each of n workers' updates counts at once, w ← w + ε·Δ/n. Every n-th time the momentum is renewed by the mean of the
    last n, v ← momentum·v + Σ Δ/n, and added, w ← w + ε·momentum·v: updates that are stale to different degrees do not
    each accelerate it. The state is (v, Σ Δ).
    """
    velocity, gathered = state if state is not None else (None, None)
    count = step.workers
    gathered = 1 * update if gathered is None else gathered + update
    change = update / count
    if (step.turn + 1) % count == 0:
        mean, gathered = gathered / count, None
        velocity = mean if velocity is None else step.momentum * velocity + mean
        change = change + step.momentum * velocity
    return weights + step.learning_rate * change, (velocity, gathered)


def replace_by_mean(weights: Array, mean: Array, state: None, step: Step) -> tuple[Array, None]:
    """Batch-norm statistics: the mean over the workers as it is, whatever the learning rate."""
    return 1 * mean, state  # a copy, made by arithmetic


@dataclass(frozen=True)
class DelayCompensatedSGD:
    """DC-ASGD (Zheng et al., ICML 2017, Equations 10 and 14): SGD on a gradient corrected for its delay.

    g̃ = g + λ·g⊙g⊙(w − w_bak(m)), where w_bak(m) are the weights that worker m was sent last (`step.sent`), the ones
    that its gradient belongs to. With `adaptive`, λ becomes strength ÷ √(MeanSquare + 10⁻⁷) with the running mean
    MeanSquare ← decay·MeanSquare + (1 − decay)·g⊙g. With strength 0 this is plain ASGD.

    As in the paper, g is the mean gradient of a batch. A gradient G that is s times as large (`Step.gradient_scale`) is
    corrected by s times as much: G̃ = s·g̃ = G + λ/s·G⊙G⊙(w − w_bak(m)). With on="sum", G itself takes the place of g,
    as in the public implementation of ESync, and λ acts s times as strongly.
    """

    strength: float = config.DCASGD_LAMBDA
    adaptive: bool = config.DCASGD_ADAPTIVE
    decay: float = config.DCASGD_MEAN_SQUARE_DECAY
    on: str = config.DCASGD_LAMBDA_ON

    def __call__(self, weights: Array, gradient: Array, state: Any, step: Step) -> tuple[Array, Any]:
        """Compensate, then step; the state is (velocity, MeanSquare)."""
        velocity, mean_square = state if state is not None else (None, None)
        scale = 1.0 if self.on == "sum" else step.gradient_scale
        square = gradient * gradient
        strength = self.strength
        if self.adaptive:
            fresh = (1 - self.decay) / scale**2 * square
            mean_square = fresh if mean_square is None else self.decay * mean_square + fresh
            strength = self.strength / (mean_square + 1e-7) ** 0.5
        compensated = gradient + strength / scale * square * (weights - step.sent)
        weights, velocity = sgd(weights, compensated, velocity, step)
        return weights, (velocity, mean_square)


#: How many vectors a rule may remember, each as long as the weights; 0 where it is not named here.
STATE_VECTORS = {"sgd": 1, "momentum_sgd": 1, "outer_nesterov": 1, "delayed_nesterov": 2, "delay_compensated_sgd": 2}


def take_apart(state: Any) -> list[Array | None]:
    """The vectors that a rule remembers."""
    return list(state) if isinstance(state, tuple) else [state]


def put_together(vectors: list[Array | None]) -> Any:
    """A rule's state from its vectors; the inverse of `take_apart`."""
    if all(vector is None for vector in vectors):
        return None
    return tuple(vectors) if len(vectors) > 1 else vectors[0]


#: Name in the workers' greeting → makes the rule from its options (a dict with JSON values).
RULES: dict[str, Callable[..., Rule]] = {
    "sgd": lambda: sgd,
    "momentum_sgd": lambda: momentum_sgd,
    "add_mean_update": lambda: add_mean_update,
    "outer_nesterov": lambda: outer_nesterov,
    "delayed_nesterov": lambda: delayed_nesterov,
    "delay_compensated_sgd": DelayCompensatedSGD,
}


def make_rule(name: str, options: dict[str, Any]) -> Rule:
    """The rule of that name; ValueError names an unknown rule or an option that it does not have."""
    if name not in RULES:
        raise ValueError(f"unknown update rule {name!r}; known: {', '.join(RULES)}")
    try:
        return RULES[name](**options)
    except TypeError as error:
        raise ValueError(f"update rule {name!r} cannot take the options {options}: {error}") from None
