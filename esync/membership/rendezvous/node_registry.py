"""The node registry: the members of a cluster, their ids, and barriers; without sockets.

ps-lite's ids: the scheduler is 1; the server of rank r is 8 + 2 r, the worker of rank r is 9 + 2 r.

The replacement of a dead worker gets a *new* id, that of a rank which equals the slot of the dead one
modulo the number of workers. Messages in transit to or from the dead worker are then not mistaken for
the replacement's, and the replacement, whose rank is not 0, never sends initial values.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from ...runtime.output import RateLimitedLog
from ..connections import Address
from . import messages
from .attendance import Attendance, Places, how_to_start, missing_of, name_of
from .messages import EMPTY, SCHEDULER, SERVER, WORKER, Message, Node

SCHEDULER_ID = 1
#: The group of a barrier is a sum of these.
SCHEDULER_GROUP, SERVER_GROUP, WORKER_GROUP = 1, 2, 4


def server_id(rank: int) -> int:
    """Return ps-lite's id of a server."""
    return 8 + 2 * rank


def worker_id(rank: int) -> int:
    """Return ps-lite's id of a worker."""
    return 9 + 2 * rank


@dataclass(frozen=True)
class OutgoingMessage:
    """A message to send.

    Attributes:
        to: the receiver.
        message: its content.
    """

    to: Node
    message: Message


@dataclass
class Barrier:
    """A barrier that some processes have reached.

    Attributes:
        answer: the message that opens it.
        arrived: ids of the processes that have reached it.
    """

    answer: Message
    arrived: set[int] = field(default_factory=set)


class NodeRegistry:
    """The processes of one cluster.

    Args:
        me: the scheduler.
        servers: number of parameter servers.
        workers: number of worker slots.
        notify: called with messages for the user.
        places: where the launcher starts the processes.

    Attributes:
        complete: whether the ids have been assigned.
        begun: whether the workers have the common model; before that, a dead worker cannot be replaced.
        over: whether the run is finished.
        deserted: whether all workers have left before the cluster was complete.
        lost: members that are gone, and without which the run cannot continue: servers at any time,
            workers before the run has begun.
        clash: workers that have requested the same rank, so that the run cannot begin.
    """

    def __init__(
        self,
        me: Node,
        servers: int,
        workers: int,
        notify: Callable[[str], None] = lambda text: None,
        places: Places = Places(),  # noqa: B008 - a tuple
    ) -> None:
        self._places = places
        self._me = me.with_number(SCHEDULER_ID)
        self._expected = {SERVER: servers, WORKER: workers}
        self._notify, self._refuse = notify, RateLimitedLog(notify)
        self._arriving: list[Node] = []
        self._waiting: list[Node] = []
        self._nodes: dict[int, Node] = {}  # by id; a dead process stays until it is replaced
        self._barriers: dict[int, Barrier] = {}  # by group
        self._done: set[int] = set()  # ids of workers that have finished their work in the finished run
        self.complete = self.begun = self.over = self.deserted = False
        self._requested_ranks: dict[
            Address, int
        ] = {}  # requested ranks, by the addresses of workers that may not have registered yet
        self.lost: list[Node] = []
        self.clash: list[Node] = []

    @property
    def slots(self) -> int:
        """Number of worker slots."""
        return self._expected[WORKER]

    @property
    def places(self) -> int:
        """Number of servers and workers."""
        return sum(self._expected.values())

    def everyone(self) -> list[Node]:
        """Return all known processes, including those that wait for a place."""
        return [*self._arriving, *self._nodes.values(), *self._waiting]

    def waiting(self) -> list[Node]:
        """Return the replacements that wait for a place."""
        return list(self._waiting)

    def members(self) -> Message:
        """Return the processes with an id, including the scheduler, as a message."""
        return Message(messages.WHO, (*self._nodes.values(), self._me))

    @property
    def failure(self) -> Message | None:
        """Why the run cannot begin or continue, as a message; None if it can."""
        if self.lost or self.deserted:
            return Message(messages.LOST, tuple(self.lost))
        return Message(messages.CLASH, tuple(self.clash)) if self.clash else None

    def run_status(self, attendance: str = "") -> Message:
        """Return the status of the run as a message: running, failed or finished."""
        message = self.failure or Message(messages.OVER if self.over else messages.RUNNING)
        return replace(message, text=attendance)

    def attendance(self, dead: Collection[Address]) -> Attendance:
        """Return the processes for which others, or at the end this scheduler, wait.

        Args:
            dead: addresses of members whose connections have ended.
        """
        servers, workers = self._expected[SERVER], self._expected[WORKER]
        missing, roles = list[str](), list[int]()
        advice = ""
        if not self.complete:
            for role, expected in self._expected.items():
                present = [node for node in self._arriving if node.role == role]
                if len(present) < expected:
                    roles.append(role)
                    missing.append(missing_of(role, expected - len(present), expected, self._absent(role, present)))
        elif self.begun and not self.over and self._servers_left(dead):
            vacant = [node for node in self._nodes.values() if node.address in dead and self._replaceable(node)]
            if vacant:
                roles.append(WORKER)
                names = [f"{self._slot(node)}, gone from {node.host}:{node.port}" for node in vacant]
                missing.append(missing_of(WORKER, len(vacant), workers, names))
        else:
            purpose = "to leave" if self.over or not self._servers_left(dead) else "to be ready"
            missing = [f"{name_of(node)} {purpose}" for node in self.awaited(dead)]
            advice = "end it there if it hangs"
        if roles and not self._places.workers:
            present = [node for node in self.everyone() if node.address not in dead]
            advice = how_to_start(self._me, servers, workers, roles, present)
        return Attendance(servers, workers, self.begun, " and ".join(missing), advice if missing else "")

    def may_join(self, node: Node) -> bool:
        """Return whether a process that has registered may become a member, and is to be examined."""
        if node.role not in self._expected or node.address == self._me.address:
            self._refuse(f"the process at {node.host}:{node.port} is refused: it is neither a server nor a worker")
        elif any(node.address == other.address for other in [*self._arriving, *self._waiting]):
            pass  # a repeated registration
        elif any(node.address == other.address for other in self._nodes.values()):
            # Servers would not connect to it, and it would receive messages for the dead process.
            self._refuse(
                f"a replacement at {node.host}:{node.port}, where a dead one listened, is refused; leave PORT unset"
            )
        else:
            return True
        return False

    def handle(self, message: Message, sender: int = EMPTY) -> list[OutgoingMessage]:
        """Handle a message, and return the messages to send.

        Args:
            message: a message from any sender.
            sender: the id of the sender; EMPTY if it has none.
        """
        if message.command == messages.ADD_NODE:
            for node in message.nodes:
                if self.may_join(node):
                    self._place(node)
            return self._begin() if not self.complete else []
        if message.command in (messages.BEGUN, messages.DONE, messages.OVER):
            self._note(message)
            return []
        if message.command == messages.RANK_REQUEST:
            self._note_requested_rank(message)
            return []
        if sender not in self._nodes:
            return []
        if message.command == messages.BARRIER and message.request:
            return self._barrier(message, sender)
        if message.command == messages.HEARTBEAT:
            return [OutgoingMessage(self._nodes[sender], Message(messages.HEARTBEAT, (self._me,)))]
        return []

    def admit(self, dead: Sequence[Address]) -> list[OutgoingMessage]:
        """Let replacements in, to the first worker's place, then to the one that has been empty for longest.

        Once the ids have been assigned, nobody is let in until the run has begun; see `give_up`.

        Args:
            dead: addresses of processes that are gone, the oldest departure first.
        """
        self._waiting = [node for node in self._waiting if node.address not in dead]
        if not self.complete:
            self._arriving = [node for node in self._arriving if node.address not in dead]
            waiting, self._waiting = self._waiting, []
            for node in waiting:  # a place may have become free
                self._place(node)
            return self._begin()
        sendings = []
        # Only the first worker, which writes the final model, still has something to do at the end.
        first = {node.address for node in self._nodes.values() if node.role == WORKER and self._rank(node) == 0}
        for address in sorted(dead, key=lambda address: address not in first) if not self.over else ():
            # One whose rank has finished its work would take the place of one that has not.
            finished = {self._rank(self._nodes[number]) for number in self._done}
            candidates = (node for node in self._waiting if node.role == WORKER)
            replacement = next(
                (node for node in candidates if self._requested_ranks.get(node.address) not in finished), None
            )
            for number, old in list(self._nodes.items()):
                if replacement is not None and old.address == address and self._replaceable(old):
                    sendings += self._replace(number, replacement)
        return sendings

    def give_up(self, dead: Collection[Address]) -> None:
        """Record lost members without which the run cannot begin or continue.

        These are servers and, before the run has begun, workers for which others wait at a barrier. A
        run without workers is at its end, in which its servers leave one by one.

        Args:
            dead: addresses of processes that have been gone for so long that they will not be replaced.
        """
        if self.over or self.lost or all(node.address in dead for node in self._nodes.values() if node.role == WORKER):
            return
        awaited = set() if self.begun else self._awaited_at_barriers()
        self.lost = [
            node
            for number, node in self._nodes.items()
            if node.address in dead and (number in awaited or node.role == SERVER)
        ]

    def has_workers(self) -> bool:
        """Return whether a worker is registered."""
        return any(node.role == WORKER for node in self.everyone())

    def awaited(self, dead: Collection[Address]) -> list[Node]:
        """Return the members for which others wait at a barrier.

        At the end of the run, these are the members that have not left.

        Args:
            dead: addresses of members whose connections have ended.
        """
        if self.over or not self._servers_left(dead):
            return [node for node in self._nodes.values() if node.address not in dead]
        awaited = self._awaited_at_barriers()
        return [node for number, node in self._nodes.items() if number in awaited]

    def _servers_left(self, dead: Collection[Address]) -> bool:
        return any(node.role == SERVER and node.address not in dead for node in self._nodes.values())

    def _rank(self, node: Node) -> int:
        """Return the rank of a worker: the one that it has requested, or that of its place."""
        return self._requested_ranks.get(node.address, (node.id - worker_id(0)) // 2 % self.slots)

    def _slot(self, node: Node) -> str:
        """Return the name of a worker's slot, with its host and device."""
        return self._worker((node.id - worker_id(0)) // 2 % self.slots)

    def _worker(self, rank: int) -> str:
        return f"worker {rank} on {self._places.workers[rank]}" if self._places.workers else f"worker {rank}"

    def _absent(self, role: int, present: Sequence[Node]) -> list[str]:
        """Return the names of the processes of a role that have not come; none if not known."""
        if role == SERVER:
            return self._places.absent_servers(present)
        ranks = {self._requested_ranks.get(node.address) for node in present}
        if None in ranks or len(ranks) < len(present):  # or two want the same one
            return []
        return [self._worker(rank) for rank in range(self.slots) if rank not in ranks]

    def _place(self, node: Node) -> None:
        if not self.complete and sum(other.role == node.role for other in self._arriving) < self._expected[node.role]:
            self._arriving.append(node)
        else:
            self._waiting.append(node)

    def _note(self, message: Message) -> None:
        """Record a notification about the state of the run."""
        for node in message.nodes:
            if node == self._nodes.get(node.id):
                self.begun = self.begun or (message.command == messages.BEGUN and node.role == WORKER)
                self.over = self.over or (message.command == messages.OVER and node.role == SERVER)
                if message.command == messages.DONE:
                    self._done.add(node.id)

    def _note_requested_rank(self, message: Message) -> None:
        """Record the requested rank of a worker that is about to register."""
        for node in message.nodes:
            rank, rest = divmod(node.id - worker_id(0), 2)
            if node.role == WORKER and not rest and 0 <= rank < self.slots:
                self._requested_ranks.pop(node.address, None)
                self._requested_ranks[node.address] = rank

    def _replaceable(self, node: Node) -> bool:
        """Return whether another process may take this slot, as only workers allow, during the run.

        A replacement skips all barriers, and needs the state that is set up there.
        """
        return node.role == WORKER and self.begun and node.id not in self._done

    def _begin(self) -> list[OutgoingMessage]:
        """Assign the ids when all processes have registered, and send every process the addresses of all.

        Workers get the ranks that they have requested. The remaining ranks, and those of servers, are
        assigned in the order of addresses.
        """
        if len(self._arriving) < self.places or self.clash:
            return []
        ranks: dict[int, Node] = {}
        same = sorted((node for node in self._arriving if node.role == WORKER), key=lambda node: node.address)
        for node in same:
            rank = self._requested_ranks.get(node.address)
            if rank in ranks:
                self.clash = [member.with_number(worker_id(rank)) for member in (ranks[rank], node)]
                return []
            if rank is not None:
                ranks[rank] = node
        free = (rank for rank in range(self.slots) if rank not in ranks)
        ranks |= {next(free): node for node in same if node not in ranks.values()}
        self.complete = True
        same = sorted((node for node in self._arriving if node.role == SERVER), key=lambda node: node.address)
        self._nodes = {server_id(rank): node.with_number(server_id(rank)) for rank, node in enumerate(same)}
        self._nodes |= {worker_id(rank): ranks[rank].with_number(worker_id(rank)) for rank in sorted(ranks)}
        self._arriving = []
        everybody = Message(messages.ADD_NODE, (*self._nodes.values(), self._me))
        return [OutgoingMessage(node, everybody) for node in self._nodes.values()]

    def _replace(self, number: int, replacement: Node) -> list[OutgoingMessage]:
        """Assign the slot of a dead process to a replacement, and send its address to the others."""
        rank = (number - worker_id(0)) // 2 + self.slots
        node = replacement.with_number(worker_id(rank), recovery=True)
        self._waiting.remove(replacement)
        del self._nodes[number]
        self._nodes[node.id] = node
        self._notify(f"the worker at {node.host}:{node.port} takes slot {rank % self.slots}, whose holder is gone")
        servers = [other for other in self._nodes.values() if other.role == SERVER]
        introduction = Message(messages.ADD_NODE, (node,))
        everybody = Message(messages.ADD_NODE, (*servers, node, self._me))
        sendings = [*(OutgoingMessage(server, introduction) for server in servers), OutgoingMessage(node, everybody)]
        for group in list(self._barriers):  # the dead process may have been the last missing one
            sendings += self._open(group)
        return sendings

    def _barrier(self, message: Message, sender: int) -> list[OutgoingMessage]:
        """Record that a process has reached a barrier, and open it if it was the last one."""
        if message.group not in range(SCHEDULER_GROUP, SCHEDULER_GROUP + SERVER_GROUP + WORKER_GROUP + 1):
            return []
        barrier = self._barriers.setdefault(message.group, Barrier(Message(messages.BARRIER)))
        barrier.arrived.add(sender)
        barrier.answer = Message(messages.BARRIER, app=message.app, customer=message.customer)
        return self._open(message.group)

    def _open(self, group: int) -> list[OutgoingMessage]:
        """Answer all members of a group when all of them have reached the barrier.

        The scheduler counts as having reached it, and so do replacements, which skip all barriers in
        ps-lite.
        """
        members = [node for node in self._nodes.values() if node.role in _roles(group)]
        barrier = self._barriers[group]
        if not members or not barrier.arrived >= self._members(group):
            return []
        del self._barriers[group]
        return [OutgoingMessage(node, barrier.answer) for node in members]

    def _awaited_at_barriers(self) -> set[int]:
        """Return the ids of processes that have not reached a barrier at which others wait."""
        return {
            number for group, barrier in self._barriers.items() for number in self._members(group) - barrier.arrived
        }

    def _members(self, group: int) -> set[int]:
        """Return the ids of the processes for which a barrier of this group waits."""
        return {number for number, node in self._nodes.items() if node.role in _roles(group) and not node.recovery}


def _roles(group: int) -> set[int]:
    return {role for role, bit in ((SERVER, SERVER_GROUP), (WORKER, WORKER_GROUP)) if group & bit}


def scheduler_node(host: str, port: int) -> Node:
    """Return the scheduler's node."""
    return Node(SCHEDULER, host, port, SCHEDULER_ID)
