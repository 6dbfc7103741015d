"""Paths to keys in a description, and overriding their values."""

import pytest
from launching import description, write

from esync.launch.description import DescriptionError, read


@pytest.fixture
def file(tmp_path):
    content = description([0.1, 0.2], hosts=["left", "node-1.example.org"])
    content["network"] = {"hosts": {"node-1.example.org": {"latency": "1ms"}}}
    return write(tmp_path / "cluster.yaml", content)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("networks.bandwidth", "networks: unknown key; .*did you mean network?"),
        ("workers.2.step_time", "there are the entries 0 to 1, and no '2'"),
        ("workers.-1.step_time", "there are the entries 0 to 1, and no '-1'"),
        ("workers.0.device.name", "name: there is a single value, 'cpu'"),
        ("workers.0.simulate.jiter", "simulate.jiter: unknown key; .*did you mean jitter"),
        ("network.hosts.left.speed", "network.hosts.left.speed: unknown key; known: bandwidth, latency"),
    ],
)
def test_key_path_that_does_not_exist_is_refused(file, place, message):
    with pytest.raises(DescriptionError, match=message):
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
    changed = read(
        file,
        {
            "simulate.evaluation_time": 3.0,
            "network.hosts.left.latency": "4ms",
            "network.hosts.node-1.example.org.latency": "2ms",
        },
    )
    assert changed.simulate.evaluation_time == 3.0
    assert changed.network.hosts["left"].latency == 0.004
    assert changed.network.hosts["node-1.example.org"].latency == 0.002
