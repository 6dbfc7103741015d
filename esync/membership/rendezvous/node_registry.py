"""The node registry: who belongs to a cluster, who gets which id, who has come to a barrier; without sockets.

ps-lite's ids: the scheduler is 1; the server of rank r has 8 + 2 r, the worker of rank r has 9 + 2
r.

A worker that takes the place of a dead one gets a *new* id: of a rank that is equal to the slot of
the dead one modulo the number of workers. So nothing that is still on its way to or from the dead
one can be taken for the newcomer's, and the newcomer, whose rank is not 0, never sends initial
values.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from ...runtime.output import RateLimitedLog
from ..connections import Address
from . import messages
from .messages import EMPTY, SCHEDULER, SERVER, WORKER, Message, Node

SCHEDULER_ID = 1
#: Newcomers that may wait for a place at the same time, beyond as many as there are places.
SURPLUS_MOST = 16
#: Sums of these make the group of a barrier.
SCHEDULER_GROUP, SERVER_GROUP, WORKER_GROUP = 1, 2, 4


def server_id(rank: int) -> int:
    """ps-lite's id of a server."""
    return 8 + 2 * rank


def worker_id(rank: int) -> int:
    """ps-lite's id of a worker."""
    return 9 + 2 * rank


@dataclass(frozen=True)
class OutgoingMessage:
    """A message that is to go out.

    Attributes:
        to: the process.
        message: what it is told.
    """

    to: Node
    message: Message


@dataclass
class Barrier:
    """A barrier that some have come to.

    Attributes:
        answer: opens it.
        came: ids of those who have come.
    """

    answer: Message
    came: set[int] = field(default_factory=set)


class NodeRegistry:
    """The processes of one cluster.

    Args:
        me: the scheduler.
        servers: number of parameter servers.
        workers: number of worker slots.
        say: is told what the user should know.

    Attributes:
        complete: whether the ids have been handed out.
        begun: whether the workers have the common model: one that dies before sets up nothing for
            the others.
        over: whether the run is finished.
        lost: members that were gone before the run had begun, and that others wait for in vain.
    """

    def __init__(self, me: Node, servers: int, workers: int, say: Callable[[str], None] = lambda text: None) -> None:
        self._me = me.given(SCHEDULER_ID)
        self._expected = {SERVER: servers, WORKER: workers}
        self._say, self._refuse = say, RateLimitedLog(say)
        self._arriving: list[Node] = []
        self._waiting: list[Node] = []
        self._nodes: dict[int, Node] = {}  # by id; a dead one stays until it is replaced
        self._barriers: dict[int, Barrier] = {}  # by group
        self._done: set[int] = set()  # ids of workers that have left the finished run: nothing is left to do there
        self.complete = self.begun = self.over = False
        self.lost: list[Node] = []

    @property
    def slots(self) -> int:
        """Number of worker slots."""
        return self._expected[WORKER]

    @property
    def places(self) -> int:
        """Number of servers and workers."""
        return sum(self._expected.values())

    def everyone(self) -> list[Node]:
        """Return all processes that are known, those that wait included."""
        return [*self._arriving, *self._nodes.values(), *self._waiting]

    def waiting(self) -> list[Node]:
        """Newcomers for whom no place is free."""
        return list(self._waiting)

    def members(self) -> Message:
        """Return who has an id, as a message; the scheduler included."""
        return Message(messages.WHO, (*self._nodes.values(), self._me))

    def run_status(self) -> Message:
        """Whether the run goes on, cannot begin, or is finished, as a message."""
        if self.lost:
            return Message(messages.LOST, tuple(self.lost))
        return Message(messages.OVER if self.over else messages.RUNNING)

    def may_join(self, node: Node) -> bool:
        """Whether it is worth finding out if a process that has registered is there."""
        if node.role not in self._expected or node.address == self._me.address:
            self._refuse(f"the process at {node.host}:{node.port} is refused: it is neither a server nor a worker")
        elif any(node.address == other.address for other in [*self._arriving, *self._waiting]):
            pass  # said twice
        elif any(node.address == other.address for other in self._nodes.values()):
            # Servers would not connect to it, and what was meant for the dead one would reach it.
            self._refuse(
                f"a newcomer at {node.host}:{node.port}, where a dead one listened, is refused; leave PORT unset"
            )
        elif len(self._waiting) >= self.places + SURPLUS_MOST:
            self._refuse(f"a newcomer at {node.host}:{node.port} is refused: too many wait for a place")
        else:
            return True
        return False

    def take(self, message: Message, sender: int = EMPTY) -> list[OutgoingMessage]:
        """Take a message, and return what it leads to.

        Args:
            message: from whoever it may be.
            sender: the id that the sender has; EMPTY for one that has none.
        """
        if message.command == messages.ADD_NODE:
            for node in message.nodes:
                self._add(node)
            return self._begin() if not self.complete else []
        if message.command in (messages.BEGUN, messages.DONE, messages.OVER):
            self._note(message)
            return []
        if sender not in self._nodes:
            return []
        if message.command == messages.BARRIER and message.request:
            return self._barrier(message, sender)
        if message.command == messages.HEARTBEAT:
            return [OutgoingMessage(self._nodes[sender], Message(messages.HEARTBEAT, (self._me,)))]
        return []

    def admit(self, gone: Sequence[Address]) -> list[OutgoingMessage]:
        """Let newcomers in, to the place that has been empty for the longest time first.

        Where the ids have been handed out and the run has not begun, nobody is let in; see
        `give_up`.

        Args:
            gone: addresses of processes that are there no longer, the oldest departure first.
        """
        self._waiting = [node for node in self._waiting if node.address not in gone]
        if not self.complete:
            self._arriving = [node for node in self._arriving if node.address not in gone]
            waiting, self._waiting = self._waiting, []
            for node in waiting:  # a place may have become free
                self._place(node)
            return self._begin()
        sendings = []
        for address in gone if not self.over else ():
            newcomer = next((node for node in self._waiting if node.role == WORKER), None)
            for number, old in list(self._nodes.items()):
                if newcomer is not None and old.address == address and self._replaceable(old):
                    sendings += self._replace(number, newcomer)
        return sendings

    def give_up(self, gone: Collection[Address]) -> None:
        """Conclude that the run cannot begin where others wait, at a barrier, for members that are gone.

        Args:
            gone: addresses of processes that have been gone for so long that nobody will take their
                places.
        """
        if self.begun or self.over or self.lost:
            return
        awaited = self._awaited_at_barriers()
        self.lost = [node for number, node in self._nodes.items() if number in awaited and node.address in gone]

    def awaited(self, gone: Collection[Address]) -> list[Node]:
        """Return the members that others wait for at a barrier; in the end, those that have not left.

        Args:
            gone: addresses of members whose connections have ended.
        """
        there = [node for node in self._nodes.values() if node.address not in gone]
        if self.over or not any(node.role == SERVER for node in there):
            return there
        awaited = self._awaited_at_barriers()
        return [node for number, node in self._nodes.items() if number in awaited]

    def _add(self, node: Node) -> None:
        if self.may_join(node):
            self._place(node)

    def _place(self, node: Node) -> None:
        if not self.complete and sum(other.role == node.role for other in self._arriving) < self._expected[node.role]:
            self._arriving.append(node)
        else:
            self._waiting.append(node)

    def _note(self, message: Message) -> None:
        """Note what a member says that only members know."""
        for node in message.nodes:
            if node == self._nodes.get(node.id):
                self.begun = self.begun or (message.command == messages.BEGUN and node.role == WORKER)
                self.over = self.over or (message.command == messages.OVER and node.role == SERVER)
                if message.command == messages.DONE:
                    self._done.add(node.id)

    def _replaceable(self, node: Node) -> bool:
        """Whether a newcomer can stand for a member: it goes past all barriers, and asks for what is set up there."""
        return node.role == WORKER and self.begun and node.id not in self._done

    def _begin(self) -> list[OutgoingMessage]:
        """When everyone is there: hand out the ids, and tell all of all."""
        if len(self._arriving) < self.places:
            return []
        self.complete = True
        for role, number in ((SERVER, server_id), (WORKER, worker_id)):
            same = sorted((node for node in self._arriving if node.role == role), key=lambda node: node.address)
            self._nodes |= {number(rank): node.given(number(rank)) for rank, node in enumerate(same)}
        self._arriving = []
        everybody = Message(messages.ADD_NODE, (*self._nodes.values(), self._me))
        return [OutgoingMessage(node, everybody) for node in self._nodes.values()]

    def _replace(self, number: int, newcomer: Node) -> list[OutgoingMessage]:
        """Give a newcomer the slot of a dead worker; the servers are told where to find it."""
        rank = (number - worker_id(0)) // 2 + self.slots
        node = newcomer.given(worker_id(rank), recovery=True)
        self._waiting.remove(newcomer)
        del self._nodes[number]
        self._nodes[node.id] = node
        self._say(f"the worker at {node.host}:{node.port} takes slot {rank % self.slots}, whose holder is gone")
        servers = [other for other in self._nodes.values() if other.role == SERVER]
        introduction = Message(messages.ADD_NODE, (node,))
        everybody = Message(messages.ADD_NODE, (*servers, node, self._me))
        sendings = [*(OutgoingMessage(server, introduction) for server in servers), OutgoingMessage(node, everybody)]
        for group in list(self._barriers):  # the dead one may have been the last that was missing
            sendings += self._open(group)
        return sendings

    def _barrier(self, message: Message, sender: int) -> list[OutgoingMessage]:
        """Somebody has come to a barrier."""
        if message.group not in range(SCHEDULER_GROUP, SCHEDULER_GROUP + SERVER_GROUP + WORKER_GROUP + 1):
            return []
        barrier = self._barriers.setdefault(message.group, Barrier(Message(messages.BARRIER)))
        barrier.came.add(sender)
        barrier.answer = Message(messages.BARRIER, app=message.app, customer=message.customer)
        return self._open(message.group)

    def _open(self, group: int) -> list[OutgoingMessage]:
        """Answer all members of a group when all of them have come.

        The scheduler itself counts as having come, and so do newcomers: in ps-lite they go past all
        barriers.
        """
        members = [node for node in self._nodes.values() if node.role in _roles(group)]
        barrier = self._barriers[group]
        if not members or not barrier.came >= self._members(group):
            return []
        del self._barriers[group]
        return [OutgoingMessage(node, barrier.answer) for node in members]

    def _awaited_at_barriers(self) -> set[int]:
        """Ids of those that have not come to a barrier at which others wait."""
        return {number for group, barrier in self._barriers.items() for number in self._members(group) - barrier.came}

    def _members(self, group: int) -> set[int]:
        """Ids of those that a barrier of this group waits for."""
        return {number for number, node in self._nodes.items() if node.role in _roles(group) and not node.recovery}


def _roles(group: int) -> set[int]:
    return {role for role, bit in ((SERVER, SERVER_GROUP), (WORKER, WORKER_GROUP)) if group & bit}


def scheduler_node(host: str, port: int) -> Node:
    """The scheduler as ps-lite knows it."""
    return Node(SCHEDULER, host, port, SCHEDULER_ID)
