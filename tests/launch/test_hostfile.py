"""Hostfiles of MPI and Horovod: what is read, and what is refused by name."""

import pytest

from esync.launch.hostfile import HostfileError, read
from esync.starter import main
from tests.support import child

OPEN_MPI = """\
# our cluster
cloud1 slots=2 max_slots=4   # two GPUs

cloud2\tmax-slots=8 slots=1
cloud3
cloud1 slots=1
"""


def parse(tmp_path, text: str) -> dict[str, int]:
    (tmp_path / "hosts").write_text(text)
    return dict(read(tmp_path / "hosts"))


@pytest.mark.parametrize(
    ("text", "slots"),
    [
        (OPEN_MPI, {"cloud1": 3, "cloud2": 1, "cloud3": 1}),
        ("10.1.1.33:4\nnode-2.example.org:1\nlast", {"10.1.1.33": 4, "node-2.example.org": 1, "last": 1}),
        ("b:2\r\na:1\r\n", {"b": 2, "a": 1}),
    ],
    ids=["Open MPI", "MPICH and Horovod", "lines of Windows"],
)
def test_hostfile_gives_the_slots_of_each_host_in_order(tmp_path, text, slots):
    assert list(parse(tmp_path, text).items()) == list(slots.items())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a\nb slot=2", ":2: 'slot=2' is not understood; expected b, b:4, or b slots=4"),
        ("a sockets", ":1: 'sockets' is not understood"),
        ("a slots = 2", ":1: 'slots' is not understood"),
        ("a slots=", ":1: '' is not a number of slots"),
        ("a slots=0", ":1: '0' is not a number of slots from 1 to 1000"),
        ("a:1001", ":1: '1001' is not a number of slots"),
        ("a max_slots=many", ":1: 'many' is not a number of slots"),
        ("a slots=²", ":1: '²' is not a number of slots"),
        ("a:2 slots=2", ":1: the slots of a are there twice"),
        ("a:", ":1: '' is not a number of slots"),
        ("me@a", ":1: 'me@a' is not a host name"),
        ("[::1]:2", ":1: '[' is not a host name"),
        ("slots=2", ":1: 'slots=2' is not a host name"),
        ("# nobody\n\n", ": it names no host"),
    ],
)
def test_hostfile_that_is_not_understood_is_refused_by_name(tmp_path, text, reason):
    with pytest.raises(HostfileError) as caught:
        parse(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path}/hosts{reason}")


def test_init_with_hostfile_writes_a_description_that_launch_takes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts").write_text("cloud1 slots=2\ncloud2 slots=1\n")
    assert main(["one", "--hostfile", "hosts"]) == 0
    assert main(["two", "--hostfile", "hosts", "--device", "gpu"]) == 0
    for name, devices in (("one", ["cpu", "cpu", "cpu"]), ("two", ["gpu0", "gpu1", "gpu0"])):
        done = child.run("-m", "esync", "launch", f"{name}/cluster.yaml", "--dry-run")
        assert done.returncode == 0, done.stderr
        for number, (host, device) in enumerate(zip(["cloud1", "cloud1", "cloud2"], devices, strict=True)):
            _, _, command = done.stdout.partition(f"# worker-{number} on {host} ({host})\n")
            assert f"ESYNC_DEVICE={device} " in command.partition("\n")[0]
        for service in ("scheduler", "server-0", "state-server"):
            assert f"# {service} on cloud1 (cloud1)\n" in done.stdout


def test_init_with_missing_or_wrong_hostfile_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["project", "--hostfile", "hosts"]) == 2
    assert "esync init: error: hosts: No such file or directory" in capsys.readouterr().err
    (tmp_path / "hosts").write_bytes(b"\xff\xfe")
    assert main(["project", "--hostfile", "hosts"]) == 2
    assert "hosts: not a text file" in capsys.readouterr().err
    assert not (tmp_path / "project").exists()
    with pytest.raises(SystemExit, match="2"):
        main(["project", "--hostfile", "hosts", "--workers", "2"])
    assert "not allowed with" in capsys.readouterr().err
