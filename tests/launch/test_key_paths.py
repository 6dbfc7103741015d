"""Paths to keys in a description, and overriding their values."""

import pytest
from launching import description, write

from esync.launch.description import Description, check_key_paths, read
from esync.launch.key_paths import UnknownKeyError, find


@pytest.fixture
def file(tmp_path):
    content = description([0.1, 0.2], hosts=["left", "node-1.example.org"])
    content["network"] = {"hosts": {"node-1.example.org": {"latency": "1ms"}}}
    return write(tmp_path / "cluster.yaml", content)


@pytest.mark.parametrize(
    ("place", "way"),
    [
        ("network.bandwidth", ["network", "bandwidth"]),
        ("network.hosts.node-1.example.org.latency", ["network", "hosts", "node-1.example.org", "latency"]),
        ("network.hosts.right-hand.latency", ["network", "hosts", "right-hand", "latency"]),
        ("workers.1.step-time", ["workers", 1, "step_time"]),
        ("state-server.simulate.answer_time", ["state_server", "simulate", "answer_time"]),
        ("train.epsilon", ["train", "epsilon"]),
        ("network", ["network"]),
    ],
)
def test_find_splits_a_key_path_into_keys(place, way):
    content = {"workers": [{}, {}], "network": {"hosts": {"node-1.example.org": {}}}}
    assert find(content, Description, place) == way


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("", "a description has no key ''"),
        ("networks.bandwidth", "a description has no key 'networks'; .*did you mean network?"),
        ("workers.2.step_time", "workers has the entries 0 to 1, not '2'"),
        ("workers.-1.step_time", "workers has the entries 0 to 1, not '-1'"),
        ("workers.0.simulate.crashes.0.at", "workers.0.simulate.crashes has no entries, not '0'"),
        ("workers.0.device.name", "workers.0.device is a single value"),
        ("workers.0.simulate.jiter", "workers.0.simulate has no key 'jiter'; .*did you mean jitter"),
        ("network.hosts.left.speed", "network.hosts.left has no key 'speed'; it has bandwidth, latency"),
    ],
)
def test_key_path_that_does_not_exist_is_refused(file, place, message):
    with pytest.raises(UnknownKeyError, match=message):
        check_key_paths(file, [place])
    with pytest.raises(UnknownKeyError, match=message):
        read(file, {place: 1})


def test_override_of_one_key_behind_a_yaml_anchor_leaves_the_other(tmp_path):
    path = tmp_path / "cluster.yaml"
    path.write_text(
        "scheduler: {host: a}\nservers: [{host: a}]\n"
        "workers: [&w {host: a, device: cpu, simulate: {step_time: 1.0}}, *w]\n"
    )
    changed = read(path, {"workers.0.simulate.step_time": 2.0})
    assert [worker.simulate.step_time for worker in changed.workers] == [2.0, 1.0]


def test_override_of_a_missing_section_creates_it(file):
    changed = read(file, {"simulate.evaluation_time": 3.0, "network.hosts.left.latency": "4ms"})
    assert changed.simulate.evaluation_time == 3.0
    assert changed.network.hosts["left"].latency == 0.004
    assert changed.network.hosts["node-1.example.org"].latency == 0.001
