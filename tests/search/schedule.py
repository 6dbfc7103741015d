"""What is drawn from a seed: how a job is set up, and who dies when."""

import math
import random
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

from esync.algorithms import TieredESync
from esync.algorithms.registry import names
from esync.exchange import Specification
from esync.exchange.codecs.quantization import NONE

from ..support.vectors import TENSORS
from .options import draw_options, find, searchable

SPARSE = {"tensors": TENSORS, "secondary_ratio": 0.0, "dense_below": 0, "values": "float32"}
SECONDARY = {**SPARSE, "secondary_ratio": 0.3}

#: Of a mode: the shortest and the longest seconds of an iteration, and the probability of a schedule in which nothing
#: disturbs a steady cluster.
STEP_TIMES, STEADY = (0.1, 2.0), 0.3


@dataclass(frozen=True)
class Kind:
    """One way to train.

    Attributes:
        specification: what workers ask the servers for.
        elastic: whether the servers go on without workers that are gone.
        checkpoints: whether checkpoints may be written.
        hosts: whether the workers of a machine exchange as one.
        tiered: whether rounds do not wait for some workers, which now and then ask them to: without
            a mode, the last one.
        mode: the mode of the worker program whose algorithm runs; "": a plain exchange of what the
            specification says.
    """

    specification: Specification
    elastic: bool = False
    checkpoints: bool = True
    hosts: bool = False
    tiered: bool = False
    mode: str = ""

    @property
    def rounds(self) -> bool:
        """Whether all workers must hold the same model after every round."""
        return self.specification.synchronous and not self.switches and not self.tiered

    @property
    def switches(self) -> bool:
        """Whether it goes over from rounds to commits that are used at once, and back."""
        return self.specification.rule == "momentum_sgd"

    @property
    def dispensable(self) -> bool:
        """Whether a checkpoint needs rank 0's part only."""
        return not self.specification.synchronous

    @property
    def forgetful(self) -> bool:
        """Whether a worker keeps values for later payloads, which its replacement does not have."""
        return bool(self.specification.compression != NONE)


def _compressed(compression: str) -> Specification:
    return Specification("add_mean_update", True, compression=compression, tensors=TENSORS)


_PLAIN: dict[str, Kind] = {
    "sync": Kind(Specification("sgd", True)),
    "async": Kind(Specification("sgd", False)),
    "private": Kind(Specification("delay_compensated_sgd", False, {"strength": 0.5, "adaptive": False}, private=True)),
    "ssp": Kind(Specification("sgd", False, staleness=1)),
    "switch": Kind(Specification("momentum_sgd", True)),
    "sparse": Kind(Specification("difference", False, SPARSE, sparse=True)),
    "secondary": Kind(Specification("difference", False, SECONDARY, sparse=True, private=True)),
    "fp16": Kind(_compressed("fp16")),
    "2bit": Kind(_compressed("2bit")),
    "tiered": Kind(_compressed("fp16"), tiered=True),
    "overlap": Kind(Specification("sgd", True, overlap=True), checkpoints=False),
}
_PLAIN |= {
    f"hosts-{name}": replace(_PLAIN[name], hosts=True)
    for name in ("sync", "fp16", "2bit", "tiered", "overlap", "switch")
}
#: Modes that refuse --elastic.
_NOT_ELASTIC = ("ssp", "switch", "hosts-switch")
_PLAIN |= {
    f"{name}-elastic": replace(settings, elastic=True) for name, settings in _PLAIN.items() if name not in _NOT_ELASTIC
}
#: Before the mode, in the name of a kind.
MODE = "mode:"
#: Behind the name of a kind whose servers go on without workers that are gone.
ELASTIC = "-elastic"
#: Names of kinds.
KINDS = (*_PLAIN, *(MODE + name for name in names(searchable)), f"{MODE}tiered-elastic")


def kind_of(name: str) -> Kind:
    """Return the kind of a name, which may be that of an algorithm from outside.

    Raises:
        ValueError: there is none.
    """
    if not name.startswith(MODE):
        if name not in _PLAIN:
            raise ValueError(f"no kind {name!r}: there are {', '.join(KINDS)}")
        return _PLAIN[name]
    mode = name.removeprefix(MODE).removesuffix(ELASTIC)
    algorithm = find(mode)
    switches, tiered = algorithm.switches_synchrony, issubclass(algorithm, TieredESync)
    return Kind(
        Specification("momentum_sgd" if switches else "sgd", algorithm.synchronous or switches),
        elastic=name.endswith(ELASTIC),
        checkpoints=tiered,
        hosts=algorithm.synchronous or switches,
        tiered=tiered,
        mode=mode,
    )


#: What can happen to a worker, a machine, or everything. A worker that hangs is silent for longer
#: than the lease, but not one that is struck while it writes to its disk. With the power of
#: everything a worker's checkpoints may go, too.
WORKER, MACHINE, POWER, HANG, DISK = "worker", "machine", "power", "hang", "disk"
#: Moments that are counted: anything that happens; a commit has reached some servers, and not yet
#: all, or is not yet answered by the only one; a process is about to change the disk; some process
#: comes nearer to the common model; something reaches a server though the run is over; a process has
#: become the carrier of a group of its host, and has not begun its commit.
STEP, COMMIT, PART, JOIN, END, CARRY = "step", "commit", "part", "join", "end", "carry"
#: Moments at which it is the process concerned that is struck.
OF_A_PROCESS = (COMMIT, PART, CARRY)


@dataclass(frozen=True)
class Death:
    """The death of a worker, a machine, or everything.

    Attributes:
        step: number of moments of that kind before it, since the beginning of the schedule.
        what: WORKER, MACHINE, POWER, HANG or DISK.
        number: of the worker, as the launcher counts them, or of the machine; of no meaning for
            OF_A_PROCESS.
        moment: what is counted.
    """

    step: int
    what: str
    number: int = 0
    moment: str = STEP

    @property
    def numbered(self) -> bool:
        """Whether the number says who it is."""
        return self.what == DISK or (self.what != POWER and self.moment not in OF_A_PROCESS)

    def __str__(self) -> str:
        moment = f"{self.moment}+" * (self.moment != STEP)
        return f"{moment}{self.step}:{self.what}" + f":{self.number}" * self.numbered

    @classmethod
    def parse(cls, text: str) -> "Death":
        """Read what `str` wrote."""
        when, what, *number = text.split(":")
        moment, _, step = when.rpartition("+")
        if what not in (WORKER, MACHINE, POWER, HANG, DISK) or moment not in ("", COMMIT, PART, JOIN, END, CARRY):
            raise ValueError(
                f"{text!r} should be STEP:worker:N, STEP:machine:N, STEP:hang:N, STEP:disk:N or STEP:power, where STEP "
                "may be commit+N, part+N, join+N, end+N or carry+N"
            )
        return cls(int(step), what, int(number[0]) if number else 0, moment or STEP)


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
        surplus: workers that are started by hand beside those that are needed.
        deaths: in the order of their steps.
        jitter: the most by which an iteration differs, as a share of its seconds (of a mode).
        leases: 0: workers ask the state server after every iteration, as published ones do (of a
            mode).
        options: of a mode, as words.
        calm: the step from which on nothing is left to chance: always the first of the possible
            things happens.
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
    surplus: int
    deaths: tuple[Death, ...]
    jitter: float = 0.0
    leases: int = 1
    options: tuple[str, ...] = ()
    calm: int = 10**9

    @property
    def settings(self) -> Kind:
        """The kind."""
        return kind_of(self.kind)

    @property
    def hosts(self) -> list[tuple[int, ...]]:
        """The ranks of each machine, where its workers exchange as one."""
        ranks = range(self.workers)
        hosts = [tuple(rank for rank in ranks if rank % self.machines == machine) for machine in range(self.machines)]
        return hosts if self.settings.hosts and len(hosts[0]) > 1 else []

    def step_time(self, rank: int) -> float:
        """Return the seconds of an iteration of a slot's worker."""
        return math.exp(random.Random(f"{self.seed} {rank}").uniform(*map(math.log, STEP_TIMES)))

    @property
    def ends(self) -> int:
        """About how many rounds it has."""
        return min(self.rounds, self.stop + 1) if self.stop else self.rounds

    @property
    def command(self) -> str:
        """The command that runs it again."""
        drawn, words = draw(self.kind, self.seed), []
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "deaths":
                if value != drawn.deaths:
                    words.append(f"--deaths {','.join(map(str, value)) or '-'}")
            elif value == getattr(drawn, field.name):
                continue
            elif field.name == "options":
                words.append(f"--options={shlex.quote(shlex.join(value))}")
            else:
                words.append(f"--{field.name} {value:g}")
        return " ".join(["python -m tests.search", self.kind, str(self.seed), *words])


def estimated_steps(schedule: Schedule) -> int:
    """Estimate how many steps a schedule has when nobody dies."""
    pieces = schedule.workers * schedule.servers
    exchange = 14 if not schedule.settings.specification.sparse else 10
    steps = 40 + 60 * pieces + schedule.ends * schedule.workers * (8 + exchange * schedule.servers)
    if schedule.every:
        steps += 25 * schedule.workers * (schedule.ends // schedule.every + 1)
    return steps


def draw(kind: str, seed: int, arguments: tuple[str, ...] = (), **chosen: object) -> Schedule:
    """Draw the schedule of a seed.

    Args:
        kind: its kind.
        seed: the seed.
        arguments: options of a mode, which are not drawn.
        chosen: fields that are not drawn.
    """
    chance, settings = random.Random(f"{kind} {seed}"), kind_of(kind)
    rule = settings.specification.rule
    schedule = Schedule(
        kind,
        seed,
        workers=chance.choice((1, 2, 2, 3, 3, 4)),
        servers=chance.choice((1, 2, 2, 3)),
        machines=chance.randint(1, 4),
        dedicated=chance.randint(0, 1),
        rounds=chance.randint(2, 12 if settings.switches else 7),
        every=chance.choice((1, 2, 3)) if settings.checkpoints and chance.random() < 0.75 else 0,
        keep=chance.choice((1, 1, 2, 3)),
        restarts=chance.choice((9, 9, 0)) if settings.elastic else 9,
        lease=chance.choice((2.0, 5.0, 30.0)) if settings.elastic else math.inf,
        momentum=chance.choice((0.0, 0.5)) if rule in ("sgd", "momentum_sgd") and not settings.mode else 0.0,
        stop=chance.choice((0, 0, 0, 0, 0, 0, 1, 3)),
        surplus=chance.choice((0,) * 9 + (1,)),
        deaths=(),
    )
    schedule = replace(schedule, **chosen)  # type: ignore[arg-type]
    if "deaths" in chosen:
        return schedule
    schedule = replace(schedule, deaths=_deaths(chance, schedule))
    return _draw_mode(schedule, arguments) if settings.mode else schedule


def _draw_mode(schedule: Schedule, arguments: tuple[str, ...]) -> Schedule:
    """Draw what only schedules of a mode have.

    In some nothing disturbs a steady cluster.
    """
    chance, settings = random.Random(f"{schedule.kind} {schedule.seed} mode"), schedule.settings
    steady = chance.random() < STEADY
    return replace(
        schedule,
        deaths=() if steady else schedule.deaths,
        jitter=0.0 if steady else chance.choice((0.0, 0.1, 0.5)),
        leases=int(settings.tiered or chance.random() < 0.7),  # the published question knows no tiers
        options=draw_options(settings.mode, arguments, chance),
    )


def _deaths(chance: random.Random, schedule: Schedule) -> tuple[Death, ...]:
    """Draw deaths, some of them at any step, some at moments of a kind.

    Some come alone, and some several at nearly the same time.
    """
    settings = schedule.settings
    if settings.elastic and schedule.workers > 2 and chance.random() < 0.2:
        return _all_but_one(chance, schedule)
    kinds = [WORKER] * 5 + [MACHINE] * 2
    if settings.elastic:
        kinds += [HANG] * 2
    if schedule.every:  # else it only ends the job
        kinds += [POWER]
        if settings.dispensable and schedule.workers > 1:
            kinds += [DISK]
    moments = (STEP,) * 5 + (COMMIT,) * 4 + (PART,) * 3 * bool(schedule.every) + (JOIN, END)
    moments += (JOIN,) * 8 * schedule.surplus + (CARRY,) * 4 * bool(schedule.hosts)
    together = chance.random() < 0.4
    alike = chance.random() < 0.3
    deaths = list[Death]()
    for _ in range(chance.choice((1, 1, 2, 2, 3, 4))):
        what = deaths[0].what if alike and deaths else chance.choice(kinds)
        moment, step = _moment(chance, schedule, moments)
        if together and deaths:
            moment, step = deaths[0].moment, deaths[0].step + chance.choice((0, 1, 5, 20))
        number = {
            MACHINE: chance.randrange(schedule.machines),
            DISK: chance.randrange(1, max(2, schedule.workers)),
        }.get(what, chance.randrange(schedule.workers))
        death = Death(step, what, number, moment)
        deaths.append(death if death.numbered else replace(death, number=0))
    return tuple(sorted(deaths, key=lambda death: death.step))


def _all_but_one(chance: random.Random, schedule: Schedule) -> tuple[Death, ...]:
    """All workers but one hang at the same time, and that one dies a little later."""
    last, (_, step) = chance.randrange(schedule.workers), _moment(chance, schedule, (STEP,))
    hangs = [Death(step, HANG, number) for number in range(schedule.workers) if number != last]
    return (*hangs, Death(step + chance.randrange(estimated_steps(schedule) // 4), WORKER, last))


def _moment(chance: random.Random, schedule: Schedule, moments: Sequence[str]) -> tuple[str, int]:
    """A moment of one of these kinds, and about which of those that there are when nobody dies."""
    moment = chance.choice(moments)
    workers, servers = schedule.workers, schedule.servers
    maximum = {
        STEP: estimated_steps(schedule),
        COMMIT: workers * schedule.ends * max(1, servers - 1),
        PART: 10 * workers * (schedule.ends // max(1, schedule.every) + 1),
        JOIN: 8 * workers,
        END: 2 * workers * servers,
        CARRY: schedule.ends * max(1, len(schedule.hosts)),
    }[moment]
    return moment, chance.randrange(int(1.2 * maximum))


def with_words(schedule: Schedule, words: Mapping[str, str]) -> Schedule:
    """Return the schedule with some fields replaced, given as on the command line."""
    changes: dict[str, object] = {}
    for field in fields(Schedule):
        if (text := words.get(field.name)) is None:
            continue
        if field.name == "options":
            changes["options"] = tuple(shlex.split(text))
        elif field.name == "deaths":
            changes["deaths"] = tuple(Death.parse(part) for part in text.split(",") if part != "-")
        else:
            changes[field.name] = float(text) if field.type is float else int(float(text))
    return replace(schedule, **changes)  # type: ignore[arg-type]
