"""The update rules, which servers apply to the workers' payloads, as pure functions.

A rule is `rule(weights, value, state, step) → (weights, state)`. It changes no array in place, has
no state other than `state` (initially None), and uses only arithmetic operators. So the same
function runs on NumPy arrays in a parameter server, on MXNet arrays on a GPU, on every rank of a
collective and in the simulator. All arrays of a call have the same shape. Rules are elementwise, so
they may be applied to parts of a model.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from . import config

#: A NumPy or MXNet array of float32.
Array = Any

#: Name in the workers' handshake → a callable that makes the rule from its options (JSON values).
#: See `declare`.
RULES: dict[str, Callable[..., "Rule"]] = {}

#: Name of the rule for statistics.
MEAN = "mean"

#: Name of a rule → number of vectors of its state, each of the weights' size. See `declare`.
STATE_VECTORS: dict[str, int] = {}

Declared = TypeVar("Declared", bound=Callable[..., Any])


def declare(name: str, state_vectors: int = 0) -> Callable[[Declared], Declared]:
    """Declare a function, or a class whose fields are options, as the rule of that name.

    Args:
        name: of the rule in the workers' handshake.
        state_vectors: number of vectors of its state.
    """

    def declared(rule: Declared) -> Declared:
        RULES[name] = rule if isinstance(rule, type) else lambda: rule
        STATE_VECTORS[name] = state_vectors
        return rule

    return declared


@dataclass(frozen=True)
class RuleChoice:
    """The rule that a worker requests from the servers.

    Attributes:
        name: as declared.
        options: of the rule, JSON values.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)


#: The default rule.
PLAIN_SGD = RuleChoice("sgd")


@dataclass(frozen=True)
class Step:
    """The inputs of one application of a rule.

    They come with each commit, so that learning rate schedules take effect on the servers.

    Attributes:
        learning_rate: multiplies the mean gradient, or the mean model update (ESync's global
            learning rate ε).
        momentum: of the velocity on the server; 0: there is no velocity.
        weight_decay: adds `weight_decay · weights` to the mean gradient of a batch.
        sent: the weights that this worker was sent last, for rules that compensate for delay.
        turn: number of changes of the weights before this one, since the start of the run: one per
            synchronous round, and one per commit used at once.
        workers: number of worker slots.
        count: number of commits in this application of the rule: those of a round, or 1.
        scalars: further ones by name, combined over these commits; NaN: no worker has sent it.
        gradient_scale: the gradient is this multiple of the mean gradient: 1, or the batch size if
            it is the sum over the batch. It affects only the learning rate.
    """

    learning_rate: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    sent: Array = None
    turn: int = 0
    workers: int = 1
    gradient_scale: float = 1.0
    count: int = 1
    scalars: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        message: Any,
        sent: Array = None,
        turn: int = 0,
        workers: int = 1,
        count: int = 1,
        added: Iterable[str] = (),
    ) -> "Step":
        """Read the inputs from a commit (wire.MESSAGE); `added` names the further scalars."""
        rate, momentum = float(message["learning_rate"]), float(message["momentum"])
        decay, scale = float(message["weight_decay"]), float(message["gradient_scale"])
        scalars = {name: float(message[name]) for name in added}
        return cls(rate, momentum, decay, sent, turn, workers, scale, count, scalars)

    def decayed(self, gradient: Array, weights: Array) -> Array:
        """Return the gradient with the weight decay, which is relative to the mean gradient."""
        if not self.weight_decay:
            return gradient
        return gradient + self.weight_decay * self.gradient_scale * weights

    def clipped(self, gradient: Array, bound: float | None) -> Array:
        """Return the gradient, clipped so that the mean gradient is within ±bound (None: as is)."""
        if bound is None:
            return gradient
        return gradient.clip(-bound * self.gradient_scale, bound * self.gradient_scale)


Rule = Callable[[Array, Array, Any, Step], tuple[Array, Any]]


def sgd(weights: Array, gradient: Array, velocity: Array | None, step: Step) -> tuple[Array, Array | None]:
    """Take one step of SGD with momentum and weight decay, in MXNet's form.

    v ← momentum·v − learning_rate·(gradient + weight_decay·weights);  weights ← weights + v.

    Where the gradient is a multiple of the mean gradient (`Step.gradient_scale`), the weight decay
    is multiplied in the same way.
    """
    change = -step.learning_rate * step.decayed(gradient, weights)
    if not step.momentum:
        return weights + change, None
    if velocity is not None:
        change = change + step.momentum * velocity
    return weights + change, change


#: Scalar of a step: where it is 1, `momentum_sgd` remembers no momentum of this step or of those
#: before it.
RESET_MOMENTUM = "reset_momentum"


@declare("momentum_sgd", state_vectors=1)
def momentum_sgd(weights: Array, gradient: Array, gathered: Array | None, step: Step) -> tuple[Array, Array | None]:
    """Take a step of SGD whose momentum gathers gradients, not steps (Sync-Switch).

    v ← momentum·v + gradient + weight_decay·weights;  weights ← weights − learning_rate·v.

    So a new learning rate acts at once. With a constant learning rate this is `sgd`. After a step
    whose scalar `RESET_MOMENTUM` is 1, v begins anew.
    """
    gradient = step.decayed(gradient, weights)
    if step.momentum:
        gradient = 1 * gradient if gathered is None else gradient + step.momentum * gathered
    has_momentum = step.momentum and step.scalars.get(RESET_MOMENTUM) != 1
    return weights - step.learning_rate * gradient, gradient if has_momentum else None


@declare("sgd", state_vectors=1)
@dataclass(frozen=True)
class SGDRule:
    """SGD with momentum and weight decay, in MXNet's form, on gradients that can be clipped.

    `clip_gradient` limits every value of the mean gradient, before the weight decay is added.
    """

    clip_gradient: float | None = None

    def __call__(self, weights: Array, gradient: Array, velocity: Array | None, step: Step) -> tuple[Array, Any]:
        """Take one step of `sgd`."""
        return sgd(weights, step.clipped(gradient, self.clip_gradient), velocity, step)


@declare("nag", state_vectors=1)
@dataclass(frozen=True)
class NAGRule:
    """Nesterov's accelerated gradient, in MXNet's form; the state is the velocity.

    With G = gradient + weight_decay·weights: v ← momentum·v − learning_rate·G;
    weights ← weights + momentum·v − learning_rate·G. MXNet's operator works in place, and so the
    velocity keeps the weight decay of the new weights. The gradient is clipped before the decay.
    """

    clip_gradient: float | None = None

    def __call__(self, weights: Array, gradient: Array, velocity: Array | None, step: Step) -> tuple[Array, Any]:
        """Take one step."""
        gradient = step.clipped(gradient, self.clip_gradient)
        rate, momentum = step.learning_rate, step.momentum
        change = -rate * step.decayed(gradient, weights)
        if not momentum:
            return weights + change, None
        carried = 0.0 if velocity is None else momentum * velocity
        weights = weights + change + momentum * (carried + change)
        return weights, carried - rate * step.decayed(gradient, weights)


@declare("adam", state_vectors=2)
@dataclass(frozen=True)
class AdamRule:
    """Adam (Kingma and Ba, ICLR 2015), as Gluon's.

    The state is (m, v): running means of the gradient and of its square, which begin with zeros. In
    step t = `Step.turn` + 1 they are corrected for that:
    weights ← weights − learning_rate·√(1 − beta2ᵗ)/(1 − beta1ᵗ)·m/(√v + epsilon). The weight decay
    is added to the gradient, and the sum is clipped.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    clip_gradient: float | None = None

    def __call__(self, weights: Array, gradient: Array, state: Any, step: Step) -> tuple[Array, Any]:
        """Take one step."""
        gradient = step.clipped(step.decayed(gradient, weights), self.clip_gradient)
        change, state = self.change(gradient, state, step)
        return weights - step.learning_rate * change, state

    def change(self, gradient: Array, state: Any, step: Step) -> tuple[Array, Any]:
        """Return what a learning rate of 1 would subtract from the weights, and the new state."""
        m, v = (1 - self.beta1) * gradient, (1 - self.beta2) * (gradient * gradient)
        if state is not None:
            m, v = self.beta1 * state[0] + m, self.beta2 * state[1] + v
        t = step.turn + 1
        correction = (1 - self.beta2**t) ** 0.5 / (1 - self.beta1**t)
        return correction * m / (v**0.5 + self.epsilon), (m, v)


@declare("adamw", state_vectors=2)
@dataclass(frozen=True)
class AdamWRule(AdamRule):
    """Adam with decoupled weight decay (Loshchilov and Hutter, ICLR 2019).

    weights ← weights − learning_rate·(Adam's change + weight_decay·weights), as MXNet's operator
    `adamw_update` with the learning rate as its eta. The gradient is clipped, without the decay.
    """

    def __call__(self, weights: Array, gradient: Array, state: Any, step: Step) -> tuple[Array, Any]:
        """Take one step."""
        change, state = self.change(step.clipped(gradient, self.clip_gradient), state, step)
        return weights - step.learning_rate * (change + step.weight_decay * weights), state


@declare("rmsprop", state_vectors=1)
@dataclass(frozen=True)
class RMSPropRule:
    """RMSProp (Tieleman and Hinton, 2012), as Gluon's.

    n ← gamma1·n + (1 − gamma1)·gradient²;
    weights ← weights − learning_rate·gradient/√(n + epsilon), then limited to ±clip_weights.

    The state is n. The weight decay is added to the gradient, and the sum is clipped.
    """

    gamma1: float = 0.9
    epsilon: float = 1e-8
    clip_gradient: float | None = None
    clip_weights: float | None = None

    def __call__(self, weights: Array, gradient: Array, state: Any, step: Step) -> tuple[Array, Any]:
        """Take one step."""
        gradient = step.clipped(step.decayed(gradient, weights), self.clip_gradient)
        n = self.running_mean(gradient * gradient, state)
        return self.limited(weights - step.learning_rate * gradient / (n + self.epsilon) ** 0.5), n

    def running_mean(self, values: Array, before: Array | None) -> Array:
        """Return the running mean with `values` added; None, before the first, counts as 0."""
        fresh = (1 - self.gamma1) * values
        return fresh if before is None else self.gamma1 * before + fresh

    def limited(self, weights: Array) -> Array:
        """Return the weights, limited to ±clip_weights."""
        return weights if self.clip_weights is None else weights.clip(-self.clip_weights, self.clip_weights)


@declare("centered_rmsprop", state_vectors=3)
@dataclass(frozen=True)
class CenteredRMSPropRule(RMSPropRule):
    """RMSProp with the gradient's variance in place of its square (Graves, arXiv 1308.0850).

    Gluon's with `centered`. With g, the running mean of the gradient:
    δ ← gamma2·δ − learning_rate·gradient/√(n − g² + epsilon);  weights ← weights + δ. The state is
    (n, g, δ). Where rounding makes n − g² negative it counts as 0; MXNet's operator returns NaN.
    """

    gamma2: float = 0.9

    def __call__(self, weights: Array, gradient: Array, state: Any, step: Step) -> tuple[Array, Any]:
        """Take one step."""
        gradient = step.clipped(step.decayed(gradient, weights), self.clip_gradient)
        n, g, delta = state if state is not None else (None, None, None)
        n, g = self.running_mean(gradient * gradient, n), self.running_mean(gradient, g)
        variance = (n - g * g).clip(0, math.inf)
        change = -step.learning_rate * gradient / (variance + self.epsilon) ** 0.5
        delta = change if delta is None else self.gamma2 * delta + change
        return self.limited(weights + delta), (n, g, delta)


@declare("adagrad", state_vectors=1)
@dataclass(frozen=True)
class AdaGradRule:
    """AdaGrad (Duchi et al., JMLR 2011), as Gluon's.

    h ← h + gradient²;
    weights ← weights − learning_rate·(gradient/√(h + eps) + weight_decay·weights).

    The state is h. The gradient is clipped, without the decay.
    """

    eps: float = 1e-7
    clip_gradient: float | None = None

    def __call__(self, weights: Array, gradient: Array, state: Any, step: Step) -> tuple[Array, Any]:
        """Take one step."""
        gradient = step.clipped(gradient, self.clip_gradient)
        history = gradient * gradient if state is None else state + gradient * gradient
        change = gradient / (history + self.eps) ** 0.5 + step.weight_decay * weights
        return weights - step.learning_rate * change, history


@declare("add_mean_update")
def add_mean_update(weights: Array, update: Array, state: None, step: Step) -> tuple[Array, None]:
    """Take ESync's global step (ESync paper, Algorithm 1, line READY): w ← w + ε · mean(Δ)."""
    return weights + step.learning_rate * update, state


@declare("add_participants_share")
def add_participants_share(vector: Array, change: Array, state: None, step: Step) -> tuple[Array, None]:
    """Update SCAFFOLD's control variate (Karimireddy et al., ICML 2020): c ← c + |S|/N · mean(Δc).

    It is Algorithm 1, line 17. |S| workers of N have taken part, and the mean is theirs: an absent
    one counts with a change of 0. There is no learning rate.
    """
    return vector + (step.count / step.workers) * change, state


@declare("outer_nesterov", state_vectors=1)
def outer_nesterov(weights: Array, update: Array, velocity: Array | None, step: Step) -> tuple[Array, Array | None]:
    """Apply Nesterov's momentum to the mean update (DiLoCo, arXiv 2311.08105).

    v ← momentum·v + mean(Δ);  w ← w + ε·(mean(Δ) + momentum·v).

    With momentum 0 it is `add_mean_update`. SlowMo (ICLR 2020) has plain momentum in the same
    place.
    """
    if not step.momentum:
        return weights + step.learning_rate * update, None
    velocity = 1 * update if velocity is None else step.momentum * velocity + update
    return weights + step.learning_rate * (update + step.momentum * velocity), velocity


@declare("delayed_nesterov", state_vectors=2)
def delayed_nesterov(weights: Array, update: Array, state: Any, step: Step) -> tuple[Array, Any]:
    """Take the outer step of asynchronous local SGD with delayed momentum (arXiv 2401.09135).

    This is the case c = 0 of its section 5. Each of n workers' updates counts at once: w ← w +
    ε·Δ/n. Every n-th time the momentum is renewed by the mean of the last n, v ← momentum·v + Σ
    Δ/n, and added, w ← w + ε·momentum·v: updates that are stale to different degrees do not each
    accelerate it. The state is (v, Σ Δ).
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


@declare(MEAN)
def replace_by_mean(weights: Array, mean: Array, state: None, step: Step) -> tuple[Array, None]:
    """Replace the values by their mean over the workers, whatever the learning rate.

    It is the rule for batch-norm statistics.
    """
    return 1 * mean, state  # a copy, made by arithmetic


@declare("delay_compensated_sgd", state_vectors=2)
@dataclass(frozen=True)
class DelayCompensatedSGDRule:
    """SGD on gradients corrected for their delay: DC-ASGD (Zheng et al., ICML 2017, Eq. 10 and 14).

    g̃ = g + λ·g⊙g⊙(w − w_bak(m)), where w_bak(m) are the weights that worker m was sent last
    (`step.sent`), the ones that its gradient belongs to. With `adaptive`, λ becomes strength ÷
    √(MeanSquare + 10⁻⁷) with the running mean MeanSquare ← decay·MeanSquare + (1 − decay)·g⊙g. With
    strength 0 this is plain ASGD.

    As in the paper, g is the mean gradient of a batch. A gradient G that is s times as large
    (`Step.gradient_scale`) is corrected by s times as much: G̃ = s·g̃ = G + λ/s·G⊙G⊙(w − w_bak(m)).
    With on="sum", G itself takes the place of g, as in the public implementation of ESync, and λ
    acts s times as strongly.
    """

    strength: float = config.DCASGD_LAMBDA
    adaptive: bool = config.DCASGD_ADAPTIVE
    decay: float = config.DCASGD_MEAN_SQUARE_DECAY
    on: str = config.DCASGD_LAMBDA_ON

    def __call__(self, weights: Array, gradient: Array, state: Any, step: Step) -> tuple[Array, Any]:
        """Take one step with the corrected gradient; the state is (velocity, MeanSquare)."""
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


def with_multipliers(rule: Rule, rate: float, decay: float) -> Rule:
    """Return the rule for parameters with these multipliers of the learning rate and of the weight decay."""

    def multiplied(weights: Array, value: Array, state: Any, step: Step) -> tuple[Array, Any]:
        step = replace(step, learning_rate=rate * step.learning_rate, weight_decay=decay * step.weight_decay)
        return rule(weights, value, state, step)

    return multiplied


def split_state(state: Any) -> list[Array | None]:
    """Return the vectors of a rule's state."""
    return list(state) if isinstance(state, tuple) else [state]


def join_state(vectors: list[Array | None]) -> Any:
    """Return a rule's state from its vectors; the inverse of `split_state`."""
    if all(vector is None for vector in vectors):
        return None
    return tuple(vectors) if len(vectors) > 1 else vectors[0]


def make_rule(name: str, options: dict[str, Any]) -> Rule:
    """Make the rule of that name.

    Raises:
        ValueError: the rule is unknown, or has no such option; the message names it.
    """
    if name not in RULES:
        raise ValueError(f"unknown update rule {name!r}; known: {', '.join(RULES)}")
    try:
        return RULES[name](**options)
    except TypeError as error:
        raise ValueError(f"update rule {name!r} cannot take the options {options}: {error}") from None
