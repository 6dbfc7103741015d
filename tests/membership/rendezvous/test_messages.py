import pytest

from esync.membership.rendezvous import messages
from esync.membership.rendezvous.messages import BadMessageError, Message, Node

#: What a worker of MXNet 1.9.1 sends first.
REGISTRATION = bytes.fromhex(
    "08ffffffff071a1f0802121b080110ffffffff071a093132372e302e302e3120c5810328005000200028003000400050ffffffff0760006800"
)


def test_message_decode_reads_a_registration_of_mxnet():
    node = Node(messages.WORKER, "127.0.0.1", 49349)
    assert Message.decode(REGISTRATION) == Message(messages.ADD_NODE, (node,))


def test_message_decoded_equals_the_encoded_one():
    nodes = (Node(messages.SERVER, "10.1.1.34", 9091, 8), Node(messages.WORKER, "10.1.1.35", 65535, 21, recovery=True))
    for message in (
        Message(messages.ADD_NODE, nodes),
        Message(messages.BARRIER, group=7, request=True, app=0, customer=0),
        Message(messages.HEARTBEAT, nodes[:1]),
    ):
        assert Message.decode(message.encode(timestamp=5)) == message


@pytest.mark.parametrize("content", [b"\xff", b"\x1a\xff\x01", b"\x09", b"\x1a\x02\x12\x7f", b"\x18\x01", b"\x80" * 20])
def test_message_decode_of_garbage_is_refused(content):
    with pytest.raises(BadMessageError):
        Message.decode(content)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"host": ""}, "registered as '', which is no IPv4 address"),
        ({"host": "a\0b"}, r"registered as 'a\\x00b', which"),
        ({"host": "cloud1"}, "registered as 'cloud1', which"),
        ({"port": 65536}, "the port is 65536"),
        ({"role": 5}, "the role is 5"),
        ({"id": 2**31}, "the id is 2147483648"),
        ({"customer": 2**40}, "the customer is 1099511627776"),
    ],
)
def test_message_decode_with_impossible_node_is_refused(change, named):
    node = Node(**{"role": messages.WORKER, "host": "10.1.1.34", "port": 4000, **change})
    content = Message(messages.ADD_NODE, (node,)).encode(timestamp=1)
    with pytest.raises(BadMessageError, match=named):
        Message.decode(content)


def test_message_decode_with_number_out_of_range_is_refused():
    for change in ({"app": 2**31}, {"customer": 2**63}):
        with pytest.raises(BadMessageError):
            Message.decode(Message(messages.BARRIER, group=7, **change).encode(timestamp=1))
