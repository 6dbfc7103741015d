import pytest

from esync.coordination.client import StateServerClient
from esync.coordination.delayed import DelayedClient
from esync.exchange import Specification
from esync.runtime.environment import EnvironmentProblemError
from esync.runtime.errors import ExpectedError
from esync.world import RealWorld


@pytest.fixture
def world(monkeypatch) -> RealWorld:
    monkeypatch.delenv("ESYNC_STATE_SERVER", raising=False)
    monkeypatch.delenv("DMLC_PS_ROOT_URI", raising=False)
    monkeypatch.setenv("DMLC_ROLE", "worker")
    return RealWorld(step_time=0.5)


def address_of(client: StateServerClient) -> str:
    client.close()
    return client.address


def test_coordination_uses_the_state_server_given_to_the_algorithm(world):
    client = world.coordination("10.1.1.34:10010", rank=3)
    assert (client.rank, address_of(client)) == (3, "http://10.1.1.34:10010")


def test_coordination_without_address_uses_the_environment(world, monkeypatch):
    monkeypatch.setenv("ESYNC_STATE_SERVER", "cloud2:10011")
    assert address_of(world.coordination(None, 0)) == "http://cloud2:10011"
    assert address_of(world.coordination("other:1", 0)) == "http://other:1"


@pytest.mark.parametrize("address", [None, "", "host", "host:", ":10010", "host:http", "host:0", "host:65536"])
def test_coordination_with_invalid_address_names_every_way_to_give_one(world, address):
    with pytest.raises(EnvironmentProblemError) as error:
        world.coordination(address, 0)
    assert repr(address or "") in str(error.value)
    for way in ("host:port", "--state-server-ip", "ESYNC_STATE_SERVER", "--local-iterations"):
        assert way in str(error.value)


def test_world_recorder_uses_the_clock_of_the_device(world):
    assert world.device.step_time == 0.5
    assert world.recorder.take() == {"time": {"0": {}}, "num_samples": 0}


def test_exchange_without_cluster_variables_is_refused(world):
    with pytest.raises(EnvironmentProblemError, match="DMLC_PS_ROOT_URI is not set"):
        world.exchange(Specification("sgd", synchronous=True))


@pytest.mark.parametrize(
    ("specification", "collective", "message"),
    [
        (Specification("sgd", synchronous=True, private=True), "ps", r"\(mode dcasgd\): .* remove per_host from"),
        (Specification("sgd", synchronous=True), "mpi", "with the collective mpi .* leave per_host out"),
    ],
)
def test_exchange_per_host_without_rounds_over_servers_is_refused(specification, collective, message):
    with pytest.raises(ExpectedError, match=message):
        RealWorld(collective=collective, per_host=2).exchange(specification)


def test_exchange_in_another_role_is_refused(world, monkeypatch):
    monkeypatch.setenv("DMLC_ROLE", "server")
    with pytest.raises(EnvironmentProblemError, match="DMLC_ROLE is 'server'"):
        world.exchange(Specification("sgd", synchronous=True))


def test_coordination_with_delayed_answers_returns_a_delayed_client(world):
    client = world.coordination("10.1.1.34:10010", rank=3, job="mine", delayed=True)
    assert type(client) is DelayedClient
    client.close()
