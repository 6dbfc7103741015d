"""esync.Checkpoints: writes a worker's part of every checkpoint, and goes back to one at the start.

Rank 0 writes the model and what the servers' rule remembers (momentum); every worker writes the
states of its optimizer and its algorithm, and whatever else it keeps track of, its place in the
stream of batches for instance. In synchronous modes all workers do that after the same round,
before the next one can begin. See docs/how-to/checkpoints.md.
"""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from .. import config
from ..algorithms.base import Algorithm
from ..algorithms.context import CheckpointHooks
from ..exchange import Result
from ..exchange.protocol.handshake import describe_differences
from ..exchange.protocol.resume_negotiation import Offer, Offers, ResumeState, RunProgress
from ..rules import STATE_VECTORS
from ..runtime.files import expanded
from ..runtime.mxnet_import import mx
from ..runtime.set_once import SetOnce
from ..version import __version__
from .contents import (
    MODEL_FILE,
    SERVER_FILE,
    SERVER_WEIGHTS,
    VECTORS_FILE,
    WORKER_FILE,
    further_vectors,
    load_arrays,
    load_model,
    load_server,
    load_vectors,
    save_arrays,
    save_model,
    tracked_states,
)
from .lock import RankLock
from .state_serialization import NotStorableError, OptimizerState, decode, encode
from .store import CheckpointError, CheckpointStore, Part, Writer, refusal

log = logging.getLogger(__name__)

#: What to do about checkpoints that a run cannot go on from.
OTHERWISE = "begin anew with --overwrite, which deletes them, or with another --checkpoint-dir"


class Tracked(Protocol):
    """Something whose state a checkpoint keeps for a worker, such as `data.Batches`."""

    def state(self) -> dict[str, Any]:
        """Return the state: a dict of arrays, numbers, texts, lists and dicts."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Go back to that state; ValueError where that is not possible."""
        ...


class Checkpoints(CheckpointHooks):
    """The checkpoints of one worker.

    Give them to `esync.Trainer`, and call `save_if_due` after every step.

    Args:
        directory: holds the checkpoints; best one that all workers see. `~` is this machine's home
            directory.
        every: rounds from one checkpoint to the next.
        keep: number of checkpoints that are kept, up to the newest that is known to be whole.
        resume: resume from the newest whole checkpoint, or begin where there is none.
        overwrite: delete those of an earlier run, instead of refusing to begin.

    Attributes:
        directory: as given, but absolute.
        resume: as given.
        enabled: whether a trainer writes them.
        resumed: the round that the run has gone on from; None where it began from the beginning.
        newest: the part that this worker, or the one that it has replaced, has written last.
    """

    directory = SetOnce[Path]()
    resume = SetOnce[bool]()

    def __init__(
        self,
        directory: str | Path,
        every: int = config.CHECKPOINT_EVERY,
        keep: int = config.KEEP_CHECKPOINTS,
        *,
        resume: bool = False,
        overwrite: bool = False,
    ) -> None:
        if every < 1 or keep < 1:
            raise ValueError(f"every={every}, keep={keep}: both should be 1 or more")
        self.directory = expanded(directory).absolute()  # the program may change its working directory
        self._every, self._keep = every, keep
        self.resume, self._overwrite = resume, overwrite
        self.resumed: int | None = None
        self.newest: Part | None = None
        self._ahead = False  # whether this worker writes two parts for a checkpoint; see `save_ahead`
        self._lock: RankLock | None = None
        self._tracked: dict[str, Tracked] = {}
        self._untracked: dict[str, Any] = {}  # states of what has not been tracked yet
        self._algorithm_state: tuple[int, dict[str, Any]] | None = None  # as found, with the round of its part
        self._unsent: tuple[int, dict[str, Any]] | None = None  # likewise, what it had not sent
        self._goes_on = False
        self._before: list[Callable[[], None]] = []
        self._parts: list[Part] = []
        self._job = 0  # its number
        self._last = 0  # round of the newest checkpoint of this job, or the one that the job began after
        # Round of the newest checkpoint that was known to be whole when parts were last deleted.
        self._last_complete = 0

    # --- for a training loop ----------------------------------------------------------------------

    def track(self, name: str, item: Tracked) -> None:
        """Keep the state of something else in checkpoints, too, from now on.

        Where the run goes on from a checkpoint that has its state, that state is restored: now, or
        when the trainer starts.

        Raises:
            CheckpointError: the state cannot be restored.
        """
        self._tracked[name] = item
        self._restore_tracked(name)

    def before(self, call: Callable[[], None]) -> None:
        """Have a function called before each checkpoint is written.

        What it writes is on the disk before the checkpoint is.
        """
        self._before.append(call)

    def save_if_due(self) -> bool:
        """Write a checkpoint where the last step has ended a round that is due for one.

        Returns:
            Whether a checkpoint was written.
        """
        if not self.enabled or not self._trainer.exchanged:  # a trainer that is measured keeps no checkpoints
            return False
        self._prune()
        if 0 not in self._result().needed:  # nobody would write the model
            return False
        due = self.due(self._result().round)
        if due:
            self.save()
        return due

    def save(self) -> None:
        """Write a checkpoint now. In synchronous modes all workers must do it after the same round.

        Raises:
            CheckpointError: it could not be written; or an exchange is under way (`run_ahead`),
                whose payload it would lose.
        """
        trainer, result = self._trainer, self._result()
        if 0 not in result.needed or (self.newest is not None and result.round <= self.newest.round):
            return
        if trainer.algorithm.in_flight:
            raise CheckpointError(
                f"no checkpoint of round {result.round}: an exchange is under way, whose payload it would lose; call "
                "save_if_due after every step, which finds the right moment"
            )
        self._write(result)

    def _write(self, result: Result) -> None:
        trainer, exchange = self._trainer, self._trainer.algorithm.exchange
        for call in self._before:
            call()
        arrays: dict[str, np.ndarray] = {}
        begun = time.perf_counter()
        facts: dict[str, Any] = {
            "version": __version__,
            "job": self._job,
            "complete_before": self._last_complete > 0,
            "workers": trainer.workers,
            "exchanges": trainer.exchanges,
            "agreement": {**self._agreement, "optimizer": _names(trainer)},
            "optimizers": [optimizer.save(arrays) for optimizer in self._optimizers],
            "tracked": {
                name: self._encode(item.state(), f"the state of {name!r}", arrays)
                for name, item in self._tracked.items()
            },
        }
        if state := self._encoded("state", arrays):
            facts["algorithm_state"] = state
        if unsent := self._encoded("unsent", arrays):
            facts["unsent"] = unsent
        writers: dict[str, Writer] = {}
        if arrays:
            writers[WORKER_FILE.format(rank=trainer.rank)] = lambda path: save_arrays(path, arrays)
        if trainer.rank == 0:
            if not self._common(facts, writers):
                return
            facts["books"] = vars(result.progress)
        self.newest = self._store.write(result.round, writers, facts)
        self._last = result.round
        if exchange is not None:
            exchange.part = result.round
        log.debug("checkpoint of round %d in %.2f s", result.round, time.perf_counter() - begun)
        trainer.algorithm.checkpoint_written()

    @property
    def terms(self) -> dict[str, Any]:
        """Settings that must be the same on all workers, beside those that the trainer knows."""
        return {"rounds between checkpoints": self._every}

    # --- for esync.Trainer and its algorithm ------------------------------------------------------

    def bind(self, trainer: Any, agreement: dict[str, Any]) -> None:
        """Write the checkpoints of this trainer from now on.

        Args:
            trainer: an `esync.Trainer` that has not been started.
            agreement: settings that a checkpoint must have in common with it.

        Raises:
            CheckpointError: its algorithm's state could be written but not restored, or the other
                way round; or the rule of one of its further vectors remembers something, which is
                kept for the weights' rule only.
        """
        kind = type(trainer.algorithm)
        for name, rule in kind.vectors.items():
            if STATE_VECTORS[rule]:
                raise CheckpointError(
                    f"algorithm {trainer.algorithm.name!r} keeps no checkpoints: the rule {rule!r} of its vector "
                    f"{name!r} remembers something on the servers, which only the weights' rule has kept"
                )
        if (kind.state is Algorithm.state) != (kind.restore is Algorithm.restore):
            raise CheckpointError(
                f"algorithm {trainer.algorithm.name!r} has only one of the methods state and restore: a run can go on "
                "from a checkpoint only with both"
            )
        self._trainer, self.enabled = trainer, True
        self._agreement = {**agreement, "optimizer": _names(trainer)}
        self._optimizers = [OptimizerState(optimizer) for optimizer in trainer.optimizers]

    def offers(self, rank: int, workers: int) -> Offers:
        """Return the whole parts of this worker; see `exchange.protocol.resume_negotiation`."""
        self._agreement["workers"] = workers
        self._store = CheckpointStore(self.directory, rank)
        self._lock = RankLock(self.directory, rank)
        try:
            self._lock.acquire()
            self._store.prepare()
        except CheckpointError as error:
            return Offers(self.resume, problem=str(error))
        try:
            self._parts = self._store.parts() if self.resume or not self._overwrite else []
        except CheckpointError as error:
            return Offers(self.resume, problem=f"{error}; {OTHERWISE}")
        if self._parts and not self.resume:
            return Offers(problem=refusal(self.directory, self._parts[0].round))
        for part in self._parts:
            if differences := self._differences(part):
                problem = (
                    f"the checkpoint {part.folder} does not fit: {differences}; give what it was written with, or "
                    f"{OTHERWISE}"
                )
                return Offers(self.resume, problem=problem)
        return Offers(self.resume, [_offer(part) for part in self._parts])

    def due(self, round_: int) -> bool:
        """See `algorithms.context.CheckpointHooks`."""
        return round_ // self._every > self._last // self._every

    def save_ahead(self, round_: int) -> None:
        """See `algorithms.context.CheckpointHooks`."""
        if self.due(round_) and (self.newest is None or self.newest.round < self._result().round):
            self._ahead = True
            self._write(self._result())

    def settle(self, rank: int, job: int, resume_at: int, replacement: bool) -> ResumeState | None:
        """See `algorithms.context.CheckpointHooks`."""
        if self._lock is not None:
            self._lock.sign(job)
        self._job = job
        self._goes_on = replacement or resume_at >= 0
        if replacement:
            self.take_over(resume_at)
            return None
        if resume_at < 0:
            self._store.remove(lambda round_: True)
            return None
        self._store.remove(lambda round_: round_ > resume_at)
        self.resumed = resume_at
        part = next((part for part in self._parts if part.round <= resume_at), None)
        if part is None:
            log.warning("this worker has no part of the checkpoint of round %d: its batches begin anew", resume_at)
            return ResumeState(resume_at)
        self._go_back(part)
        self.newest = part if part.round == resume_at else None
        if rank != 0:
            return ResumeState(int(part.facts["exchanges"]))
        load_model(part, self._trainer)
        load_vectors(part, self._trainer)
        return ResumeState(
            int(part.facts["exchanges"]),
            RunProgress(**part.facts["books"]),
            *load_server(part),
        )

    def take_over(self, resume_at: int) -> None:
        """Go on from the dead worker's newest part of this run, as a replacement in a running job.

        The states of the local optimizer, of the algorithm and of all tracked objects are restored
        from it, but not the model and the round, which the servers have. Parts up to `resume_at`, the round that the
        job itself has gone on from, belong to this run whichever job wrote them.
        """
        try:
            self._store.prepare()
            parts = [part for part in self._store.parts() if part.facts["job"] == self._job or part.round <= resume_at]
        except CheckpointError as error:
            log.warning("this worker's optimizer begins anew: %s", error)
            return
        if not parts:
            return
        if differences := self._differences(parts[0]):
            log.warning("this worker's optimizer begins anew: %s does not fit: %s", parts[0].folder, differences)
            return
        self._go_back(parts[0])
        self.newest = parts[0]  # its round has a part already: writing another one would first delete it
        if self._trainer.algorithm.exchange is not None:
            self._trainer.algorithm.exchange.part = parts[0].round

    def release(self) -> None:
        """Let another run write to the directory; this one is over."""
        if self._lock is not None:
            self._lock.release()

    def begun(self) -> None:
        """Count rounds from here, and restore the algorithm's state.

        The trainer calls it when it has the common model.

        Raises:
            CheckpointError: the algorithm cannot go back to that state, or has one that cannot be
                stored.
        """
        algorithm = self._trainer.algorithm
        self._last, self._last_complete = algorithm.result.round, algorithm.result.whole
        fresh = self._encoded("state", {})  # what cannot be stored is noticed now, not at the first checkpoint
        if self._unsent is not None and not self._trainer.replacement:
            self._restore(algorithm.restore_unsent, *self._unsent)
        self._unsent = None
        if self._algorithm_state is not None:
            self._restore(algorithm.restore, *self._algorithm_state)
            self._algorithm_state = None
        elif fresh and self._goes_on:
            log.warning(
                "there is no state of algorithm %r to go on from: on this worker it begins anew", algorithm.name
            )

    # --- helpers ----------------------------------------------------------------------------------

    def _restore(self, restore: Callable[[dict[str, Any]], None], round_: int, state: dict[str, Any]) -> None:
        try:
            restore(state)
        except (ValueError, KeyError) as error:
            raise CheckpointError(
                f"the checkpoint of round {round_} has a state that does not fit algorithm "
                f"{self._trainer.algorithm.name!r}: "
                f"{f'there is no {error}' if isinstance(error, KeyError) else error}"
            ) from error

    def _encoded(self, method: Literal["state", "unsent"], arrays: dict[str, np.ndarray]) -> Any:
        """Return as JSON what a method of the algorithm returns, or None if that is empty.

        Its arrays are put into `arrays`.
        """
        algorithm = self._trainer.algorithm
        owner = f"the state of algorithm {algorithm.name!r}"
        state = getattr(algorithm, method)()
        if type(state) is not dict:
            raise CheckpointError(f"{owner}: {method}() should return a dict, but has returned {type(state).__name__}")
        return self._encode(state, owner, arrays) if state else None

    @staticmethod
    def _encode(state: Any, owner: str, arrays: dict[str, np.ndarray]) -> Any:
        try:
            return encode(state, arrays)
        except NotStorableError as error:
            raise CheckpointError(f"{owner}: {error}") from None

    def _go_back(self, part: Part) -> None:
        arrays = load_arrays(part, WORKER_FILE.format(rank=self._store.rank))
        for optimizer, saved in zip(self._optimizers, part.facts["optimizers"], strict=True):
            optimizer.load(saved, arrays)
        self._untracked = tracked_states(part, arrays)
        for name in self._tracked:
            self._restore_tracked(name)
        if "algorithm_state" in part.facts:
            self._algorithm_state = part.round, decode(part.facts["algorithm_state"], arrays, mx.cpu())
        if "unsent" in part.facts:
            self._unsent = part.round, decode(part.facts["unsent"], arrays, mx.cpu())

    def _restore_tracked(self, name: str) -> None:
        """Restore what is tracked under that name, if a checkpoint with its state was found."""
        if name in self._untracked:
            try:
                self._tracked[name].restore(self._untracked.pop(name))
            except ValueError as error:
                raise CheckpointError(f"the checkpoint of round {self.resumed} does not fit: {error}") from None

    def _prune(self) -> None:
        """Delete all but `keep` of the checkpoints up to the newest that is known to be whole."""
        if self._trainer.algorithm.exchange is not None:
            complete = self._result().whole
        else:
            complete = self.newest.round if self.newest is not None else 0
        if complete != self._last_complete:
            self._store.keep(self._keep * (1 + self._ahead), complete)
            self._last_complete = complete

    def _result(self) -> Result:
        """Return the result of the last exchange."""
        result = self._trainer.algorithm.result
        if result is Algorithm.result:
            raise RuntimeError("the trainer has not been started: there is nothing to write a checkpoint of")
        return result

    def _common(self, facts: dict[str, Any], writers: dict[str, Writer]) -> bool:
        """Add what only rank 0 writes.

        That is the model, the servers' state, and the ranks whose parts the checkpoint needs.

        Returns:
            False where the job has gone on meanwhile, so that these do not fit together.
        """
        trainer, exchange = self._trainer, self._trainer.algorithm.exchange
        writers[MODEL_FILE] = lambda path: save_model(path, trainer)
        if further := further_vectors(trainer):
            writers[VECTORS_FILE] = lambda path: save_arrays(path, further)
        facts["needs"] = list(self._result().needed)
        if exchange is None:
            return True
        state, weights = exchange.rule_state(), exchange.server_weights()
        vectors = {f"vector-{index}": vector for index, vector in enumerate(state) if vector is not None}
        if weights is not None:
            vectors[SERVER_WEIGHTS] = weights
        if vectors:
            writers[SERVER_FILE] = lambda path: save_arrays(path, vectors)
        facts["vectors"] = len(state)
        if trainer.algorithm.synchronous and exchange.version() != self._result().version:
            # The others have not waited for this worker.
            log.warning("no checkpoint of round %d: the job has gone on meanwhile", self._result().round)
            return False
        return True

    def _differences(self, part: Part) -> str:
        theirs, ours = part.facts["agreement"], self._agreement
        for optimizer, saved in zip(self._optimizers, part.facts["optimizers"], strict=False):
            if optimizer.half_precision:  # the form of the optimizer's state depends on these settings then
                theirs, ours = {**theirs, **optimizer.masters(saved)}, {**ours, **optimizer.masters()}
        return "; ".join(describe_differences(ours, theirs))


def _names(trainer: Any) -> str:
    """Return the kinds of the trainer's optimizers."""
    return ", ".join(type(optimizer._optimizer).__name__.lower() for optimizer in trainer.optimizers)


def _offer(part: Part) -> Offer:
    facts = part.facts
    return Offer(part.round, int(facts["job"]), bool(facts["complete_before"]), facts.get("needs", ()))
