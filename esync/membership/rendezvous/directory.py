"""Queries to a cluster's scheduler: the members of the cluster, and the status of the run."""

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator

import zmq

from ... import config
from ...runtime import progress
from ...runtime.environment import SLOT_VARIABLE, Cluster
from ...runtime.watchdog import exit_now
from ..connections import Address
from . import messages
from .attendance import Attendance, AttendanceLog, name_of
from .messages import BadMessageError, Message, Node

log = logging.getLogger(__name__)

#: Milliseconds to wait for an answer before a query is repeated.
PATIENCE = 1000
#: Seconds between two queries for the status of the run.
ASK_EVERY = 1.0


def members(scheduler: Address, check: Callable[[], None]) -> dict[int, Node]:
    """Return the processes with an id, by id. The caller must be one of them.

    Args:
        scheduler: address of the scheduler.
        check: called while there is no answer; raises an exception to give up.
    """
    with _connected(scheduler) as socket:
        while True:
            answer = _answer(socket, Message(messages.WHO, request=True), {messages.WHO})
            if answer is not None:
                return {node.id: node for node in answer.nodes}
            check()


def is_over(scheduler: Address) -> bool:
    """Return whether the run is finished; False if the scheduler does not answer."""
    with _connected(scheduler) as socket:
        answer = _run_status(socket)
    return answer is not None and answer.command == messages.OVER


def attendance(scheduler: Address) -> Attendance | None:
    """Return the attendance; None if the scheduler does not answer."""
    with _connected(scheduler) as socket:
        answer = _run_status(socket)
    return None if answer is None else Attendance.decode(answer.text)


def notify(scheduler: Address, command: int, me: Node) -> None:
    """Notify the scheduler that the run has begun or is over, or that a worker is done.

    It waits for one answer at most.

    Args:
        scheduler: address of the scheduler.
        command: messages.BEGUN or messages.DONE from a worker, or messages.OVER from a server.
        me: this process, as registered.
    """
    with _connected(scheduler) as socket:
        if socket.poll(PATIENCE, zmq.POLLOUT):
            socket.send(Message(command, (me,), request=True).encode(timestamp=0))
            _run_status(socket)  # sent after the notification, so an answer confirms both


def failure_reason(failure: Message) -> str:
    """Return why a run cannot begin or continue, given an answer LOST or CLASH."""
    if failure.command == messages.CLASH:
        places = " and ".join(f"{node.host}:{node.port}" for node in failure.nodes)
        rank = (failure.nodes[0].id - 9) // 2
        return (
            f"the workers at {places} both want rank {rank} ({SLOT_VARIABLE}): give each worker a rank of its own, or "
            "none, and start all processes again"
        )
    if not failure.nodes:
        return "all workers have left before the run had begun; start all processes again"
    names = [name_of(node) for node in failure.nodes]
    verb, whose = ("is", "its connection has") if len(names) == 1 else ("are", "their connections have")
    attendance = Attendance.decode(failure.text)
    begun = attendance is not None and attendance.begun
    when = ", and nothing can go on without it" if begun else " before the run had begun"
    return f"{' and '.join(names)} {verb} gone: {whose} ended{when}; start all processes again"


def ask_for_rank(scheduler: Address, me: Node, check: Callable[[], None]) -> None:
    """Request a rank for a worker that is about to register.

    Args:
        scheduler: address of the scheduler.
        me: the worker, with the id of that rank.
        check: called while there is no answer; raises an exception to give up.
    """
    with _connected(scheduler) as socket:
        while True:
            if socket.poll(PATIENCE, zmq.POLLOUT):
                socket.send(Message(messages.RANK_REQUEST, (me,), request=True).encode(timestamp=0))
                if _run_status(socket) is not None:  # sent after the request, so an answer confirms it
                    return
            check()


class StartMonitor(threading.Thread):
    """Polls the scheduler for the status of the run until this process takes part in it.

    It keeps the attendance, and ends the process if the run is finished or cannot begin, or if this
    process has other numbers of servers and workers than the scheduler. MXNet itself would wait forever
    in C++ for members that are gone, or for servers that have left.

    Args:
        cluster: the cluster, with the address of the scheduler.
        announces: whether to continue after `close`, and to log missing processes then.
    """

    def __init__(self, cluster: Cluster, announces: bool = False) -> None:
        super().__init__(name="start monitor", daemon=True)
        self._cluster, self._announces = cluster, announces
        self._attendance: Attendance | None = None
        self._attendance_log = AttendanceLog()  # while this process takes part in the run
        self._closed = threading.Event()

    def awaited(self) -> str:
        """Return the processes for which this one waits at its start, in words that follow "waiting for"."""
        attendance = self._attendance
        if attendance is None:
            return self._cluster.scheduler
        return attendance.missing or f"a place in the cluster, whose {attendance.workers} workers are all there"

    def advice(self) -> str:
        """Return the remedy for missing processes."""
        return Cluster.ADVICE if self._attendance is None else self._attendance.advice

    @property
    def scheduler_lost(self) -> str:
        """Error message for the loss of the scheduler during the start."""
        return f"{self._cluster.scheduler} is gone: its connection has ended before the run had begun"

    @property
    def closed(self) -> bool:
        """Whether `close` has been called."""
        return self._closed.is_set()

    def close(self) -> None:
        """Stop polling, because this process takes part in the run."""
        self._closed.set()

    def run(self) -> None:
        """Poll until `close`, or for ever."""
        with _connected((self._cluster.address, self._cluster.port)) as socket:
            lost = math.inf  # when the scheduler counts as gone, once it has been there
            while self._announces or not self._closed.is_set():
                answer = _run_status(socket)
                if answer is not None:
                    self._attendance, lost = Attendance.decode(answer.text), math.inf
                elif self._attendance is not None and not socket.poll(0, zmq.POLLOUT):
                    lost = min(lost, time.monotonic() + config.PEER_TIMEOUT)
                if self._closed.is_set():
                    self._attendance_log.update(self._attendance)
                elif answer is not None:
                    self._end_unless_running(answer)
                elif time.monotonic() > lost:
                    end(self.scheduler_lost)
                time.sleep(ASK_EVERY)

    def _end_unless_running(self, answer: Message) -> None:
        """End this process if the run is finished or cannot begin, or if it belongs to another cluster."""
        if answer.command == messages.OVER:
            log.info("the run is finished: there is nothing left to do")
            exit_now(0)
        reason = "" if self._attendance is None else self._attendance.contradiction(self._cluster)
        if reason or answer.command in (messages.LOST, messages.CLASH):
            end(reason or failure_reason(answer), consequence=answer.command == messages.LOST)


def end(reason: str, consequence: bool = True) -> None:
    """End this process, and report the reason to the launcher; see `progress.OVER`."""
    log.error("error: %s", reason)
    progress.report_event(progress.OVER, reason=reason, consequence=consequence)
    exit_now(1)


@contextlib.contextmanager
def _connected(scheduler: Address) -> "Iterator[zmq.Socket[bytes]]":
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.IMMEDIATE, 1)  # queries are not queued for a scheduler that has not started
        socket.connect(f"tcp://{scheduler[0]}:{scheduler[1]}")
        yield socket


def _run_status(socket: "zmq.Socket[bytes]") -> Message | None:
    question = Message(messages.RUN_STATUS, request=True)
    return _answer(socket, question, {messages.RUNNING, messages.LOST, messages.CLASH, messages.OVER})


def _answer(socket: "zmq.Socket[bytes]", question: Message, commands: set[int]) -> Message | None:
    """Send a query, and return the answer with one of these commands, or None after PATIENCE."""
    if not socket.poll(PATIENCE, zmq.POLLOUT):
        return None
    socket.send(question.encode(timestamp=0))
    while socket.poll(PATIENCE):
        with contextlib.suppress(BadMessageError):
            answer = Message.decode(b"".join(socket.recv_multipart()[:1]))
            if answer.command in commands:
                return answer
    return None
