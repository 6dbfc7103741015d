from typing import Any

import pytest

from esync.membership.rendezvous import messages
from esync.membership.rendezvous.attendance import Places
from esync.membership.rendezvous.messages import SERVER, WORKER, Message, Node
from esync.membership.rendezvous.node_registry import (
    NodeRegistry,
    OutgoingMessage,
    scheduler_node,
    server_id,
    worker_id,
)


def at(port: int) -> tuple[str, int]:
    """Return the address of the process with this port."""
    return "127.0.0.1", port


def worker(port: int, number: int = messages.EMPTY) -> Node:
    return Node(WORKER, *at(port), number)


def server(port: int, number: int = messages.EMPTY) -> Node:
    return Node(SERVER, *at(port), number)


def fresh(servers: int, workers: int, *arguments: Any, **options: Any) -> NodeRegistry:
    """Return a registry that nobody has come to."""
    return NodeRegistry(scheduler_node(*at(9091)), servers, workers, *arguments, **options)


def register(registry: NodeRegistry, role: int, port: int) -> list[OutgoingMessage]:
    return registry.handle(Message(messages.ADD_NODE, (Node(role, "127.0.0.1", port),)))


def started(servers: int = 2, workers: int = 3) -> tuple[NodeRegistry, list[OutgoingMessage]]:
    """Return a complete cluster, whose processes have come in no particular order.

    Servers have ports 80 …, workers 90 …
    """
    registry = fresh(servers, workers)
    for rank in reversed(range(workers)):
        assert register(registry, WORKER, 90 + rank) == []
    sendings = [register(registry, SERVER, 80 + rank) for rank in range(servers)]
    assert not any(sendings[:-1])
    return registry, sendings[-1]


def running() -> NodeRegistry:
    """Return a complete cluster whose run has begun."""
    registry, _ = started()
    registry.handle(Message(messages.BEGUN, (worker(90, 9),)))
    return registry


def ids(sendings: list[OutgoingMessage]) -> dict[int, int]:
    """Port → id of those that a message goes to."""
    return {sending.to.port: sending.to.id for sending in sendings}


def test_registry_assigns_ids_by_port_and_tells_everyone():
    _, sendings = started()
    assert ids(sendings) == {80: 8, 81: 10, 90: 9, 91: 11, 92: 13}
    for sending in sendings:
        assert {(node.port, node.id) for node in sending.message.nodes} == {*ids(sendings).items(), (9091, 1)}
        assert not any(node.recovery for node in sending.message.nodes)


def barrier(group: int) -> Message:
    return Message(messages.BARRIER, group=group, request=True, app=0, customer=0)


def test_barrier_opens_when_all_of_its_group_have_come():
    registry, _ = started()
    for _ in range(2):  # it can be used again
        assert [len(registry.handle(barrier(7), sender)) for sender in (8, 9, 10, 11, 13)] == [0, 0, 0, 0, 5]
    answers = [registry.handle(barrier(4), sender) for sender in (9, 11, 13)]
    assert sorted(ids(answers[-1])) == [90, 91, 92]
    assert answers[-1][0].message == Message(messages.BARRIER, app=0, customer=0)


def test_barrier_is_not_opened_by_others():
    registry, _ = started()
    for sender in (8, 9, 10, 11):
        assert registry.handle(barrier(7), sender) == []
    for stranger in (messages.EMPTY, 0, 1, 15, 8):  # 8 has come already
        assert registry.handle(barrier(7), stranger) == []
    assert len(registry.handle(barrier(7), 13)) == 5


def test_barrier_of_no_group_is_ignored():
    registry, _ = started()
    for group in (0, 1, 8, 2**31):
        for sender in (8, 9, 10, 11, 13):
            assert registry.handle(barrier(group), sender) == []


def test_replacement_passes_all_barriers():
    registry = running()
    for sender in (8, 10, 9, 13):
        assert registry.handle(barrier(7), sender) == []
    register(registry, WORKER, 99)  # for 11, which has died before it came to the barrier
    opened = registry.admit(dead=[at(91)])
    assert sum(sending.message.command == messages.BARRIER for sending in opened) == 5
    for sender in (8, 9, 10):
        assert registry.handle(barrier(7), sender) == []
    assert len(registry.handle(barrier(7), 13)) == 5


def test_replacement_takes_the_slot_of_a_dead_worker():
    registry = running()
    assert register(registry, WORKER, 99) == []
    assert registry.admit(dead=[]) == []
    assert [node.port for node in registry.waiting()] == [99]
    sendings = registry.admit(dead=[at(91)])
    replacement = worker_id(1 + 3)
    assert ids(sendings) == {80: server_id(0), 81: server_id(1), 99: replacement}
    for sending in sendings[:-1]:  # the servers hear of the replacement only
        assert [(node.port, node.id, node.recovery) for node in sending.message.nodes] == [(99, replacement, True)]
    assert [node.port for node in sendings[-1].message.nodes] == [80, 81, 99, 9091]
    assert registry.waiting() == []


def test_replacement_can_be_replaced():
    registry = running()
    for generation in (1, 2, 3):
        register(registry, WORKER, 100 + generation)
        addresses = [at(port) for port in (91, *range(101, 100 + generation))]
        assert registry.admit(addresses)[-1].to.id == worker_id(1 + 3 * generation)


def test_replacement_takes_the_first_slot_then_the_one_empty_for_the_longest_time():
    registry = running()
    for port in (97, 98, 99):
        register(registry, WORKER, port)
    sendings = registry.admit(dead=[at(97), at(92), at(91), at(90)])  # 97 is gone itself
    assert {port: number for port, number in ids(sendings).items() if port > 92} == {98: worker_id(3), 99: worker_id(5)}


def test_replacement_of_a_rank_that_has_finished_takes_no_slot():
    registry = running()
    registry.handle(Message(messages.DONE, (worker(92, worker_id(2)),)))
    for rank, port in ((2, 98), (1, 99)):
        request_rank(registry, rank, port)
        register(registry, WORKER, port)
    assert {sending.to.port for sending in registry.admit([at(92), at(91)])} == {80, 81, 99}


def test_replacement_never_takes_the_slot_of_a_worker_that_left_the_finished_run():
    registry = running()
    registry.handle(Message(messages.DONE, (worker(92, 13),)))
    register(registry, WORKER, 98)
    register(registry, WORKER, 99)
    addresses = [at(92), at(90)]
    assert [sending.to.id for sending in registry.admit(addresses) if sending.to.port > 92] == [worker_id(3)]
    assert [node.port for node in registry.waiting()] == [99]


def test_replacement_at_the_address_of_a_dead_worker_is_refused():
    log: list[str] = []
    registry = fresh(1, 1, log.append)
    register(registry, WORKER, 90)
    register(registry, SERVER, 80)
    register(registry, WORKER, 90)
    assert registry.admit(dead=[at(90)]) == []
    assert log == ["a replacement at 127.0.0.1:90, where a dead one listened, is refused; leave PORT unset"]


def test_node_that_dies_before_the_start_is_not_waited_for():
    registry = fresh(1, 1)
    register(registry, WORKER, 90)
    registry.admit(dead=[at(90)])
    assert register(registry, SERVER, 80) == []
    assert ids(register(registry, WORKER, 91)) == {80: 8, 91: 9}


def test_surplus_worker_replaces_one_that_dies_before_the_start():
    registry = fresh(1, 1)
    for port in (90, 91, 92):
        register(registry, WORKER, port)
    assert [node.port for node in registry.waiting()] == [91, 92]
    assert registry.admit(dead=[at(90)]) == []
    assert [node.port for node in registry.waiting()] == [92]
    assert ids(register(registry, SERVER, 80)) == {80: 8, 91: 9}


def test_node_lost_before_the_run_begins_is_reported_as_lost():
    registry, _ = started()
    registry.give_up({at(91)})
    assert registry.run_status().command == messages.RUNNING  # nobody waits for it
    addresses = {at(91), at(80)}
    for sender in (9, 13):
        registry.handle(barrier(4), sender)
    registry.give_up(addresses)
    lost = server(80, 8), worker(91, 11)
    assert registry.run_status() == Message(messages.LOST, lost)


def test_awaited_lists_nodes_that_have_not_left():
    registry, _ = started()
    assert registry.awaited(dead=[]) == []
    for sender in (9, 13):
        registry.handle(barrier(4), sender)
    assert [node.port for node in registry.awaited(dead=[])] == [91]
    registry.handle(barrier(4), 11)
    assert registry.awaited(dead=[at(92)]) == []  # the run goes on
    addresses = [node.address for node in registry.everyone() if node.port != 92]
    assert [node.port for node in registry.awaited(addresses)] == [92]  # all servers have left
    assert registry.awaited([*addresses, at(92)]) == []


def test_node_lost_after_the_run_began_is_not_reported():
    registry = running()
    registry.handle(barrier(7), 9)
    registry.give_up({at(91)})
    assert registry.run_status().command == messages.RUNNING
    registry.give_up({at(91), at(80)})  # nothing goes on without a server
    assert registry.run_status() == Message(messages.LOST, (server(80, 8),))


def test_server_that_leaves_after_all_workers_is_not_lost():
    registry = running()
    workers = {at(90), at(91), at(92)}
    registry.give_up({*workers, at(80)})  # the other server is still there
    assert registry.run_status() == Message(messages.RUNNING)


@pytest.mark.parametrize("rank", [0, 1])
def test_replacement_before_the_run_has_begun_is_not_admitted(rank):
    """It would ask servers for the model before worker 0 has set it, and such a server exits."""
    registry, _ = started()
    register(registry, WORKER, 99)
    addresses = [at(90 + rank)]
    assert registry.admit(addresses) == []
    registry.handle(barrier(7), 13)
    registry.give_up(addresses)
    assert [node.port for node in registry.lost] == [90 + rank]
    registry, _ = started()
    register(registry, WORKER, 99)
    registry.handle(Message(messages.BEGUN, (worker(92, 13),)))
    assert ids(registry.admit(addresses))[99] == worker_id(3 + rank)


def test_replacement_is_told_that_the_run_is_finished():
    registry, _ = started()
    assert registry.run_status().command == messages.RUNNING
    for wrong in (server(80), server(79, 8), worker(90, 9)):
        registry.handle(Message(messages.OVER, (wrong,)))
        assert registry.run_status().command == messages.RUNNING
    registry.handle(Message(messages.OVER, (server(80, 8),)))
    assert registry.run_status().command == messages.OVER
    register(registry, WORKER, 99)
    assert registry.admit(dead=[at(91)]) == []


def test_heartbeat_is_answered():
    registry, _ = started()
    (answer,) = registry.handle(Message(messages.HEARTBEAT, (worker(91, 11),)), 11)
    assert (answer.to.port, answer.message.command) == (91, messages.HEARTBEAT)


def test_message_for_nobody_is_ignored():
    registry, _ = started()
    for message in (Message(0), Message(messages.ACK), Message(messages.BARRIER, group=7)):
        assert registry.handle(message, 9) == []


def test_registration_of_other_roles_is_refused():
    log: list[str] = []
    registry = fresh(1, 1, log.append)
    for node in (Node(messages.SCHEDULER, "127.0.0.1", 90), Node(5, "127.0.0.1", 90), worker(9091)):
        assert not registry.may_join(node)
        assert registry.handle(Message(messages.ADD_NODE, (node,))) == []
    assert registry.everyone() == []
    assert log[0] == "the process at 127.0.0.1:90 is refused: it is neither a server nor a worker"


def request_rank(registry: NodeRegistry, rank: int, port: int) -> None:
    node = worker(port, worker_id(rank))
    assert registry.handle(Message(messages.RANK_REQUEST, (node,), request=True)) == []


def test_registry_gives_requested_ranks_and_the_rest_to_others():
    registry = fresh(1, 4)
    for rank in (1, 2):  # the latest counts
        request_rank(registry, rank, 90)
    request_rank(registry, 0, 93)
    request_rank(registry, 0, 99)  # never comes
    request_rank(registry, 7, 91)  # there is no such rank
    sendings = [register(registry, *arrival) for arrival in ((WORKER, 91), (WORKER, 90), (WORKER, 93), (SERVER, 80))]
    assert not any(sendings)
    assert ids(register(registry, WORKER, 92)) == {80: 8, 93: 9, 91: 11, 90: 13, 92: 15}


def test_registry_with_two_requests_for_one_rank_ends_the_run():
    registry = fresh(1, 2)
    for port in (90, 91):
        request_rank(registry, 1, port)
        register(registry, WORKER, port)
    assert registry.failure is None
    assert register(registry, SERVER, 80) == []
    both = (worker(90, 11), worker(91, 11))
    assert registry.run_status() == registry.failure == Message(messages.CLASH, both)
    assert registry.admit([]) == []
    assert not registry.complete


def test_attendance_names_who_is_missing_and_where_it_is_started() -> None:
    by_hand = NodeRegistry(scheduler_node("10.1.1.34", 9091), 1, 3)
    assert by_hand.attendance(()).missing == "1 of 1 server and 3 of 3 workers: worker 0, worker 1, worker 2"
    register(by_hand, SERVER, 80)
    register(by_hand, WORKER, 90)
    assert by_hand.attendance(()).missing == "2 of 3 workers"  # nobody knows which rank the first will have
    advice = by_hand.attendance(()).advice
    assert "DMLC_PS_ROOT_URI=10.1.1.34 DMLC_PS_ROOT_PORT=9091 DMLC_NUM_SERVER=1 DMLC_NUM_WORKER=3" in advice
    assert "the worker at 127.0.0.1:90" in advice
    places = Places(["a/cpu", "b/gpu0"], [["127.0.0.1", "a"], ["10.0.0.2", "b"]])
    launched = fresh(2, 2, places=places)
    request_rank(launched, 1, 91)
    register(launched, WORKER, 91)
    register(launched, SERVER, 80)
    attendance = launched.attendance(())
    assert (attendance.missing, attendance.advice) == ("1 of 2 servers: on b and 1 of 2 workers: worker 0 on a/cpu", "")


def test_attendance_follows_a_member_from_the_start_barrier_to_its_replacement() -> None:
    registry, _ = started()
    assert registry.attendance(()).missing == ""
    for sender in (9, 13):
        registry.handle(barrier(4), sender)
    assert registry.attendance(()).missing == "worker 1 at 127.0.0.1:91 to be ready"
    registry.handle(barrier(4), 11)
    registry.handle(Message(messages.BEGUN, (worker(90, 9),)))
    addresses = [at(92)]
    assert registry.attendance(addresses).missing == "1 of 3 workers: worker 2, gone from 127.0.0.1:92"
    register(registry, WORKER, 99)
    registry.admit(addresses)
    assert registry.attendance(addresses).missing == ""
