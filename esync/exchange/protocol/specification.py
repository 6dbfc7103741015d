"""The specification of an exchange: how servers, or the ranks of a collective, process payloads."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ... import config
from ...rules import MEAN, STATE_VECTORS, Rule, make_rule, with_multipliers
from ...runtime.errors import ExpectedError
from ..codecs.quantization import AUTO, NONE
from ..weighting import AS_UPDATES, STATISTICS_WEIGHTINGS, check, unnormalized
from . import wire
from .layout import STATISTICS, WEIGHTS
from .scalars import COMPRESSION, check_added


class PerHostError(ExpectedError):
    """Raised if a mode does not support `per_host`.

    Args:
        reason: the property of the mode that `per_host` does not support.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"{reason}: per_host adds up what the workers of a host exchange in rounds, which this mode does not do: "
            "remove per_host from the description, or choose another mode ('esync', 'local-sgd', …)"
        )


#: The key of the digests of random generators in `Specification.individual`.
RANDOM_NUMBERS = "random numbers"


@dataclass(frozen=True)
class Specification:
    """The specification of an exchange: how payloads are sent and used.

    `private`, `sparse`, `compression` and a normalized `weighting` apply to the weights only; all
    other vectors are sent uncompressed.

    Attributes:
        rule: of the weights: a name in rules.RULES.
        synchronous: whether rounds wait for all workers and use the mean of their payloads; else
            every payload is used at once.
        options: of the weights' rule.
        private: whether every worker receives weights of its own, and the rule uses those that the
            worker was sent last.
        sparse: whether messages are sparse both ways, with `options` for `sparse.Differences`. The
            weights have no rule then.
        weighting: how much each worker counts in a mean, see `weighting`.
        statistics_weighting: the same in the mean of the statistics, one of STATISTICS_WEIGHTINGS.
        compression: of the weights' messages, "none", "fp16", "4bit" or "2bit", or "auto": payloads
            say it; for synchronous specifications only.
        tensors: sizes of the tensors that the weights consist of, if the compression needs them.
        staleness: number of exchanges that a worker may be ahead of the slowest one before it has
            to wait. For specifications that are not synchronous.
        individual: settings that may differ between workers, name → value. If they do, all workers print a
            notice. Those at RANDOM_NUMBERS, digests of random generators by name, should differ.
        overlap: whether this worker continues to train during an exchange: `done` of the handles
            never waits, and is True when the model has been received.
        vectors: name of each vector that is exchanged → name of its rule in rules.RULES, the
            weights first. Pass only further ones to the constructor, which adds the weights and
            the statistics (replaced by their mean).
        vector_options: name of each vector other than the weights → options of its rule, if it has
            any. Parameters of a further optimizer, or with other multipliers, are such a vector.
        multipliers: name of each vector → multipliers of its learning rate and its weight decay, if
            they are not 1.
        scalars: name of each scalar of payloads other than the built-in ones → how the servers
            combine those of a round, a key of scalars.WAYS.
        per_host: the most workers of one host that exchange as one (`host_group`); 1: each worker
            exchanges for itself. Set by the host group, not by algorithms.
    """

    rule: str
    synchronous: bool
    options: dict[str, Any] = field(default_factory=dict)
    private: bool = False
    sparse: bool = False
    weighting: str = config.WEIGHTING
    statistics_weighting: str = AS_UPDATES
    compression: str = NONE
    tensors: list[int] = field(default_factory=list)
    staleness: float = math.inf
    individual: dict[str, Any] = field(default_factory=dict)
    overlap: bool = False
    vectors: Mapping[str, str] = field(default_factory=dict)
    vector_options: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    multipliers: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    scalars: Mapping[str, str] = field(default_factory=dict)
    per_host: int = 1

    def __post_init__(self) -> None:
        further = {name: rule for name, rule in self.vectors.items() if name != WEIGHTS}
        check_added(self.scalars, wire.MESSAGE.names or ())
        if self.compression == AUTO:
            object.__setattr__(self, "scalars", {**self.scalars, COMPRESSION: "maximum"})
        object.__setattr__(self, "vectors", {WEIGHTS: self.rule, STATISTICS: MEAN, **further})
        if self.per_host > 1:
            self._check_per_host()

    def _check_per_host(self) -> None:
        unsupported = {
            "sparse messages (modes gd-async, dgc-async and dgs)": self.sparse,
            "weights of its own for each worker (mode dcasgd)": self.private,
            "a limit to staleness (mode ssp)": self.staleness < math.inf,
            "several optimizers, or lr_mult and wd_mult, where the servers step": bool(self.vector_options),
        }
        if reason := next((description for description, in_use in unsupported.items() if in_use), None):
            raise PerHostError(reason)

    def rules(self) -> dict[str, Rule]:
        """Make the rule of every vector; with sparse messages, of all but the weights.

        Raises:
            ValueError: a rule is unknown, or does not have these options.
        """
        rules = {
            name: make_rule(rule, self.options if name == WEIGHTS else self.vector_options.get(name, {}))
            for name, rule in self.vectors.items()
            if not (self.sparse and name == WEIGHTS)
        }
        return rules | {name: with_multipliers(rules[name], *pair) for name, pair in self.multipliers.items()}

    @property
    def state_vectors(self) -> dict[str, int]:
        """Name of each vector whose rule's state checkpoints keep → number of the state's vectors."""
        return {name: STATE_VECTORS.get(self.vectors[name], 0) for name in (WEIGHTS, *self.vector_options)}

    def weightings(self) -> dict[str, str]:
        """Return how much each worker counts in the mean of every vector.

        Raises:
            ValueError: a weighting is unknown.
        """
        default = unnormalized(check(self.weighting))
        statistics = default if self.statistics_weighting == AS_UPDATES else self.statistics_weighting
        if statistics not in STATISTICS_WEIGHTINGS:
            raise ValueError(
                f"statistics weighting is {statistics!r}, but should be one of {', '.join(STATISTICS_WEIGHTINGS)}"
            )
        special = {WEIGHTS: self.weighting, STATISTICS: statistics}
        return {name: special.get(name, default) for name in self.vectors}
