import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esync.simulate.engine import Engine
from esync.simulate.network import Link, Network, Transfer, share


def arrivals(sends, links):
    """When each of (at, source, target, size) has arrived."""
    engine = Engine()
    network = Network(engine, lambda host: links.get(host, Link(100.0)))
    times = [math.nan] * len(sends)
    for index, (at, source, target, size) in enumerate(sends):

        def arrived(index=index):
            times[index] = engine.now

        engine.call_at(at, network.send, source, target, size, arrived)
    engine.run()
    return times, network


def test_transfers_share_a_port_and_use_what_others_leave():
    times, network = arrivals([(0, "a", "s", 100), (0, "b", "s", 50), (1.5, "c", "s", 100)], {})
    # until 1 both have 50/s; then a alone; from 1.5 on, when a is done, c alone
    assert times == pytest.approx([1.5, 1.0, 2.5])
    assert network.sent == {"a": 100, "b": 50, "c": 100}
    assert network.received == {"s": 250}


def test_both_directions_at_full_speed():
    times, _ = arrivals([(0, "a", "s", 100), (0, "s", "a", 100)], {})
    assert times == pytest.approx([1.0, 1.0])


def test_latency_comes_on_top_and_within_a_host_nothing_costs():
    links = {"far": Link(100.0, latency=0.25), "s": Link(100.0, latency=0.5)}
    times, _ = arrivals([(0, "far", "s", 100), (0, "s", "s", 1e9)], links)
    assert times == pytest.approx([1.75, 0.0])


def test_a_slow_host_leaves_its_share_to_the_others():
    times, _ = arrivals([(0, "phone", "s", 10), (0, "b", "s", 90)], {"phone": Link(10.0)})
    assert times == pytest.approx([1.0, 1.0])


def test_a_crash_takes_its_transfers_with_it():
    engine, seen, owner = Engine(), [], object()
    network = Network(engine, lambda host: Link(100.0))
    network.send("a", "s", 100, lambda: seen.append(("a", engine.now)), owner)
    network.send("b", "s", 100, lambda: seen.append(("b", engine.now)))
    engine.call_at(1.0, network.drop, owner)
    engine.run()
    assert seen == [("b", pytest.approx(1.5))]


hosts = st.sampled_from("abcd")


@given(
    st.lists(st.tuples(hosts, hosts).filter(lambda pair: pair[0] != pair[1]), min_size=1, max_size=12),
    st.dictionaries(hosts, st.floats(1, 1000)),
)
def test_shares_are_max_min_fair(pairs, bandwidths):
    transfers = [Transfer(source, target, 1.0, lambda: None) for source, target in pairs]
    room = lambda host: bandwidths.get(host, 100.0)  # noqa: E731
    share(transfers, room)
    through = {}
    for transfer in transfers:
        for port in ((False, transfer.source), (True, transfer.target)):
            through.setdefault(port, []).append(transfer.rate)
    for port, rates in through.items():
        assert sum(rates) <= room(port[1]) * (1 + 1e-9)
    for transfer in transfers:
        # Everybody has a full port in which nobody gets more: nobody can gain without somebody poorer losing.
        assert any(
            sum(rates) >= room(port[1]) * (1 - 1e-9) and transfer.rate >= max(rates) * (1 - 1e-9)
            for port, rates in ((p, through[p]) for p in ((False, transfer.source), (True, transfer.target)))
        )


@given(st.lists(st.tuples(st.floats(0, 5), hosts, st.floats(0.1, 500)), min_size=1, max_size=10))
def test_a_port_is_busy_until_all_is_carried(sends):
    times, _ = arrivals([(at, source, "s", size) for at, source, size in sends], {})
    first, total = min(at for at, _, _ in sends), sum(size for _, _, size in sends)
    assert max(times) >= first + total / 100 - 1e-6
    for (at, _, size), time in zip(sends, times, strict=True):
        assert at + size / 100 - 1e-4 <= time <= max(at for at, _, _ in sends) + total / 100 + 1e-4
