"""Reading a cluster description, and refusing a wrong one by file, line and key."""

from pathlib import Path

import pytest

from esync.launch import yaml_text
from esync.launch.description import Description, DescriptionError, read
from esync.launch.hosts import is_this_machine, locate

CLUSTERS = Path(__file__).parents[2] / "clusters"
GOOD = """\
scheduler: {host: cloud2, port: 9091}
servers: [{host: cloud2}]
state_server: {host: cloud2, port: 10010}
workers:
  - {host: cloud1, device: gpu0}
  - host: cloud1
    device: cpu
    step_time: 3.5
    threads: 2
hosts:
  cloud1: {address: localhost}
network: {bandwidth: 1Gbit, latency: 0.2ms}
train: {mode: esync, network: resnet18-v1, batch_size: 64, local_lr: 1e-3, target_accuracy: 0.8, overwrite: true}
"""


def parse(tmp_path: Path, text: str) -> Description:
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    return read(path)


def complaint(tmp_path: Path, text: str) -> list[str]:
    """The lines of the error, without the folder of the file."""
    with pytest.raises(DescriptionError) as caught:
        parse(tmp_path, text)
    return [line.removeprefix(f"{tmp_path}/") for line in str(caught.value).splitlines()]


def test_description_with_every_key_is_read(tmp_path):
    description = parse(tmp_path, GOOD)
    assert description.scheduler.port == 9091
    assert [worker.device for worker in description.workers] == ["gpu0", "cpu"]
    assert (description.workers[1].step_time, description.workers[1].threads) == (3.5, 2)
    assert (description.network.bandwidth, description.network.latency) == (1e9, pytest.approx(2e-4))
    assert description.train == {
        "mode": "esync",
        "network": "resnet18-v1",
        "batch_size": 64,
        "local_lr": 0.001,  # 1e-3 is text in YAML 1.1
        "target_accuracy": 0.8,
        "overwrite": True,
    }


@pytest.mark.parametrize("name", ["demo", "paper", "quick"])
def test_description_shipped_in_clusters_is_read(name):
    description = read(CLUSTERS / f"{name}.yaml")
    assert len(description.workers) >= {"demo": 4, "paper": 6, "quick": 2}[name]
    if name == "demo":
        steps = [worker.step_time for worker in description.workers]
        assert max(steps) >= 10 * min(steps)
        assert len({worker.host for worker in description.workers}) == 2


def test_fastest_device_of_the_demonstration_is_described_as_in_the_demonstration():
    demo, fastest = read(CLUSTERS / "demo.yaml"), read(CLUSTERS / "demo-fastest.yaml")
    assert fastest.workers == [min(demo.workers, key=lambda worker: worker.step_time)]
    own_rate = {name: fastest.train[name] for name in ("local_lr", "learning_rate")}
    assert fastest.train == {**demo.train, "mode": "local", **own_rate}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("device: gpu0", "devise: gpu0", ["cluster.yaml:5: workers[0].devise: unknown key; known: host, device,"]),
        (
            "device: gpu0",
            "device: gpu",
            ["cluster.yaml:5: workers[0].device: 'gpu' is not a device; expected cpu"],
        ),
        ("    device: cpu\n", "", ["cluster.yaml:6: workers[1].device: it is missing"]),
        ("step_time: 3.5", "step_time: -1", ["cluster.yaml:8: workers[1].step_time: Input should be greater than 0"]),
        ("threads: 2", "threads: 2.5", ["cluster.yaml:9: workers[1].threads: Input should be a valid integer"]),
        ("port: 9091", "port: '9091'", ["cluster.yaml:1: scheduler.port: Input should be a valid integer"]),
        ("scheduler: {host: cloud2, port: 9091}\n", "", ["cluster.yaml:1: scheduler: it is missing"]),
        ("host: cloud1\n", "host: ../up\n", ["cluster.yaml:6: workers[1].host: '../up' is not a host name"]),
        ("address:", "adress:", ["cluster.yaml:11: hosts.cloud1.adress: unknown key; known: address"]),
        ("localhost", "-v", ["cluster.yaml:11: hosts.cloud1.address: '-v' cannot be passed to ssh"]),
        (
            "localhost",
            "a, env: {A B: 1}",
            ["cluster.yaml:11: hosts.cloud1.env.A B: it is not a name of an"],
        ),
        ("localhost", "a, env: {PORT: 1}", ["cluster.yaml:11: hosts.cloud1.env.PORT: launch sets it by itself"]),
        ("localhost", 'a, env: {A: "b\\n"}', ["cluster.yaml:11: hosts.cloud1.env.A: "]),
        ("1Gbit", "1GB", ["cluster.yaml:12: network.bandwidth: '1GB': expected a number with one of the units bit,"]),
        ("0.2ms", "5", ["cluster.yaml:12: network.latency: 5: expected a number with one of the units us, ms, s"]),
        (
            "batch_size: 64",
            "batch-size: 64",
            ["cluster.yaml:13: train.batch-size: unknown key; known: mode, use_dcasgd,"],
        ),
        ("batch_size: 64", "batch_size: 0", ["cluster.yaml:13: train.batch_size: '0' should be a whole number of 1"]),
        ("batch_size: 64", "batch_size: [64]", ["cluster.yaml:13: train.batch_size: expected one value, not [64]"]),
        ("batch_size: 64", "cpu: 1", ["cluster.yaml:13: train.cpu: launch chooses it by itself: the device of each"]),
        ("mode: esync", "mode: fast", ["cluster.yaml:13: train.mode: unknown algorithm 'fast'; known: "]),
        ("overwrite: true", "overwrite: 1", ["cluster.yaml:13: train.overwrite: 1 should be true or false"]),
        (
            "batch_size: 64",
            "per_host: true",
            ["cluster.yaml:13: train.per_host: it belongs to the top level of the description, beside train"],
        ),
        ("train:", "per_host: 'on'\ntrain:", ["cluster.yaml:13: per_host: expected true or false"]),
        (
            "train:",
            "spare_hosts: [cloud3, cloud1]\ntrain:",
            ["cluster.yaml:13: spare_hosts: cloud1 has processes of its own; nothing may run on a spare host"],
        ),
        (
            "train:",
            "spare_hosts: [cloud3, cloud3]\ntrain:",
            ["cluster.yaml:13: spare_hosts: cloud3 is there twice; a spare host takes the place of one host only"],
        ),
        ("train:", "servers:", ["cluster.yaml:13: servers: this key occurs twice"]),
        (GOOD, "", ["cluster.yaml: expected a mapping with the keys scheduler, servers,"]),
        ("localhost", 'a, key: "a${HOME}"', ["cluster.yaml:11: hosts.cloud1.key: 'a${HOME}' holds ${"]),
        ("localhost", "a, key: keys/%h", ["cluster.yaml:11: hosts.cloud1.key: 'keys/%h' holds ${ or %, which ssh"]),
        (
            "batch_size: 64",
            f"batch_size: {list(range(5000))}",
            ["cluster.yaml:13: train.batch_size: expected one value,"],
        ),
        ("localhost", f"a, env: {{A: {list(range(5000))}}}", ["cluster.yaml:11: hosts.cloud1.env.A: [0, 1, 2, 3, "]),
        (GOOD, "a: &a [*a]\n", ["cluster.yaml:1: a: unknown key"]),
        (GOOD, "a: 2024-99-99\n", ["cluster.yaml: not valid YAML: "]),
        (
            GOOD,
            GOOD.replace("gpu0", "tpu0").replace("port: 10010", "port: -1"),
            ["cluster.yaml:3: state_server.port: ", "cluster.yaml:5: workers[0].device: "],
        ),
    ],
)
def test_description_with_mistake_names_file_line_and_key(tmp_path, old, new, expected):
    assert GOOD.count(old) == 1
    lines = complaint(tmp_path, GOOD.replace(old, new))
    assert len(lines) == len(expected)
    for line, beginning in zip(lines, expected, strict=True):
        assert line.startswith(beginning)
        assert len(line) < 2000
        line.encode()


def test_yaml_value_of_the_command_line_is_checked_like_a_description():
    assert yaml_text.value("[1e-3, 2]") == [0.001, 2]
    with pytest.raises(DescriptionError, match="this key occurs twice"):
        yaml_text.value("{a: 1, a: 2}")


def test_description_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(DescriptionError, match=r"none\.yaml: No such file or directory"):
        read(tmp_path / "none.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(DescriptionError, match=r"binary\.yaml: not valid YAML"):
        read(tmp_path / "binary.yaml")


def test_locate_finds_hosts_of_this_machine_by_address(tmp_path):
    text = GOOD.replace("localhost", "10.0.0.1")
    hosts = locate(parse(tmp_path, text), is_here=lambda address: address == "10.0.0.1")
    assert {name: (host.address, host.local) for name, host in hosts.items()} == {
        "cloud2": ("cloud2", False),
        "cloud1": ("10.0.0.1", True),
    }


def test_locate_with_ssh_login_makes_a_host_another_machine(tmp_path):
    for key in ("user: me", "port: 22", "key: id", "ssh_options: [-v]"):
        hosts = locate(parse(tmp_path, GOOD.replace("cloud2", "cloud1").replace("localhost", f"localhost, {key}")))
        assert not hosts["cloud1"].local


def test_is_this_machine_knows_local_addresses():
    assert all(map(is_this_machine, ("localhost", "127.0.0.1")))
    assert not any(map(is_this_machine, ("203.0.113.7", "no-such-name.invalid")))
