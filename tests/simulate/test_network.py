import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esync.simulate.engine import SimulationEngine
from esync.simulate.network import Link, Network


def arrivals(sends, links, servers=("s",), scale=1.0):
    """When each of (at, source, target, size) has arrived."""
    engine = SimulationEngine()
    network = Network(engine, lambda host: links.get(host, Link(100.0)), servers, scale=scale)
    times = [math.nan] * len(sends)
    for index, (at, source, target, size) in enumerate(sends):

        def arrived(index=index):
            times[index] = engine.now

        engine.call_at(at, network.send, source, target, size, arrived)
    engine.run()
    return times, network


def test_transfers_with_scale_stand_for_larger_ones():
    times, network = arrivals([(0, "a", "s", 20), (0, "b", "s", 10), (1.5, "c", "s", 20)], {}, scale=5)
    assert times == pytest.approx([1.5, 1.0, 2.5])
    assert network.received == {"s": 250}
    assert network.carrying("a", "s", 20) == 1


def test_transfers_take_latency_and_cost_nothing_within_a_host():
    links = {"far": Link(100.0, latency=0.25), "s": Link(100.0, latency=0.5)}
    times, _ = arrivals([(0, "far", "s", 100), (0, "s", "s", 1e9)], links)
    assert times == pytest.approx([1.75, 0.0])


def test_transfers_of_crashed_worker_are_removed():
    engine, seen, owner = SimulationEngine(), [], object()
    network = Network(engine, lambda host: Link(100.0), ["s"])
    network.send("a", "s", 100, lambda: seen.append(("a", engine.now)), owner)
    network.send("b", "s", 100, lambda: seen.append(("b", engine.now)))
    engine.call_at(1.0, network.drop, owner)
    engine.run()
    assert seen == [("b", pytest.approx(1.5))]


hosts = st.sampled_from("abcd")


def fairly(sends, links):
    """Return when each transfer has arrived, without latencies.

    Every rate is computed anew at each change (progressive filling).
    """
    backlog = [size for *_, size in sends]
    times, now = [math.nan] * len(sends), 0.0
    while any(map(math.isnan, times)):
        active = [i for i, (at, *_) in enumerate(sends) if at <= now and math.isnan(times[i])]
        through = {}
        for i in active:
            through.setdefault((0, sends[i][1]), []).append(i)
            through.setdefault((1, sends[i][2]), []).append(i)
        room = {port: links.get(port[1], Link(100.0)).bandwidth for port in through}
        rates, waiting = {}, {port: set(members) for port, members in through.items()}
        while any(waiting.values()):
            tightest = min((p for p in waiting if waiting[p]), key=lambda p: room[p] / len(waiting[p]))
            rate = room[tightest] / len(waiting[tightest])
            for i in list(waiting[tightest]):
                rates[i] = rate
                for port in ((0, sends[i][1]), (1, sends[i][2])):
                    room[port] -= rate
                    waiting[port].discard(i)
        changes = [at for at, *_ in sends if at > now] + [now + backlog[i] / rates[i] for i in active]
        until = min(changes)
        for i in active:
            backlog[i] -= rates[i] * (until - now)
            if backlog[i] <= 1e-6:
                times[i] = until
        now = until
    return times


@given(
    st.lists(st.tuples(st.floats(0, 5), hosts, st.booleans(), st.floats(1, 500)), min_size=1, max_size=12),
    st.dictionaries(hosts, st.floats(1, 200)),
)
def test_transfers_of_a_server_are_max_min_fair(sends, bandwidths):
    links = {host: Link(bandwidth) for host, bandwidth in bandwidths.items()}
    ways = [(at, "s", host, size) if down else (at, host, "s", size) for at, host, down, size in sends]
    times, _ = arrivals(ways, links)
    assert times == pytest.approx(fairly(ways, links), rel=1e-5, abs=1e-3)


@given(st.lists(st.tuples(st.floats(0, 5), hosts, hosts, st.floats(1, 500)), min_size=1, max_size=12))
def test_transfers_of_hosts_with_workers_and_servers_stay_within_bandwidth(sends):
    sends = [send for send in sends if send[1] != send[2]]
    times, _ = arrivals(sends, {}, servers=["a", "b"])
    for way in (1, 2):
        for host in "abcd":
            mine = [i for i, send in enumerate(sends) if send[way] == host]
            if mine:
                first, last = min(sends[i][0] for i in mine), max(times[i] for i in mine)
                assert sum(sends[i][3] for i in mine) <= 100 * (last - first) * (1 + 1e-6) + 0.1
