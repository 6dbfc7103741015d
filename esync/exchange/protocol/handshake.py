"""The handshake: a worker's first message to a server, and the check that all workers agree.

The first handshake sets a server up. Later ones are compared with it, so workers with different
networks, data or versions get an error that names the differences before the first exchange. It is
sent as JSON in a command of MXNet's key store, not as a pickle.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any, Union

from ...runtime.errors import enumeration
from ...version import __version__
from . import wire
from .layout import WEIGHTS, Layout
from .resume_negotiation import Offers, RunProgress
from .round_state import Limits
from .specification import RANDOM_NUMBERS, Specification

#: The number of all commands: MXNet reserves 1 to 5.
COMMAND = 0

#: Fields that may differ between workers.
PERSONAL = ("rank", "nonce", "address", "replacement", "offers")


@dataclass(frozen=True)
class Resumed:
    """The command of a worker that has resumed from a checkpoint.

    Attributes:
        rank: its slot.
        nonce: as in its handshake.
        exchanges: number of exchanges of this slot before the checkpoint.
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
        """Return the command from the decoded JSON of `encode`."""
        progress = fields["progress"]
        return cls(**{**fields, "progress": None if progress is None else RunProgress(**progress)})


@dataclass(frozen=True)
class Heartbeat:
    """The command by which a worker shows that it is alive while it computes.

    It is not a message, because messages are arrays, and wait for long operators of MXNet.

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
    """The settings of one worker and its process.

    Attributes:
        rank: its slot.
        nonce: a random number of this process; a replacement for the same slot has another.
        slots: number of workers.
        sizes: name of each vector of its model → number of values.
        servers: number of parameter servers.
        bucket_elements: the most values in one bucket.
        specification: of the exchange. All of it except `individual` must agree.
        limits: of the run.
        agreement: further settings that must agree, name → value; errors show both.
        lease: seconds of silence after which the servers go on without a worker; infinite: never.
        address: at which this worker listens, host:port; "": not known.
        replacement: seconds that the servers wait for a replacement once this worker is gone
            without a goodbye; infinite: its launcher has promised one.
        offers: the checkpoints that this worker could resume from.
        protocol: version of the wire format.
        version: of ESync.
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
        """Decode a text of `encode`.

        Raises:
            ValueError: it is not the handshake of a worker of this version.
        """
        try:
            fields = json.loads(text)
            fields["limits"] = Limits(**fields["limits"])
            fields["offers"] = Offers.decode(fields["offers"])
            fields["specification"] = Specification(**fields["specification"])
            return cls(**fields)
        except (AttributeError, TypeError, KeyError, ValueError) as error:
            raise ValueError(f"not a handshake of a worker of this version: {error}") from None

    def differences(self, other: "Handshake") -> list[str]:
        """Return phrases that describe in what `other` has to agree with this worker but does not."""
        personal = {name: getattr(self, name) for name in PERSONAL}
        personal["specification"] = replace(other.specification, individual=self.specification.individual)
        if replace(other, **personal) == self:
            return []
        return describe_differences(self._terms(), other._terms())

    def _terms(self) -> dict[str, Any]:
        terms = asdict(self)
        agreement, sizes, specification = (terms.pop(name) for name in ("agreement", "sizes", "specification"))
        for name in PERSONAL:
            del terms[name]
        del specification["individual"]
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
    """Decode a command of a worker.

    Raises:
        ValueError: it is not a command.
    """
    fields = json.loads(text)
    if "heartbeat" in fields:
        return Heartbeat(**fields["heartbeat"])
    resumed = fields.get("resumed")
    return Handshake.decode(text) if resumed is None else Resumed.of(resumed)


class StartNotice:
    """The warning at the start: settings that differ between workers, or equal random numbers.

    Args:
        first: the handshake of the first worker, with which the others are compared.

    Attributes:
        first: as given.
    """

    def __init__(self, first: Handshake) -> None:
        self.first, self._settings = first, _settings(first)
        self._differences: dict[int, list[str]] = {}  # rank → differences from the first worker
        self._states: dict[int, list[tuple[str, str]]] = {}  # rank → (generator, its state)
        self._ranks: dict[tuple[str, str], set[int]] = {}  # (generator, its state) → ranks

    @property
    def workers(self) -> int:
        """Number of workers whose handshakes were added."""
        return len(self._states)

    def add(self, handshake: Handshake) -> None:
        """Add the handshake of a worker, or replace an earlier one of its rank."""
        rank, settings = handshake.rank, _settings(handshake)
        self._differences.pop(rank, None)
        if settings != self._settings:
            self._differences[rank] = describe_differences(self._settings, settings)
        for state in self._states.pop(rank, ()):
            self._ranks[state].discard(rank)
        self._states[rank] = list(handshake.specification.individual.get(RANDOM_NUMBERS, {}).items())
        for state in self._states[rank]:
            self._ranks.setdefault(state, set()).add(rank)

    def text(self) -> str:
        """Return the warning; "" if there is none."""
        warnings = [
            f"worker {rank} trains with {'; '.join(differences)} of worker {self.first.rank}. In this mode the "
            "optimizer is each worker's own, so training goes on"
            for rank, differences in self._differences.items()
        ][:1]  # the status has room for one
        equal = {generator: ranks for (generator, _), ranks in self._ranks.items() if len(ranks) > 1}
        if equal:
            ranks = max(equal.values(), key=len)
            warnings.append(
                f"workers {enumeration(sorted(ranks), 9)} begin with the same random numbers ({' and '.join(equal)}): "
                "what their programs draw (batches, crops, noise) is the same on all of them. Call "
                "esync.reseed(trainer, seed) after trainer.start() for numbers by rank; trainer.batches seeds by rank "
                "itself"
            )
        return ". ".join(warnings)


def _settings(handshake: Handshake) -> dict[str, Any]:
    return {name: value for name, value in handshake.specification.individual.items() if name != RANDOM_NUMBERS}


def describe_differences(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> list[str]:
    """Return a phrase for every name whose values differ."""
    return [
        f"{name} {_show(actual.get(name))} instead of {_show(expected.get(name))}"
        for name in sorted(set(expected) | set(actual))
        if expected.get(name) != actual.get(name)
    ]


def _show(value: Any) -> str:
    return "nothing" if value is None else str(value)
