"""Latency and bandwidth between two hosts; tests/planning/test_plan_over_ssh.py has real limits."""

import numpy as np
import pytest

from esync import config
from esync.planning import link_probe
from esync.planning.link_probe import LinkFigures, LinkServer, probe_link, share_link
from esync.planning.measuring_agent import MeasuringAgent
from esync.planning.network_measurement import NetworkFigures, bandwidth

pytestmark = pytest.mark.timeout(120)


def test_probe_measures_both_directions_and_the_latency() -> None:
    server = LinkServer("127.0.0.1")
    try:
        figures = probe_link("127.0.0.1", server.port)
        shares = [share_link("127.0.0.1", server.port, up) for up in (True, False)]
    finally:
        server.close()
    assert figures.up > 0
    assert figures.down > 0
    assert figures.latency > 0
    assert min(shares) > 0


def test_agent_names_the_address_that_it_cannot_reach() -> None:
    server = LinkServer("127.0.0.1")
    server.close()
    request = {"do": "probe_link", "address": "127.0.0.1", "port": server.port}
    message = f"127.0.0.1 cannot be reached at port {server.port}: "
    assert MeasuringAgent().answer(request)["error"].startswith(message)
    assert MeasuringAgent().answer({**request, "do": "share_link", "up": True})["error"].startswith(message)


def test_agent_names_the_address_at_which_it_cannot_listen() -> None:
    answer = MeasuringAgent().answer({"do": "open_link", "address": "192.0.2.1"})
    assert answer["error"].startswith("nothing can listen at 192.0.2.1: ")


def test_agent_answers_probes_until_it_is_closed() -> None:
    agent = MeasuringAgent()
    port = agent.answer({"do": "open_link", "address": "127.0.0.1"})["port"]
    assert probe_link("127.0.0.1", port).up > 0
    agent.close()
    with pytest.raises(ConnectionRefusedError):
        probe_link("127.0.0.1", port)


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


def test_bytes_that_a_lost_packet_has_held_up_do_not_count_twice(monkeypatch):
    """The link carries 12.5 MB/s; what arrives while TCP waits for a packet is delivered at once."""
    held_up = (config.MEASURE_LINK_WARM_UP - 0.1, config.MEASURE_LINK_WARM_UP + 0.01)
    arrivals, waiting = list[tuple[float, int]](), 0
    for at in np.arange(0, 4, 0.01):
        waiting += 125_000
        if not held_up[0] < at < held_up[1]:
            pieces = [link_probe.CHUNK] * (waiting // link_probe.CHUNK) + [waiting % link_probe.CHUNK]
            arrivals += [(at + 1e-5 * number, piece) for number, piece in enumerate(pieces)]
            waiting = 0
    now = [0.0]

    class Connection:
        def recv_into(self, buffer: bytearray) -> int:
            now[0], count = arrivals.pop(0)
            return count

    monkeypatch.setattr(link_probe.time, "perf_counter", lambda: 100 + now[0])
    assert link_probe._receive(Connection()) == pytest.approx(12.5e6, rel=0.01)
