"""Faults that were mended, put back one by one: does the search find them?

A fault is a function with some of its source replaced, so that the fault can be read here. Where
the function has changed since, so that the text is not there any more, `Fault.put_back` raises an
error.
"""

import importlib
import inspect
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from unittest import mock

from .schedule import draw
from .search import Finding, failure


@dataclass(frozen=True)
class Edit:
    """A change of one function.

    Attributes:
        function: module:function or module:Class.function.
        old: what is in its source, once.
        new: what takes its place.
    """

    function: str
    old: str
    new: str


@dataclass(frozen=True)
class Fault:
    """A fault that was mended.

    Attributes:
        kind: of the schedules that may find it.
        edits: what puts it back.
        bug: its number in the list of issue 19; 0: it is not in there.
        missed: the search has not found it in those schedules that were tried.
    """

    kind: str
    edits: tuple[Edit, ...]
    bug: int = 0
    missed: bool = False

    @contextmanager
    def put_back(self) -> Iterator[None]:
        """Have the fault in the program while the body of a with statement runs."""
        with ExitStack() as stack:
            for edit in self.edits:
                stack.enter_context(_edited(edit))
            yield

    def found(self, maximum: int) -> tuple[int, Finding] | None:
        """Search for a schedule that fails with the fault and not without it.

        Args:
            maximum: schedules that are tried.

        Returns:
            The number of schedules that it took and the finding; None where there was none.
        """
        for seed in range(maximum):
            with self.put_back():
                finding = failure(draw(self.kind, seed))
            if finding.error and not failure(draw(self.kind, seed)).error:
                return seed + 1, finding
        return None


@contextmanager
def _edited(edit: Edit) -> Iterator[None]:
    module, _, path = edit.function.partition(":")
    *parts, name = path.split(".")
    owner = importlib.import_module(module)
    for part in parts:
        owner = getattr(owner, part)
    attribute = inspect.getattr_static(owner, name)
    function = inspect.unwrap(getattr(attribute, "fget", attribute))  # of a property
    source = textwrap.dedent(inspect.getsource(function))
    if (count := source.count(edit.old)) != 1:
        raise ValueError(f"{edit.function} should contain {edit.old!r} once, not {count} times: adapt FAULTS")
    scope = {**function.__globals__, "__class__": owner}
    changed = source.replace(edit.old, edit.new).replace("super()", "super(__class__, self)")
    exec(compile(changed, edit.function, "exec"), scope)
    with mock.patch.object(owner, name, scope[name]):
        yield


_SERVER = "esync.exchange.protocol.parameter_server:ParameterServer"
_KEYED = "esync.exchange.keystores.keyed:KeyedStore"
_CLIENT = "esync.exchange.protocol.client"
_ROUND_STATE = "esync.exchange.protocol.round_state:RoundState"
_HOST = "esync.exchange.protocol.host_upload:HostUpload"
_CHECKPOINTS = "esync.checkpoints.checkpoints:Checkpoints"
_DECIDE = "esync.coordination.coordinator:decide"
_ESYNC = "esync.algorithms.esync:ESync"
_REGISTRY = "esync.membership.rendezvous.node_registry:NodeRegistry"

#: Found where the way back to rounds comes just before the end, by a schedule that is a test of its own.
AFTER_THE_END = "who waits for a round at the end of the run is used in one of fewer"

#: What was wrong → how it is put back.
FAULTS: dict[str, Fault] = {
    "without rank 0 the others write, and delete what is older": Fault(
        "sync-elastic",
        (
            Edit(f"{_CHECKPOINTS}.save_if_due", "if 0 not in self._result().needed:", "if False:"),
            Edit(f"{_CHECKPOINTS}.save", "0 not in result.needed or ", ""),
            Edit(
                "esync.exchange.protocol.resume_negotiation:WholeCheckpointTracker.used",
                "self._parts.get(0, ())",
                "{each for seen in self._parts.values() for each in seen}",
            ),
        ),
        bug=1,
    ),
    "a round that follows is the proof that all have written their parts": Fault(
        "sync",
        (
            Edit(
                f"{_CHECKPOINTS}._prune",
                "complete = self._result().whole",
                "complete = self.newest.round if self.newest is not None else 0",
            ),
        ),
        bug=2,
    ),
    "replacements do not hear that the run is finished": Fault(
        "sync-elastic",
        (Edit(f"{_REGISTRY}._note", "self.over = self.over or", "_ ="),),
        bug=4,
    ),
    "a replacement steps aside until all servers have ended the same round": Fault(
        "sync-elastic",
        (
            Edit(
                f"{_CLIENT}:ParameterServerExchange.join",
                "    statuses = self._rejoin(statuses)",
                "    statuses = self._rejoin(statuses)\n"
                "        while store.lease < math.inf and len({each.rounds_together for each in statuses}) > 1:\n"
                "            store.command(Resumed(self.rank, store.nonce, -1, None))\n"
                "            store.sleep(LONGEST_PAUSE)\n"
                "            statuses = self._rejoin(self._handshake(handshake))",
            ),
            Edit(
                f"{_SERVER}.resume",
                "self.round_state.resume_slot(rank, exchanges)",
                "self.round_state.resume_slot(rank, exchanges) if exchanges >= 0 else self.drop(rank)",
            ),
        ),
        bug=5,
    ),
    "the goodbye of a worker that was dropped ends the run": Fault(
        "sync-elastic",
        (
            Edit(f"{_ROUND_STATE}.leave", "if self.member[rank]:", "if True:"),
            Edit(f"{_ROUND_STATE}.can_exit", " and not self.promised", ""),
            Edit(f"{_CLIENT}:ParameterServerExchange.close", "None if self._statuses.lost else ", ""),
        ),
        bug=6,
    ),
    "who writes a checkpoint is silent": Fault(
        "sync-elastic",
        (Edit(f"{_CLIENT}:ParameterServerExchange._handshake", "if self.store.lease < math.inf:", "if False:"),),
        bug=7,
    ),
    "who is ahead is reckoned from the beginning of the run": Fault(
        "ssp",
        (
            Edit(f"{_ROUND_STATE}.resume_slot", "self._bound.count_from(rank, exchanges)", ""),
            Edit(f"{_CHECKPOINTS}.settle", "return ResumeState(resume_at)", "return ResumeState(0)"),
        ),
        bug=9,
    ),
    "a surplus worker stays surplus when one that was accepted dies": Fault(
        "sync",
        (Edit(f"{_REGISTRY}.admit", "self._waiting = self._waiting, []", "self._waiting = [], self._waiting"),),
        bug=11,
    ),
    "one that dies between its id and the start barrier is waited for": Fault(
        "sync",
        (Edit(f"{_REGISTRY}.give_up", "if self.over or self.lost", "if True"),),
        bug=11,
    ),
    "a replacement takes a place before worker 0 has set the model up": Fault(
        "sync", (Edit(f"{_REGISTRY}._replaceable", "self.begun", "(self.begun or node.id != 9)"),), missed=True
    ),
    "the array that sets a key up is the only one of its payload": Fault(
        "sparse", (Edit(f"{_KEYED}.send", "self._push(key)  # stored", "pass  # kept"),)
    ),
    "a worker goes on before the servers know the shared model": Fault(
        "private", (Edit(f"{_KEYED}.init_shared", "self._meet()", "pass"),)
    ),
    "a commit that a server has used counts once more": Fault(
        "async", (Edit(f"{_SERVER}._on_commit", "if sequence <= self.round_state.acknowledged[rank]:", "if False:"),)
    ),
    "a commit that waits is added once more for the replacement": Fault(
        "sync", (Edit(f"{_SERVER}._on_commit", "if rank in self.round_state.pending:", "if False:"),)
    ),
    "a replacement skips an exchange that some servers have not used": Fault(
        "async", (Edit(f"{_CLIENT}:completed_exchanges", "return min(acknowledged)", "return max(acknowledged)"),)
    ),
    "a replacement does not wait for the round of the dead worker": Fault(
        "sync", (Edit(f"{_CLIENT}:round_has_commit", "return all(", "return False and all("),), missed=True
    ),
    "half a payload of a dead worker is completed by its replacement": Fault(
        "sync",
        (Edit("esync.exchange.protocol.payload_staging:PayloadStaging.put", "staged[0] != key", "False"),),
    ),
    "a server waits for a dead worker's commit to a round that it has ended": Fault(
        "sync-elastic",
        (
            Edit(
                f"{_ROUND_STATE}.commit",
                'or 0 < int(message["round"]) <= self.rounds_together',
                "",
            ),
        ),
    ),
    "a replacement asks for the step of its weights after it has fetched them": Fault(
        "fp16",
        (
            Edit(
                "esync.exchange.protocol.transfer:ValueTransfer.begin",
                "common.steps)",
                "{each.index: self._store.statuses()[each.shard].step for each in self._layout.of(WEIGHTS)})",
            ),
        ),
        bug=8,
    ),
    "a commit used at once by some servers is not made up for where rounds have begun": Fault(
        "switch", (Edit(f"{_CLIENT}:starting_status", " and not (missing and at_once)", ""),)
    ),
    "a server that has missed the leader's commit stays asynchronous": Fault(
        "switch", (Edit(f"{_ROUND_STATE}.applied", "self.synchronous = True", "pass"),), bug=10
    ),
    "a server that has missed the leader's commit waits for those who are excluded": Fault(
        "switch", (Edit(f"{_CLIENT}:ParameterServerExchange._inform", "in self._statuses.uninformed", "in ()"),), bug=10
    ),
    "servers that do not decide when a run without rounds ends leave out what comes after their own limit": Fault(
        "private-elastic", (Edit(f"{_ROUND_STATE}.commit", " and (self.decides or together)", ""),), missed=True
    ),
    "the folder of a checkpoint is deleted before anything is in it": Fault(
        "sync", (Edit("esync.checkpoints.store:CheckpointStore._claimed", "marker.touch()", "pass"),), missed=True
    ),
    "the names of a checkpoint's files are not flushed": Fault(
        "sync", (Edit("esync.checkpoints.store:flush_folder", "flush_file(handle, path)", "pass"),)
    ),
    "a carrier that dies before its commit is never replaced": Fault(
        "hosts-sync",
        (
            Edit(
                f"{_HOST}._has_carrier",
                "self._member.is_present(table, carrier, nonce) and now - contribution.carrier[2] <= self._store.lease",
                "True",
            ),
        ),
    ),
    "rounds are counted twice": Fault(
        "mode:sync", (Edit(f"{_ROUND_STATE}.applied", "self.round = self.rounds", "self.round = 2 * self.rounds"),)
    ),
    "a worker goes beyond the staleness by one": Fault(
        "mode:ssp",
        (Edit("esync.exchange.protocol.staleness:StalenessBound.within", "<= self._limit", "<= self._limit + 1"),),
    ),
    AFTER_THE_END: Fault(
        "mode:sync-switch",
        (Edit(f"{_ROUND_STATE}.applied", "if self.finished and self.pending:", "if False:"),),
        missed=True,
    ),
    "the slowest is never READY by its own question": Fault(
        "mode:esync", (Edit(_DECIDE, "READY if begun and record.asked >= slowest_iterations else ", ""),)
    ),
    "READY comes after the first iteration": Fault("mode:esync", (Edit(_DECIDE, "slack < 0 and begun", "begun"),)),
    "who rounds do not wait for is never READY": Fault(
        "mode:tiered", (Edit("esync.coordination.coordinator:decide_aside", "slack < 0", "False"),)
    ),
    "a worker forgets a READY now and then": Fault(
        "mode:esync",
        (Edit(f"{_ESYNC}._called", "return answer.ready", "return answer.ready and self._iterations % 2 == 0"),),
    ),
    "a worker leaves out a RESET now and then": Fault(
        "mode:esync", (Edit(f"{_ESYNC}._begin_round", "not result.finished", "not result.finished and self.round % 3"),)
    ),
    "the files of a checkpoint are not flushed": Fault(
        "sync", (Edit("esync.checkpoints.store:atomic_path", "flush_file(file.fileno(), path)", "pass"),)
    ),
}


def table(maximum: int) -> int:
    """Print by which schedule each fault is found; exit code 1 where one is not found."""
    missed = 0
    print("| what is put back | bug | schedules until it is found | by | what is wrong then |")
    print("| --- | --- | --- | --- | --- |", flush=True)
    for name, fault in FAULTS.items():
        result, bug = fault.found(maximum), fault.bug or "–"
        if result is None:
            missed += 1
            print(f"| {name} | {bug} | not within {maximum} | {fault.kind} | |", flush=True)
        else:
            count, finding = result
            by = finding.schedule.command.removeprefix("python -m tests.search ")
            print(f"| {name} | {bug} | {count} | `{by}` | {finding.error.splitlines()[0][:160]} |", flush=True)
    return int(missed > 0)
