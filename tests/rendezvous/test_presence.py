from esync.rendezvous.messages import WORKER, Node
from esync.rendezvous.presence import FIRST_LOOKS, LOOKS, Presence

MEMBER = Node(WORKER, "10.0.0.1", 4001, id=9)
NEWCOMER = Node(WORKER, "10.0.0.1", 4002)
ADDRESS = ("10.0.0.1", 4001)


def test_one_missing_look_is_no_departure():
    presence = Presence()
    assert presence.look([MEMBER], {ADDRESS}) == []
    for _ in range(LOOKS - 1):
        assert presence.look([MEMBER], set()) == []
    assert presence.look([MEMBER], {ADDRESS}) == []  # it was there all the time
    for _ in range(LOOKS - 1):
        assert presence.look([MEMBER], set()) == []
    assert presence.look([MEMBER], set()) == [ADDRESS]


def test_a_member_that_dies_before_it_was_seen_is_gone_too():
    presence = Presence()
    for _ in range(FIRST_LOOKS):
        assert presence.look([MEMBER], set()) == []
    assert presence.look([MEMBER], set()) == [ADDRESS]


def test_who_waits_for_a_place_is_missed_only_after_it_was_seen():
    presence = Presence()
    for _ in range(2 * FIRST_LOOKS):
        assert presence.look([NEWCOMER], set()) == []
    presence.look([NEWCOMER], {("10.0.0.1", 4002)})
    assert [presence.look([NEWCOMER], set()) for _ in range(LOOKS)][-1] == [("10.0.0.1", 4002)]


def test_the_oldest_departure_comes_first():
    presence = Presence()
    other = Node(WORKER, "10.0.0.2", 4001, id=11)
    presence.look([MEMBER, other], {ADDRESS, ("10.0.0.2", 4001)})
    presence.look([MEMBER, other], {ADDRESS})
    for _ in range(LOOKS):
        gone = presence.look([MEMBER, other], set())
    assert gone == [("10.0.0.2", 4001), ADDRESS]


def test_who_is_known_no_longer_is_forgotten():
    presence = Presence()
    presence.look([MEMBER], {ADDRESS})
    presence.look([MEMBER], set())
    presence.look([], set())
    # A newcomer at the same port is somebody else.
    assert presence.look([Node(WORKER, "10.0.0.1", 4001)], set()) == []
    assert presence.look([Node(WORKER, "10.0.0.1", 4001)], set()) == []
