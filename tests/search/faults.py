"""Faults that were mended, put back one by one: does the search find them?

A fault is a function with some of its source replaced, so that the fault can be read here. Where the function has
changed since, so that the text is not there any more, `Fault.put_back` raises an error.
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
    """

    kind: str
    edits: tuple[Edit, ...]

    @contextmanager
    def put_back(self) -> Iterator[None]:
        """Have the fault in the program while the body of a with statement runs."""
        with ExitStack() as stack:
            for edit in self.edits:
                stack.enter_context(_edited(edit))
            yield

    def found(self, most: int) -> tuple[int, Finding] | None:
        """Search for a schedule that fails with the fault and not without it.

        Args:
            most: schedules that are tried.

        Returns:
            The number of schedules that it took and the finding; None where there was none.
        """
        for seed in range(most):
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
    function = inspect.unwrap(inspect.getattr_static(owner, name))
    source = textwrap.dedent(inspect.getsource(function))
    if (count := source.count(edit.old)) != 1:
        raise ValueError(f"{edit.function} should contain {edit.old!r} once, not {count} times: adapt FAULTS")
    scope = dict(function.__globals__)
    exec(compile(source.replace(edit.old, edit.new), edit.function, "exec"), scope)
    with mock.patch.object(owner, name, scope[name]):
        yield


_SERVER = "esync.exchange.protocol.parameter_server:ParameterServer"
_KEYED = "esync.exchange.keystores.keyed:KeyedStore"
_CLIENT = "esync.exchange.protocol.client"

#: What was wrong → how it is put back.
FAULTS: dict[str, Fault] = {
    "the goodbye of a worker that was dropped ends the run": Fault(
        "sync-elastic",
        (
            Edit("esync.exchange.protocol.ledger:Ledger.leave", "if self.member[rank]:", "if True:"),
            Edit(f"{_CLIENT}:ParameterServerExchange.close", "None if self._lost else ", ""),
        ),
    ),
    "the array that sets a key up is the only one of its payload": Fault(
        "sparse", (Edit(f"{_KEYED}.send", "self._push(key)  # kept", "pass  # kept"),)
    ),
    "a worker goes on before the servers know the shared model": Fault(
        "private", (Edit(f"{_KEYED}.share", "self._meet()", "pass"),)
    ),
    "an answer of a later round is read with the length of an older one": Fault(
        "topk-elastic",
        (
            Edit(
                "esync.exchange.codecs.top_k:TopKDecoder.read",
                "step_of(array, at)",
                'int(wire.header_of(array)["sequence"])',
            ),
        ),
    ),
    "a commit that a server has used counts once more": Fault(
        "async", (Edit(f"{_SERVER}._on_commit", "if sequence <= self.ledger.acknowledged[rank]:", "if False:"),)
    ),
    "a commit that waits is added once more for the newcomer": Fault(
        "sync", (Edit(f"{_SERVER}._on_commit", "if rank in self.ledger.pending:", "if False:"),)
    ),
    "a newcomer skips an exchange that some servers have not used": Fault(
        "async", (Edit(f"{_CLIENT}:dealt_with", "return min(acknowledged)", "return max(acknowledged)"),)
    ),
    "a newcomer does not wait for the round of the dead worker": Fault(
        "sync", (Edit(f"{_CLIENT}:round_has_commit", "return all(", "return False and all("),)
    ),
    "half a payload of a dead worker is completed by its replacement": Fault(
        "sync", (Edit("esync.exchange.protocol.inbox:Inbox.put", "staged[:2] != (nonce, sequence)", "False"),)
    ),
    "a server waits for a dead worker's commit to a round that it has ended": Fault(
        "sync-elastic",
        (
            Edit(
                "esync.exchange.protocol.ledger:Ledger.commit",
                'or 0 < int(message["round"]) <= self.rounds_together',
                "",
            ),
        ),
    ),
    "a newcomer asks for the step of its weights after it has fetched them": Fault(
        "fp16",
        (
            Edit(
                f"{_CLIENT}:ParameterServerExchange.begin",
                "shared.steps)",
                "{each.index: self._statuses()[each.shard].step for each in self.layout.of(WEIGHTS)})",
            ),
        ),
    ),
    "a server that has missed the leader's commit stays asynchronous": Fault(
        "switch", (Edit("esync.exchange.protocol.ledger:Ledger.applied", "self.synchronous = True", "pass"),)
    ),
    "a server that has missed the leader's commit waits for those who are apart": Fault(
        "switch", (Edit(f"{_CLIENT}:ParameterServerExchange.start", "in self._uninformed", "in ()"),)
    ),
    "the folder of a checkpoint is deleted before anything is in it": Fault(
        "sync", (Edit("esync.checkpoint.store:Store._claimed", "marker.touch()", "pass"),)
    ),
    "the names of a checkpoint's files are not flushed": Fault(
        "sync", (Edit("esync.checkpoint.store:flush_folder", "os.fsync(handle)", "pass"),)
    ),
    "the files of a checkpoint are not flushed": Fault(
        "sync", (Edit("esync.checkpoint.store:whole", "os.fsync(file.fileno())", "pass"),)
    ),
}


def table(most: int) -> int:
    """Print by which schedule each fault is found; exit code 1 where one is not found."""
    missed = 0
    for name, fault in FAULTS.items():
        found = fault.found(most)
        if found is None:
            missed += 1
            print(f"| {name} | not found in {most} schedules of {fault.kind} | |", flush=True)
        else:
            count, finding = found
            print(f"| {name} | {count} | `{finding.schedule.command}` | {finding.error[:160]} |", flush=True)
    return int(missed > 0)
