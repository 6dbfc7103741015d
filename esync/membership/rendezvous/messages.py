"""Encode and decode ps-lite's control messages.

These are the parts of its protocol buffers (meta.proto, proto2) that a scheduler needs, with the
numbers of the fields:

    PBMeta    head 1, body 2, control 3, request 4, push 5, simple_app 6, app_id 7, timestamp 8,
              data_type 9, customer_id 10
    PBControl cmd 1, node 2 (repeated), barrier_group 3, msg_sig 4
    PBNode    role 1, id 2, hostname 3, port 4, is_recovery 5, customer_id 10
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from ipaddress import IPv4Address

from ..connections import Address

#: Roles of a node.
SERVER, WORKER, SCHEDULER = 0, 1, 2
#: Commands.
TERMINATE, ADD_NODE, BARRIER, ACK, HEARTBEAT = 1, 2, 3, 4, 5
#: Commands of this project. A process queries the members of the cluster, and the scheduler answers
#: with their nodes.
WHO = 100
#: A process queries the status of the run. The answer is one of the following commands, and its text is
#: an `attendance.Attendance`.
RUN_STATUS = 101
#: The run is in progress, or about to begin.
RUNNING = 102
#: The run cannot begin or continue, because the nodes of this message are gone.
LOST = 103
#: The run is finished. Servers also send it to the scheduler when they leave for that reason.
OVER = 104
#: A worker notifies the scheduler that the run has begun, so that every worker can be replaced.
BEGUN = 105
#: A worker notifies the scheduler that it has finished its work in a finished run, and need not be
#: replaced.
DONE = 106
#: A worker requests a rank, that of the node's id, before it registers.
RANK_REQUEST = 107
#: The run cannot begin, because the nodes of this message have requested the same rank.
CLASH = 108
#: ps-lite's value for "not set", the largest number in its messages.
EMPTY = 2**31 - 1

_VARINT, _BYTES = 0, 2


class BadMessageError(ValueError):
    """Raised when bytes are not a control message of ps-lite."""


@dataclass(frozen=True)
class Node:
    """A process of the cluster.

    Attributes:
        role: SERVER, WORKER or SCHEDULER.
        id: ps-lite's id; EMPTY before the scheduler has assigned it.
        host: its address.
        port: port on which it listens.
        recovery: whether it replaces a dead process.
        customer: number of its key store within its process, 0.
    """

    role: int
    host: str
    port: int
    id: int = EMPTY
    recovery: bool = False
    customer: int = 0

    @property
    def address(self) -> Address:
        """Host and port."""
        return self.host, self.port

    def with_number(self, number: int, recovery: bool = False) -> "Node":
        """Return the same process with this id."""
        return replace(self, id=number, recovery=recovery)


@dataclass(frozen=True)
class Message:
    """A control message.

    Attributes:
        command: ADD_NODE, BARRIER …; 0 for a message between workers and servers.
        nodes: the nodes concerned.
        group: group of a barrier: servers 2, workers 4, the scheduler 1, or a sum of them.
        request: whether it is a request or an answer.
        app: id of the application in ps-lite, to be repeated in an answer.
        customer: id of the customer in ps-lite, to be repeated in an answer.
        text: text of this project's own messages.
    """

    command: int
    nodes: tuple[Node, ...] = ()
    group: int = 0
    request: bool = False
    app: int = EMPTY
    customer: int = EMPTY
    text: str = ""

    def encode(self, timestamp: int) -> bytes:
        """Return the message in ps-lite's encoding."""
        control = _number(1, self.command)
        for node in self.nodes:
            control += _text(2, _node(node))
        if self.group:
            control += _number(3, self.group)
        parts = [_number(1, EMPTY), _text(3, control), _number(4, self.request)]
        if self.text:
            parts.append(_text(2, self.text.encode()))
        if self.app != EMPTY:
            parts.append(_number(7, self.app))
        return b"".join([*parts, _number(8, timestamp), _number(10, self.customer)])

    @classmethod
    def decode(cls, content: bytes) -> "Message":
        """Decode a message of a node.

        Raises:
            BadMessageError: it is not a control message, or has invalid values. Messages that are
                passed on must be valid, because MXNet would end the other processes otherwise.
        """
        try:
            meta = dict(_fields(content))
            control = list(_fields(_as_bytes(meta.get(3, b""))))
            nodes = tuple(_read_node(_as_bytes(value)) for number, value in control if number == 2)
            scalars = {number: value for number, value in control if isinstance(value, int)}
            return cls(
                command=scalars.get(1, 0),
                nodes=nodes,
                group=scalars.get(3, 0),
                request=bool(meta.get(4, 0)),
                app=_within(meta.get(7, EMPTY), 0, EMPTY, "application"),
                customer=_within(meta.get(10, EMPTY), 0, EMPTY, "customer"),
                text=_as_bytes(meta.get(2, b"")).decode() if scalars.get(1, 0) >= WHO else "",
            )
        except (IndexError, UnicodeDecodeError) as error:
            raise BadMessageError(f"not a message of ps-lite: {error}") from None


def _node(node: Node) -> bytes:
    return b"".join(
        [
            _number(1, node.role),
            _number(2, node.id),
            _text(3, node.host.encode()),
            _number(4, node.port),
            _number(5, node.recovery),
            _number(10, node.customer),
        ]
    )


def _read_node(content: bytes) -> Node:
    fields = dict(_fields(content))
    host = _as_bytes(fields.get(3, b"")).decode()
    try:
        IPv4Address(host)
    except ValueError:
        raise BadMessageError(
            f"a process has registered as {host[:80]!r}, which is no IPv4 address; set DMLC_NODE_HOST to one"
        ) from None
    return Node(
        role=_within(fields.get(1, WORKER), SERVER, SCHEDULER, "role"),
        host=host,
        port=_within(fields.get(4, 0), 1, 65535, "port"),
        id=_within(fields.get(2, EMPTY), 0, EMPTY, "id"),
        recovery=bool(fields.get(5, 0)),
        customer=_within(fields.get(10, 0), 0, EMPTY, "customer"),
    )


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3 | _VARINT) + _varint(int(value))


def _text(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | _BYTES) + _varint(len(content)) + content


def _fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of every field, without support for numbers of fixed width."""
    position = 0

    def varint() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = content[position]
            position += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
            if shift > 63:
                raise BadMessageError("not a message of ps-lite: a number without an end")

    while position < len(content):
        key = varint()
        if key & 7 == _VARINT:
            yield key >> 3, varint()
        elif key & 7 == _BYTES:
            length = varint()
            if position + length > len(content):
                raise BadMessageError("not a message of ps-lite: it is cut off")
            yield key >> 3, content[position : position + length]
            position += length
        else:
            raise BadMessageError(f"not a message of ps-lite: a field of type {key & 7}")


def _within(value: int | bytes, minimum: int, maximum: int, name: str) -> int:
    if isinstance(value, bytes) or not minimum <= value <= maximum:
        raise BadMessageError(f"not a message of ps-lite: the {name} is {value!r}")
    return value


def _as_bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise BadMessageError("not a message of ps-lite: a number instead of text")
    return value
