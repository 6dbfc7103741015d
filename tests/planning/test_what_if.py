"""Changes to a described cluster."""

import pytest

from esync.launch.description import read
from esync.planning.what_if import Change, WhatIfError, changed
from esync.simulate.cluster import links, model

from .clusters import write


@pytest.fixture
def description(tmp_path):
    path = write(tmp_path, 0.1, 0.1, 0.5, bandwidth="100Mbit", latency="1ms")
    text = path.read_text().replace("latency: 1ms}", "latency: 1ms, hosts: {w2: {bandwidth: 10Mbit, latency: 20ms}}}")
    text += "  - {host: phone, device: cpu, count: 2, simulate: {step_time: 4}}\n"
    path.write_text(text)
    return read(path)


def become(description, text):
    return changed(description, Change.parse(text))


def test_faster_network_is_every_hosts(description):
    before, after = links(description), links(become(description, "network=10Gbit"))
    assert after("w0").bandwidth == 100 * before("w0").bandwidth
    assert after("w2").bandwidth == after("w0").bandwidth
    assert after("w2").latency == before("w2").latency


def test_network_and_latency_of_one_host_leave_the_others(description):
    after = links(become(description, "network.w2=1Gbit,latency.phone=3ms"))
    assert after("w2").bandwidth == 10 * after("w0").bandwidth
    assert after("phone-1").latency > after("w0").latency
    assert after("w2").latency == links(description)("w2").latency


@pytest.mark.parametrize(
    ("which", "hosts"),
    [
        ("w2", ["w0", "w1", "phone-0", "phone-1"]),
        ("w0/cpu", ["w1", "w2", "phone-0", "phone-1"]),
        ("phone", ["w0", "w1", "w2"]),
        ("phone-1", ["w0", "w1", "w2", "phone-0"]),
    ],
)
def test_without_leaves_out_a_host_or_a_device(description, which, hosts, tmp_path):
    after = become(description, f"without={which}")
    assert [worker.host for worker in after.workers] == hosts
    model(after, tmp_path)  # its links name no host that is gone


def test_added_devices_have_hosts_of_their_own(description, tmp_path):
    after = become(description, "add=gpu:0.03x2,add=cpu:2")
    new = model(after, tmp_path).workers[5:]
    assert [worker.device.mean for worker in new] == [0.03, 0.03, 2.0]
    assert len({worker.host for worker in after.workers}) == 8
    assert [worker.device for worker in after.workers[5:]] == ["gpu0", "gpu0", "cpu"]


def test_servers_is_their_number_in_all(description):
    after = become(description, "servers=3")
    assert len({server.host for server in after.servers}) == 3
    assert len(become(after, "servers=1").servers) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("network", "expected KEY=VALUE, one of network=10Gbit"),
        ("netwrok=1Gbit", "there is no 'netwrok' (did you mean network?)"),
        ("network=10", "expected a number with one of the units bit, kbit, Mbit, Gbit, for instance 1Gbit"),
        ("latency.w9=1ms", "nothing runs on a host 'w9'"),
        ("latency.w2=0us", "less than half of network.latency"),
        ("without=w22", "no worker is called 'w22' (did you mean"),
        ("without=w0,without=w1,without=w2,without=phone", "no worker would be left"),
        ("add=gpu", "expected DEVICE:SECONDSxCOUNT, for instance add=gpu:0.03x2"),
        ("add=gpu:1e999", "expected DEVICE:SECONDSxCOUNT"),
        ("add=cpu:1x999999999", "a job has up to 10000 workers, and 5 are there already"),
        ("servers=999999999", "expected the number of servers in all, up to 10000"),
        ("servers.x=2", "there is no 'servers.x'"),
        ("per-host=2", "per-host=2: expected per-host, per-host=true or per-host=false"),
        ("per-host", "no host has two workers, so it changes nothing"),
    ],
)
def test_change_that_makes_no_sense_is_refused_with_what_would_be_right(description, text, message):
    with pytest.raises(WhatIfError) as refused:
        become(description, text)
    assert message in str(refused.value)
    assert str(refused.value).startswith(f"--what-if {text}: ")
