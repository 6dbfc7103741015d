"""What a worker tells the servers before anything else, and what must agree between workers.

The first greeting sets a server up; every later one is compared with it, so that workers with different networks, data
or versions hear about it by name before the first exchange. It travels as JSON in a command of MXNet's key store (never
as a pickle).
"""

import json
import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ... import config
from ...compression import NONE
from ...version import __version__
from ..base import Service
from . import wire
from .layout import Layout
from .ledger import Limits
from .resumption import Books, Offers

#: The number of both commands: MXNet's servers keep 1 to 5 for themselves.
COMMAND = 0

#: What may differ between workers.
PERSONAL = ("rank", "nonce", "address", "aside", "offers", "own")


@dataclass(frozen=True)
class Resumed:
    """A worker's word that it has gone back to a checkpoint: the second command, in jobs that go on from one.

    Attributes:
        rank: its slot.
        nonce: as in its greeting.
        exchanges: of this slot that were used before the checkpoint.
        books: of the run, from rank 0 only.
    """

    rank: int
    nonce: int
    exchanges: int
    books: Books | None

    def encode(self) -> str:
        """As JSON text."""
        return json.dumps({"resumed": asdict(self)})

    @classmethod
    def decode(cls, text: str | bytes) -> "Resumed | None":
        """Read what `encode` wrote; None where it is something else."""
        fields = json.loads(text).get("resumed")
        if fields is None:
            return None
        books = fields.pop("books")
        return cls(**fields, books=None if books is None else Books(**books))


@dataclass(frozen=True)
class Greeting:
    """One worker's introduction.

    Attributes:
        rank: its slot.
        nonce: a number of this process only; a replacement for the same slot has another.
        slots: workers in all.
        weights: trained values of its model.
        statistics: values that are averaged only.
        servers: number of parameter servers.
        bucket_elements: the most values in one bucket.
        rule: name in rules.RULES, with its options.
        synchronous: whether rounds wait for every worker.
        private: whether every worker gets an answer of its own.
        sparse: whether messages are sparse both ways.
        weighting: how much each worker counts in a mean.
        staleness: exchanges that a worker may be ahead of the slowest.
        compression: of the weights' messages.
        tensors: sizes of the tensors that the weights consist of, where the server has to know.
        limits: what ends the run.
        agreement: whatever else must be the same on all workers; name → value, both shown when they differ.
        lease: seconds of silence after which the servers go on without a worker; infinite: they wait.
        address: where this worker listens, host:port; "" where that is not known.
        aside: it steps back: it is not to be waited for until it greets again.
        offers: the checkpoints that this worker could go on from.
        own: settings that may differ, name → value; where they do, it is said.
    """

    rank: int
    nonce: int
    slots: int
    weights: int
    statistics: int
    servers: int
    bucket_elements: int
    rule: str
    options: dict[str, Any]
    synchronous: bool
    private: bool
    sparse: bool = False
    weighting: str = config.WEIGHTING
    staleness: float = math.inf
    compression: str = NONE
    tensors: list[int] = field(default_factory=list)
    limits: Limits = field(default_factory=Limits)
    agreement: dict[str, Any] = field(default_factory=dict)
    lease: float = math.inf
    address: str = ""
    aside: bool = False
    offers: Offers = field(default_factory=Offers)
    own: dict[str, Any] = field(default_factory=dict)
    protocol: int = wire.PROTOCOL
    version: str = __version__

    @classmethod
    def asking_for(cls, service: Service, **fields: Any) -> "Greeting":
        """The greeting of a worker that wants this service; `fields` are the other attributes."""
        return cls(
            rule=service.rule,
            options=service.options,
            synchronous=service.synchronous,
            private=service.private,
            sparse=service.sparse,
            weighting=service.weighting,
            staleness=service.staleness,
            compression=service.compression,
            tensors=service.tensors,
            own=service.own,
            **fields,
        )

    def layout(self) -> Layout:
        """How this worker's model is cut into buckets."""
        return Layout(self.weights, self.statistics, self.servers, self.bucket_elements)

    def encode(self) -> str:
        """As JSON text."""
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str | bytes) -> "Greeting":
        """Read what `encode` wrote; ValueError where it is something else."""
        try:
            fields = json.loads(text)
            fields["limits"] = Limits(**fields["limits"])
            fields["offers"] = Offers.decode(fields["offers"])
            return cls(**fields)
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(f"not a greeting of a worker of this version: {error}") from None

    def differences(self, other: "Greeting") -> list[str]:
        """What keeps `other` from working together with this worker, one sentence part each; empty: nothing."""
        alike = {name: getattr(self, name) for name in PERSONAL}
        if replace(other, **alike) == self:
            return []
        return _differences(self._terms(), other._terms())

    def notice(self, other: "Greeting") -> str:
        """Tell in what the settings of `other` differ that may; "" where they do not."""
        differences = _differences(self.own, other.own)
        if not differences:
            return ""
        return (
            f"worker {other.rank} trains with {'; '.join(differences)} of worker {self.rank}. In this mode the "
            "optimizer is each worker's own, so training goes on"
        )

    def _terms(self) -> dict[str, Any]:
        terms = asdict(self)
        agreement = terms.pop("agreement")
        for name in PERSONAL:
            del terms[name]
        return {name.replace("_", " "): value for name, value in {**terms, **agreement}.items()}


def _differences(mine: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    return [
        f"{name} {_show(theirs.get(name))} instead of {_show(mine.get(name))}"
        for name in sorted(set(mine) | set(theirs))
        if mine.get(name) != theirs.get(name)
    ]


def _show(value: Any) -> str:
    return "nothing" if value is None else str(value)
