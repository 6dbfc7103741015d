"""Jobs of real trainers and real checkpoints, whose workers die at chosen moments.

The servers are in memory.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import esync
from esync.algorithms import Algorithm, LocalSGD
from esync.checkpoints.store import Part
from esync.exchange.protocol.round_state import Limits

from ..search.algorithms import Questions, StateServer
from ..support.memory_cluster import KilledError, MemoryCluster, MemoryStore
from ..support.memory_world import MemoryWorld, SteppedDevice
from ..support.small_net import BATCH, backward, make_net, values

#: What happens to a worker: given its rank and the moment, a name and a round; may raise
#: KilledError.
Fate = Callable[["Life", str, int], None]


@dataclass
class Life:
    """One worker process.

    Attributes:
        rank: its slot.
        store: to the servers.
        number: of this process among those of its slot, from 0.
        begun: the round that it began after; None before that.
    """

    rank: int
    store: MemoryStore
    number: int
    begun: int | None = None
    trainer: Any = None


@dataclass
class Job:
    """A job in which all is real but the network, the servers' processes and the time.

    Attributes:
        directory: of the checkpoints, one for all workers; with `own`, the parent of one for each.
        algorithm: makes each worker's.
        workers: number of them.
        servers: number of them.
        rounds: of the whole run.
        every: rounds from one checkpoint to the next.
        keep: as of `esync.Checkpoints`.
        resume: as of `esync.Checkpoints`.
        lease: seconds after which a silent worker is left out.
        own: every worker has a directory of its own.
        ends: the round after which nobody is replaced.
        fate: called at the moments "before part" (nothing of it is written), "within part" (its
            data is written, the JSON is not), "after part", and "round" (of every round that has
            ended), each with the round's number.
        seed: of the order of things.
        step_times: seconds of an iteration of each worker; empty: none, and no state server.
    """

    directory: Path
    algorithm: Callable[[], Algorithm] = lambda: LocalSGD(local_iterations=2)
    workers: int = 2
    servers: int = 1
    rounds: int = 10
    every: int = 2
    keep: int = 1
    resume: bool = False
    lease: float = math.inf
    own: bool = False
    ends: float = math.inf
    fate: Fate = lambda life, moment, round_: None
    seed: int = 0
    step_times: Sequence[float] = ()

    def run(self) -> "Job":
        """Run it until all workers have ended; `lives` has them in the order of their start."""
        chance = random.Random(self.seed).randrange
        self.cluster = MemoryCluster(self.workers, chance, self.servers, bucket_elements=16, lease=self.lease)
        self.state_server = StateServer()
        self.lives: list[Life] = []
        self.models: dict[int, list[bytes]] = {}
        self.cluster.run_all(self._live)
        return self

    @property
    def begun(self) -> list[int | None]:
        """The round that each process began after."""
        return [life.begun for life in self.lives]

    def folder(self, rank: int) -> Path:
        """Where a worker's checkpoints are."""
        return self.directory / f"host-{rank}" if self.own else self.directory

    def held(self, rank: int) -> list[int]:
        """The rounds of which a worker has a part on its disk."""
        return sorted(int(path.parent.name[6:]) for path in self.folder(rank).glob(f"round-*/worker-{rank}.json"))

    def _live(self, store: MemoryStore) -> None:
        rank = store.rank
        life = Life(rank, store, sum(live.rank == rank for live in self.lives))
        self.lives.append(life)
        try:
            self._train(life)
        except KilledError:
            result = life.trainer.algorithm.result
            if result.round < self.ends and not self.cluster.task.killed:
                self.cluster.start(rank, self._live)
            elif self.step_times:  # rounds may not wait for the others, so that they would see no end
                self.cluster.at(self.cluster.steps + 1, self._end)
            raise

    def _end(self) -> None:
        for life in self.lives:
            self.cluster.kill_process(life.store.nonce)

    def _world(self, store: MemoryStore) -> MemoryWorld:
        if not self.step_times:
            return MemoryWorld(store)
        device = SteppedDevice(store, self.step_times[store.rank])
        return MemoryWorld(
            store, device, lambda delayed: Questions(self.cluster, store, self.state_server, delayed, True)
        )

    def _train(self, life: Life) -> None:
        net = make_net()
        checkpoints = esync.Checkpoints(self.folder(life.rank), self.every, self.keep, resume=self.resume)
        life.trainer = trainer = esync.Trainer(
            net.collect_params(),
            "sgd",
            {"learning_rate": 0.1, "momentum": 0.9},
            algorithm=self.algorithm(),
            limits=Limits(rounds=self.rounds),
            world=self._world(life.store),  # type: ignore[arg-type]
            checkpoints=checkpoints,
        )
        if self.step_times:
            with trainer.trial():
                life.store.sleep(self.step_times[life.rank])
        trainer.start()
        life.begun = trainer.round
        checkpoints.before(lambda: self.fate(life, "before part", trainer.algorithm.result.round))
        store = checkpoints._store
        store.write = partial(self._write_part, life, store.write)
        while not trainer.finished:
            backward(net, 100 * trainer.round + life.rank)
            trainer.step(BATCH)
            if trainer.exchanged:
                if checkpoints.save_if_due():
                    self.fate(life, "after part", trainer.algorithm.result.round)
                self.fate(life, "round", trainer.algorithm.result.round)
        checkpoints.save()
        self.models[life.rank] = values(net)
        trainer.close()

    def _write_part(self, life: Life, write: Callable[..., Part], round_: int, writers: dict[str, Any], *facts: Any):
        """Have fate asked between the part's data, where it has any, and its JSON."""

        def last(path: Path) -> None:
            writers[name](path)
            self.fate(life, "within part", round_)

        if not writers:
            self.fate(life, "within part", round_)
            return write(round_, writers, *facts)
        name = list(writers)[-1]
        return write(round_, {**writers, name: last}, *facts)


def dies(rank: int, moment: str, *rounds: int) -> Fate:
    """Have the holders of a slot die at that moment of these rounds.

    The first holder dies in the first of the rounds, the next one in the next round.
    """

    def fate(life: Life, at: str, round_: int) -> None:
        if life.rank == rank and at == moment and rounds[life.number : life.number + 1] == (round_,):
            raise KilledError

    return fate


def power_off(after: int) -> Fate:
    """Everybody dies when that round is over; the job `ends` there."""

    def fate(life: Life, at: str, round_: int) -> None:
        if at == "round" and round_ >= after:
            raise KilledError

    return fate


def all_of(*fates: Fate) -> Fate:
    """Several in turn."""

    def fate(life: Life, at: str, round_: int) -> None:
        for callback in fates:
            callback(life, at, round_)

    return fate
