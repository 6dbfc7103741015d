"""The specification of an exchange, by which servers or ranks of a collective treat payloads."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ... import config
from ...rules import MEAN, Rule, make_rule
from ...runtime.errors import ExpectedError
from ..codecs.quantization import NONE
from ..weighting import AS_UPDATES, STATISTICS_WEIGHTINGS, check, unnormalized
from . import wire
from .layout import STATISTICS, WEIGHTS
from .scalars import check_added


class PerHostError(ExpectedError):
    """Raised when the workers of a host cannot exchange as one in this mode.

    Args:
        reason: what the mode has that does not go with `per_host`.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"{reason}: per_host adds up what the workers of a host exchange in rounds, which this mode does not do: "
            "remove per_host from the description, or choose a synchronous mode"
        )


#: The key of digests of random generators in `Specification.own`.
RANDOM_NUMBERS = "random numbers"


@dataclass(frozen=True)
class Specification:
    """The specification of an exchange: what servers are asked to do with payloads.

    Private answers, sparseness, compression and normalized weighting are for the weights only; all
    other vectors travel as they are.

    Attributes:
        rule: of the weights: name in rules.RULES.
        synchronous: whether every round waits for all workers and uses their mean; else every
            payload is used at once.
        options: of the weights' rule.
        private: whether every worker gets weights of its own back, and the rule is told which ones
            it was sent last.
        sparse: whether messages are sparse both ways, which `options` are for, see
            `sparse.Differences`; the weights have no rule then.
        weighting: how much each worker counts in a mean, see `weighting`.
        statistics_weighting: the same in the mean of the statistics, one of STATISTICS_WEIGHTINGS.
        compression: of the weights' messages, "none", "fp16" or "2bit"; synchronous ones only.
        tensors: sizes of the tensors that the weights consist of, where compression is told of
            them.
        staleness: exchanges that a worker may be ahead of the slowest; the answer to one that is
            further ahead waits. For specifications that are not synchronous.
        own: settings that may differ between workers, name → value; where they do, all workers are
            told. Those at RANDOM_NUMBERS, digests of random generators by name, should differ.
        overlap: whether this worker goes on while an exchange is under way: the handles' `done`
            never waits, and is True when all has arrived.
        vectors: name of each vector that is exchanged → name of its rule in rules.RULES, the
            weights first. Give only further ones: the weights, and the statistics, which are
            replaced by their mean, come by themselves.
        scalars: name of each scalar that payloads have beside the built-in ones → how the servers
            combine those of a round, in scalars.WAYS.
        per_host: the most workers on one host that exchange as one (`host_group`), 1: each for
            itself. Given by the host group, not by algorithms.
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
    own: dict[str, Any] = field(default_factory=dict)
    overlap: bool = False
    vectors: Mapping[str, str] = field(default_factory=dict)
    scalars: Mapping[str, str] = field(default_factory=dict)
    per_host: int = 1

    def __post_init__(self) -> None:
        others = {name: rule for name, rule in self.vectors.items() if name != WEIGHTS}
        check_added(self.scalars, wire.MESSAGE.names or ())
        object.__setattr__(self, "vectors", {WEIGHTS: self.rule, STATISTICS: MEAN, **others})
        if self.per_host > 1:
            self._check_per_host()

    def _check_per_host(self) -> None:
        """Refuse what the workers of a host cannot exchange as one.

        Raises:
            PerHostError: the message names it.
        """
        unfit = {
            "sparse messages (modes gd-async, dgc-async and dgs)": self.sparse,
            "weights of its own for each worker (mode dcasgd)": self.private,
            "a limit to staleness (mode ssp)": self.staleness < math.inf,
        }
        if found := next((what for what, here in unfit.items() if here), None):
            raise PerHostError(found)

    def rules(self) -> dict[str, Rule]:
        """Make the rule of every vector; where messages are sparse, of all but the weights.

        Raises:
            ValueError: there is no such rule, or it does not have these options.
        """
        return {
            name: make_rule(rule, self.options if name == WEIGHTS else {})
            for name, rule in self.vectors.items()
            if not (self.sparse and name == WEIGHTS)
        }

    def weightings(self) -> dict[str, str]:
        """Return how much each worker counts in the mean of every vector.

        Raises:
            ValueError: there is no such weighting.
        """
        others = unnormalized(check(self.weighting))
        statistics = others if self.statistics_weighting == AS_UPDATES else self.statistics_weighting
        if statistics not in STATISTICS_WEIGHTINGS:
            raise ValueError(
                f"statistics weighting is {statistics!r}, but should be one of {', '.join(STATISTICS_WEIGHTINGS)}"
            )
        own = {WEIGHTS: self.weighting, STATISTICS: statistics}
        return {name: own.get(name, others) for name in self.vectors}

    def channel(self, vector: str, rank: int) -> int:
        """Return the channel (see `layout`) in which worker `rank` sends and gets a vector."""
        return rank + 1 if self.private and vector == WEIGHTS else 0
