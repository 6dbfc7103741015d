"""Who belongs to a cluster, who gets which id, and who has come to a barrier: a scheduler's mind, without sockets.

ps-lite's ids: the scheduler is 1; the server of rank r has 8 + 2 r, the worker of rank r has 9 + 2 r.

A worker that takes the place of a dead one gets a *new* id: of a rank that is equal to the slot of the dead one modulo
the number of workers. So nothing that is still on its way to or from the dead one can be taken for the newcomer's, and
the newcomer, whose rank is not 0, never sends initial values.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from . import messages
from .messages import SCHEDULER, SERVER, WORKER, Message, Node

SCHEDULER_ID = 1
#: Sums of these make the group of a barrier.
SCHEDULER_GROUP, SERVER_GROUP, WORKER_GROUP = 1, 2, 4


def server_id(rank: int) -> int:
    """ps-lite's id of a server."""
    return 8 + 2 * rank


def worker_id(rank: int) -> int:
    """ps-lite's id of a worker."""
    return 9 + 2 * rank


@dataclass(frozen=True)
class Sending:
    """A message that is to go out.

    Attributes:
        to: the process.
        message: what it is told.
    """

    to: Node
    message: Message


class Roster:
    """The processes of one cluster.

    Args:
        me: the scheduler.
        servers: number of parameter servers.
        workers: number of worker slots.
        say: is told what the user should know.
    """

    def __init__(self, me: Node, servers: int, workers: int, say: Callable[[str], None] = lambda text: None) -> None:
        self._me = me.given(SCHEDULER_ID)
        self._expected = {SERVER: servers, WORKER: workers}
        self._say = say
        self._arriving: list[Node] = []
        self._waiting: list[Node] = []
        self._nodes: dict[int, Node] = {}  # by id; a dead one stays until it is replaced
        self._barriers: dict[int, int] = {}
        self.complete = False

    @property
    def slots(self) -> int:
        """Number of worker slots."""
        return self._expected[WORKER]

    def everyone(self) -> list[Node]:
        """All processes that are known, those that wait included."""
        return [*self._arriving, *self._nodes.values(), *self._waiting]

    def waiting(self) -> list[Node]:
        """Newcomers for whom no place is free."""
        return list(self._waiting)

    def take(self, message: Message) -> list[Sending]:
        """What a message leads to."""
        if message.command == messages.ADD_NODE:
            for node in message.nodes:
                self._add(node)
            return self._begin() if not self.complete else []
        if message.command == messages.BARRIER and message.request:
            return self._barrier(message)
        if message.command == messages.HEARTBEAT:
            answer = Message(messages.HEARTBEAT, (self._me,))
            return [Sending(self._nodes[node.id], answer) for node in message.nodes if node.id in self._nodes]
        return []

    def admit(self, gone: Sequence[tuple[str, int]]) -> list[Sending]:
        """Let newcomers in, to the place that has been empty for the longest time first.

        Args:
            gone: addresses of processes that are there no longer, the oldest departure first.
        """
        self._waiting = [node for node in self._waiting if (node.host, node.port) not in gone]
        if not self.complete:
            self._arriving = [node for node in self._arriving if (node.host, node.port) not in gone]
            return []
        sendings = []
        for address in gone:
            newcomer = next((node for node in self._waiting if node.role == WORKER), None)
            for number, old in list(self._nodes.items()):
                if old.role == WORKER and newcomer is not None and (old.host, old.port) == address:
                    sendings += self._replace(number, newcomer)
        return sendings

    def _add(self, node: Node) -> None:
        if any(_same_place(node, other) for other in [*self._arriving, *self._waiting]):
            return  # said twice
        if any(_same_place(node, other) for other in self._nodes.values()):
            # Servers would not connect to it, and what was meant for the dead one would reach it.
            self._say(f"a newcomer at {node.host}:{node.port}, where a dead one listened, is refused; leave PORT unset")
            return
        if not self.complete and sum(other.role == node.role for other in self._arriving) < self._expected[node.role]:
            self._arriving.append(node)
            return
        self._waiting.append(node)

    def _begin(self) -> list[Sending]:
        """When everyone is there: hand out the ids, and tell all of all."""
        if len(self._arriving) < sum(self._expected.values()):
            return []
        self.complete = True
        for role, number in ((SERVER, server_id), (WORKER, worker_id)):
            same = sorted(
                (node for node in self._arriving if node.role == role), key=lambda node: (node.host, node.port)
            )
            self._nodes |= {number(rank): node.given(number(rank)) for rank, node in enumerate(same)}
        self._arriving = []
        everybody = Message(messages.ADD_NODE, (*self._nodes.values(), self._me))
        return [Sending(node, everybody) for node in self._nodes.values()]

    def _replace(self, number: int, newcomer: Node) -> list[Sending]:
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
        return [*(Sending(server, introduction) for server in servers), Sending(node, everybody)]

    def _barrier(self, message: Message) -> list[Sending]:
        """Answer all members of a group when as many have asked; the scheduler itself counts as having come."""
        count = self._barriers.get(message.group, 0) + 1
        roles = {role for role, bit in ((SERVER, SERVER_GROUP), (WORKER, WORKER_GROUP)) if message.group & bit}
        members = [node for node in self._nodes.values() if node.role in roles]
        self._barriers[message.group] = count
        if count < len(members):
            return []
        self._barriers[message.group] = 0
        answer = Message(messages.BARRIER, app=message.app, customer=message.customer)
        return [Sending(node, answer) for node in members]


def _same_place(one: Node, other: Node) -> bool:
    return (one.host, one.port) == (other.host, other.port)


def scheduler_node(host: str, port: int) -> Node:
    """The scheduler as ps-lite knows it."""
    return Node(SCHEDULER, host, port, SCHEDULER_ID)
