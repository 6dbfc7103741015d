"""The handshake: a worker's first message to a server, and the check that all workers agree.

The first handshake sets a server up; every later one is compared with it, so that workers with
different networks, data or versions hear about it by name before the first exchange. It travels as
JSON in a command of MXNet's key store (never as a pickle).
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any, Union, get_origin, get_type_hints

from ...runtime.errors import enumeration
from ...version import __version__
from . import wire
from .layout import WEIGHTS, Layout
from .resume_negotiation import Offers, RunProgress
from .round_state import Limits
from .specification import RANDOM_NUMBERS, Specification

#: The number of both commands: MXNet's servers keep 1 to 5 for themselves.
COMMAND = 0

#: Fields that may differ between workers.
PERSONAL = ("rank", "nonce", "address", "replacement", "offers")


@dataclass(frozen=True)
class Resumed:
    """The second command of a worker in jobs that go on from a checkpoint: it has gone back to it.

    Attributes:
        rank: its slot.
        nonce: as in its handshake.
        exchanges: of this slot that were used before the checkpoint.
        progress: of the run, from rank 0 only.
    """

    rank: int
    nonce: int
    exchanges: int
    progress: RunProgress | None

    def encode(self) -> str:
        """Return the command as JSON text."""
        return json.dumps({"resumed": asdict(self)})

    @classmethod
    def of(cls, fields: dict[str, Any]) -> "Resumed":
        """Return the command from the decoded text of `encode`."""
        progress = fields["progress"]
        return cls(**{**fields, "progress": None if progress is None else RunProgress(**progress)})


@dataclass(frozen=True)
class Heartbeat:
    """A command of a worker that computes: it is alive.

    Messages travel as arrays do, and so behind an operator of MXNet that takes long; commands pass
    it.

    Attributes:
        rank: its slot.
        nonce: as in its handshake.
    """

    rank: int
    nonce: int

    def encode(self) -> str:
        """Return the command as JSON text."""
        return json.dumps({"heartbeat": asdict(self)})


#: The commands of workers.
Command = Union["Handshake", Resumed, Heartbeat]


@dataclass(frozen=True)
class Handshake:
    """One worker's introduction.

    Attributes:
        rank: its slot.
        nonce: a number of this process only; a replacement for the same slot has another.
        slots: number of workers.
        sizes: name of each vector of its model → number of values.
        servers: number of parameter servers.
        bucket_elements: the most values in one bucket.
        specification: of what the other side does with payloads. All of it must agree, except
            `own`.
        limits: what ends the run.
        agreement: whatever else must be the same on all workers; name → value, both shown when they
            differ.
        lease: seconds of silence after which the servers go on without a worker; infinite: they
            wait.
        address: at which this worker listens, host:port; "" where that is not known.
        replacement: seconds that the servers wait for another process in its place, once it is gone
            without a goodbye; infinite: somebody has promised to start one.
        offers: the checkpoints that this worker could go on from.
    """

    rank: int
    nonce: int
    slots: int
    sizes: Mapping[str, int]
    servers: int
    bucket_elements: int
    specification: Specification
    limits: Limits = field(default_factory=Limits)
    agreement: dict[str, Any] = field(default_factory=dict)
    lease: float = math.inf
    address: str = ""
    replacement: float = math.inf
    offers: Offers = field(default_factory=Offers)
    protocol: int = wire.PROTOCOL
    version: str = __version__

    def __post_init__(self) -> None:
        unlike = set(self.sizes) ^ set(self.specification.vectors)
        if unlike:
            raise ValueError(
                f"every vector that is exchanged needs a size and a rule, but {', '.join(sorted(unlike))} has one only"
            )

    def layout(self) -> Layout:
        """Return how this worker's model is cut into buckets."""
        return _layout(tuple(self.sizes.items()), self.servers, self.bucket_elements)

    def encode(self) -> str:
        """Return the handshake as JSON text."""
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str | bytes) -> "Handshake":
        """Read a text of `encode`; ValueError where it is something else."""
        try:
            fields = json.loads(text)
            fields["limits"] = Limits(**fields["limits"])
            fields["offers"] = Offers.decode(fields["offers"])
            fields["specification"] = Specification(**fields["specification"])
            handshake = cls(**fields)
            for part in (handshake, handshake.specification, handshake.limits):
                _check_types(part)
            if not all(type(size) is int for size in handshake.sizes.values()):
                raise TypeError(f"sizes are {handshake.sizes}, but should be whole numbers")
            return handshake
        except (AttributeError, TypeError, KeyError, ValueError) as error:
            raise ValueError(f"not a handshake of a worker of this version: {error}") from None

    def differences(self, other: "Handshake") -> list[str]:
        """Return what keeps `other` from working together with this worker, as phrases.

        There are none where they fit.
        """
        alike = {name: getattr(self, name) for name in PERSONAL}
        alike["specification"] = replace(other.specification, own=self.specification.own)
        if replace(other, **alike) == self:
            return []
        return describe_differences(self._terms(), other._terms())

    def _terms(self) -> dict[str, Any]:
        terms = asdict(self)
        agreement, sizes, specification = (terms.pop(name) for name in ("agreement", "sizes", "specification"))
        for name in PERSONAL:
            del terms[name]
        del specification["own"]
        rules = specification.pop("vectors")
        del rules[WEIGHTS]  # appears as "rule"
        terms |= {f"rule of {name}": rule for name, rule in rules.items()}
        return {
            name.replace("_", " "): value for name, value in {**sizes, **terms, **specification, **agreement}.items()
        }


@lru_cache(maxsize=16)  # the workers of a simulation share it
def _layout(sizes: tuple[tuple[str, int], ...], servers: int, bucket_elements: int) -> Layout:
    return Layout(dict(sizes), servers, bucket_elements)


def decode(text: str | bytes) -> Command:
    """Read a command of a worker; ValueError where it is something else."""
    fields = json.loads(text)
    if "heartbeat" in fields:
        return Heartbeat(**fields["heartbeat"])
    resumed = fields.get("resumed")
    return Handshake.decode(text) if resumed is None else Resumed.of(resumed)


def _check_types(record: Any) -> None:
    """Raise TypeError where a field of a dataclass is not of the type that it is declared with."""
    for name, hint in get_type_hints(type(record)).items():
        kind, value = get_origin(hint) or hint, getattr(record, name)
        if not isinstance(value, (int, float) if kind is float else kind):
            raise TypeError(f"{name} is {value!r}, but should be {kind.__name__}")


class StartNotice:
    """A warning about workers whose settings differ, or whose random numbers do not.

    Args:
        first: the handshake of the first worker, which the others are compared with.

    Attributes:
        first: the same.
    """

    def __init__(self, first: Handshake) -> None:
        self.first, self._settings = first, _settings(first)
        self._differences: dict[int, list[str]] = {}  # rank → differences from the first worker
        self._states: dict[int, list[tuple[str, str]]] = {}  # rank → (generator, its state)
        self._ranks: dict[tuple[str, str], set[int]] = {}  # (generator, its state) → ranks

    @property
    def workers(self) -> int:
        """Number of workers whose handshakes have come."""
        return len(self._states)

    def add(self, handshake: Handshake) -> None:
        """Take the handshake of a worker, which replaces an earlier one of its rank."""
        rank, settings = handshake.rank, _settings(handshake)
        self._differences.pop(rank, None)
        if settings != self._settings:
            self._differences[rank] = describe_differences(self._settings, settings)
        for state in self._states.pop(rank, ()):
            self._ranks[state].discard(rank)
        self._states[rank] = list(handshake.specification.own.get(RANDOM_NUMBERS, {}).items())
        for state in self._states[rank]:
            self._ranks.setdefault(state, set()).add(rank)

    def text(self) -> str:
        """Return the warning; "" if there is nothing to warn of."""
        warnings = [
            f"worker {rank} trains with {'; '.join(differences)} of worker {self.first.rank}. In this mode the "
            "optimizer is each worker's own, so training goes on"
            for rank, differences in self._differences.items()
        ][:1]  # there is room for one
        alike = {generator: ranks for (generator, _), ranks in self._ranks.items() if len(ranks) > 1}
        if alike:
            ranks = max(alike.values(), key=len)
            warnings.append(
                f"workers {enumeration(sorted(ranks), 9)} begin with the same random numbers ({' and '.join(alike)}): "
                "what their programs draw (batches, crops, noise) is the same on all of them. Call "
                "esync.reseed(trainer, seed) after trainer.start() for numbers by rank; trainer.batches seeds by rank "
                "itself"
            )
        return ". ".join(warnings)


def _settings(handshake: Handshake) -> dict[str, Any]:
    return {name: value for name, value in handshake.specification.own.items() if name != RANDOM_NUMBERS}


def describe_differences(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """Return a phrase for each name whose values differ."""
    return [
        f"{name} {_show(theirs.get(name))} instead of {_show(mine.get(name))}"
        for name in sorted(set(mine) | set(theirs))
        if mine.get(name) != theirs.get(name)
    ]


def _show(value: Any) -> str:
    return "nothing" if value is None else str(value)
