"""Latency and bandwidth between two hosts; tests/planning/test_plan_over_ssh.py has real limits."""

import contextlib
import socket

import pytest

from esync.planning.link_probe import LinkFigures, LinkServer, probe_link, share_link
from esync.planning.measuring_agent import MeasuringAgent
from esync.planning.network_measurement import NetworkFigures, bandwidth

pytestmark = pytest.mark.timeout(120)


def test_probe_measures_both_directions_and_the_latency() -> None:
    server = LinkServer("127.0.0.1")
    try:
        figures = probe_link("127.0.0.1", server.port, server.key)
        shares = [share_link("127.0.0.1", server.port, server.key, up) for up in (True, False)]
    finally:
        server.close()
    assert figures.up > 0
    assert figures.down > 0
    assert figures.latency > 0
    assert min(shares) > 0


def test_link_server_that_is_closed_accepts_no_more() -> None:
    server = LinkServer("127.0.0.1")
    server.close()
    with pytest.raises(ConnectionRefusedError):
        probe_link("127.0.0.1", server.port, server.key)


@pytest.mark.parametrize("sent", [b"s" * 17, b"e" + b"." * 100, b""])
def test_stranger_without_the_key_is_told_nothing(sent: bytes) -> None:
    server = LinkServer("127.0.0.1")
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as stranger:
            received = b""
            with contextlib.suppress(OSError):  # bytes that nobody has read reset the connection
                stranger.sendall(sent)
                stranger.shutdown(socket.SHUT_WR)
                received = stranger.recv(1)
            assert received == b""
        assert probe_link("127.0.0.1", server.port, server.key).up > 0
    finally:
        server.close()


def test_agent_names_the_address_that_it_cannot_reach() -> None:
    server = LinkServer("127.0.0.1")
    server.close()
    request = {"do": "probe_link", "address": "127.0.0.1", "port": server.port, "key": server.key}
    said = f"127.0.0.1 cannot be reached at port {server.port}: "
    assert MeasuringAgent().answer(request)["error"].startswith(said)
    assert MeasuringAgent().answer({**request, "do": "share_link", "up": True})["error"].startswith(said)


def test_agent_names_the_address_at_which_it_cannot_listen() -> None:
    answer = MeasuringAgent().answer({"do": "open_link", "address": "192.0.2.1"})
    assert answer["error"].startswith("nothing can listen at 192.0.2.1: ")


def test_agent_answers_probes_until_it_is_closed() -> None:
    agent = MeasuringAgent()
    opened = agent.answer({"do": "open_link", "address": "127.0.0.1"})
    port, key = opened["port"], opened["key"]
    assert probe_link("127.0.0.1", port, key).up > 0
    agent.close()
    with pytest.raises(ConnectionRefusedError):
        probe_link("127.0.0.1", port, key)


def test_both_directions_count_as_much_time_as_an_exchange_takes() -> None:
    """A byte there and a byte back take 1/10 + 1/30 s, as two bytes at 15 bytes per second do."""
    assert LinkFigures(0.0, 10.0, 30.0).both == pytest.approx(15.0)


def test_port_of_a_server_carries_what_all_workers_together_have_sent() -> None:
    links = {(worker, "hub"): LinkFigures(0.001, 1e6, 1e6) for worker in ("a", "b")}
    hosts = NetworkFigures(links, {"hub": 1.9e6}).hosts()
    assert {name: host.rate for name, host in hosts.items()} == {"a": 1e6, "b": 1e6, "hub": 1.9e6}
    assert NetworkFigures(links).hosts()["hub"].rate == 1e6


def test_bandwidth_is_what_the_simulator_takes_for_that_payload() -> None:
    assert bandwidth(0.94e6 / 8) == pytest.approx(1e6)
