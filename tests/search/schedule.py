"""What is drawn from a seed: how a job is set up, and who dies when."""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from esync.compression import NONE
from esync.exchange import Specification

from ..exchange.vectors import TENSORS

SPARSE = {"tensors": TENSORS, "secondary_ratio": 0.0, "dense_below": 0, "values": "float32"}


@dataclass(frozen=True)
class Kind:
    """One way to train.

    Attributes:
        specification: what workers ask the servers for.
        elastic: whether the servers go on without workers that are gone.
        checkpoints: whether checkpoints may be written.
        linear: whether the servers' weights are the sum of the commits that were used, but for rounding.
    """

    specification: Specification
    elastic: bool = False
    checkpoints: bool = True
    linear: bool = False

    @property
    def rounds(self) -> bool:
        """Whether all workers must hold the same model after every round."""
        return self.specification.synchronous and self.specification.rule != "momentum_sgd"

    @property
    def forgetful(self) -> bool:
        """Whether a worker keeps values for later payloads, which its replacement does not have."""
        return bool(self.specification.compression != NONE)


def _compressed(compression: str) -> Specification:
    return Specification("add_mean_update", True, compression=compression, tensors=TENSORS)


_PLAIN: dict[str, Kind] = {
    "sync": Kind(Specification("sgd", True), linear=True),
    "async": Kind(Specification("sgd", False), linear=True),
    "private": Kind(
        Specification("delay_compensated_sgd", False, {"strength": 0.5, "adaptive": False}, private=True), linear=True
    ),
    "ssp": Kind(Specification("sgd", False, staleness=1), linear=True),
    "switch": Kind(Specification("momentum_sgd", True)),
    "sparse": Kind(Specification("difference", False, SPARSE, sparse=True), linear=True),
    "fp16": Kind(
        _compressed("fp16"),
    ),
    "2bit": Kind(_compressed("2bit")),
    "topk": Kind(_compressed("topk:0.1")),
    "overlap": Kind(Specification("sgd", True, overlap=True), checkpoints=False, linear=True),
}
#: Modes that refuse --elastic.
_NOT_ELASTIC = ("ssp", "switch")
#: Name → kind; "-elastic" behind those whose servers go on without workers that are gone.
KINDS: dict[str, Kind] = {
    **_PLAIN,
    **{f"{name}-elastic": replace(kind, elastic=True) for name, kind in _PLAIN.items() if name not in _NOT_ELASTIC},
}

#: What can happen to a worker, a machine, or everything. A worker that hangs is silent for longer than the lease.
WORKER, MACHINE, POWER, HANG = "worker", "machine", "power", "hang"


@dataclass(frozen=True)
class Death:
    """The death of a worker, a machine, or everything.

    Attributes:
        step: number of steps before it, since the beginning of the schedule.
        what: WORKER, MACHINE, POWER or HANG.
        number: of the worker, as the launcher counts them, or of the machine.
    """

    step: int
    what: str
    number: int = 0

    def __str__(self) -> str:
        return f"{self.step}:{self.what}" + f":{self.number}" * (self.what != POWER)

    @classmethod
    def parse(cls, text: str) -> "Death":
        """Read what `str` wrote."""
        step, what, *number = text.split(":")
        if what not in (WORKER, MACHINE, POWER, HANG):
            raise ValueError(f"{text!r} should be STEP:worker:N, STEP:machine:N, STEP:hang:N or STEP:power")
        return cls(int(step), what, *map(int, number))


@dataclass(frozen=True)
class Schedule:
    """All that is drawn for one run; with the same program it always has the same history.

    Attributes:
        kind: name in KINDS.
        seed: of the order in which things happen.
        workers: number of worker slots.
        servers: number of parameter servers.
        machines: number of machines; worker or server number i runs on machine i modulo this.
        dedicated: 1: servers run on machines of their own, which never die.
        rounds: limit of the run.
        every: rounds from one checkpoint to the next; 0: there are none.
        keep: checkpoints that are kept.
        restarts: how often the launcher replaces each worker.
        lease: seconds; infinite where the kind is not elastic.
        momentum: of the servers' rule.
        stop: the round after which a worker asks for the end; 0: nobody does.
        deaths: in the order of their steps.
        calm: the step from which on nothing is left to chance: always the first of the possible things happens.
    """

    kind: str
    seed: int
    workers: int
    servers: int
    machines: int
    dedicated: int
    rounds: int
    every: int
    keep: int
    restarts: int
    lease: float
    momentum: float
    stop: int
    deaths: tuple[Death, ...]
    calm: int = 10**9

    @property
    def settings(self) -> Kind:
        """The kind."""
        return KINDS[self.kind]

    @property
    def command(self) -> str:
        """The command that runs it again."""
        drawn, words = draw(self.kind, self.seed), []
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "deaths":
                if value != drawn.deaths:
                    words.append(f"--deaths {','.join(map(str, value)) or '-'}")
            elif value != getattr(drawn, field.name):
                words.append(f"--{field.name} {value:g}")
        return " ".join(["python -m tests.search", self.kind, str(self.seed), *words])


def estimated_steps(schedule: Schedule) -> int:
    """Estimate how many steps a schedule has when nobody dies."""
    pieces = schedule.workers * schedule.servers
    exchange = 14 if not schedule.settings.specification.sparse else 10
    steps = 40 + 60 * pieces + schedule.rounds * schedule.workers * (8 + exchange * schedule.servers)
    if schedule.every:
        steps += 25 * schedule.workers * (schedule.rounds // schedule.every + 1)
    return steps


def draw(kind: str, seed: int, **chosen: object) -> Schedule:
    """Draw the schedule of a seed; `chosen` are fields that are not drawn."""
    chance, settings = random.Random(f"{kind} {seed}"), KINDS[kind]
    rule = settings.specification.rule
    schedule = Schedule(
        kind,
        seed,
        workers=chance.choice((1, 2, 2, 3, 3, 4)),
        servers=chance.choice((1, 2, 2, 3)),
        machines=chance.randint(1, 4),
        dedicated=chance.randint(0, 1),
        rounds=chance.randint(2, 7),
        every=chance.choice((1, 2, 3)) if settings.checkpoints and chance.random() < 0.75 else 0,
        keep=chance.choice((1, 1, 2, 3)),
        restarts=chance.choice((9, 9, 0)) if settings.elastic else 9,
        lease=chance.choice((2.0, 5.0, 30.0)) if settings.elastic else math.inf,
        momentum=chance.choice((0.0, 0.5)) if rule in ("sgd", "momentum_sgd") else 0.0,
        stop=chance.choice((0, 0, 0, 1, 3)),
        deaths=(),
    )
    schedule = replace(schedule, **chosen)  # type: ignore[arg-type]
    if "deaths" in chosen:
        return schedule
    steps = int(1.2 * estimated_steps(schedule))
    deaths = []
    for _ in range(chance.choice((1, 1, 2, 2, 3, 4))):
        power = (POWER,) if schedule.every else ()  # else it only ends the job
        what = chance.choice((WORKER,) * 5 + (MACHINE,) * 2 + power + (HANG,) * (2 if settings.elastic else 0))
        of = schedule.machines if what == MACHINE else schedule.workers
        deaths.append(Death(chance.randrange(steps), what, 0 if what == POWER else chance.randrange(of)))
    if len(deaths) > 1 and chance.random() < 0.4:  # several at the same moment, or nearly so
        step = deaths[0].step
        deaths = [replace(death, step=step + chance.choice((0, 1, 5, 20))) for death in deaths]
    return replace(schedule, deaths=tuple(sorted(deaths, key=lambda death: death.step)))


def with_words(schedule: Schedule, words: Mapping[str, str]) -> Schedule:
    """Return the schedule with some fields replaced, given as on the command line."""
    changes: dict[str, object] = {}
    for field in fields(Schedule):
        if (text := words.get(field.name)) is None:
            continue
        if field.name == "deaths":
            changes["deaths"] = tuple(Death.parse(each) for each in text.split(",") if each != "-")
        else:
            changes[field.name] = float(text) if field.type is float else int(float(text))
    return replace(schedule, **changes)  # type: ignore[arg-type]
