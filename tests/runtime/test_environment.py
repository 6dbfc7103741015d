import pytest

from esync.runtime.environment import Cluster, EnvironmentProblemError, state_server_address, take_role

GOOD = {
    "DMLC_PS_ROOT_URI": "127.0.0.1",
    "DMLC_PS_ROOT_PORT": "9091",
    "DMLC_NUM_SERVER": "2",
    "DMLC_NUM_WORKER": "6",
}


def test_a_cluster():
    assert Cluster.from_environment(dict(GOOD)) == Cluster("127.0.0.1", 9091, 2, 6, address="127.0.0.1")


def test_spaces_around_values_do_no_harm():
    assert Cluster.from_environment({name: f" {value} " for name, value in GOOD.items()}).workers == 6


@pytest.mark.parametrize("missing", GOOD)
@pytest.mark.parametrize("left", ["nothing", "", "  "])
def test_a_missing_variable_is_named_with_its_meaning(missing, left):
    environment = {**GOOD, missing: left}
    if left == "nothing":
        del environment[missing]
    with pytest.raises(EnvironmentProblemError, match=f"^{missing} is not set: it is the .*for instance"):
        Cluster.from_environment(environment)


@pytest.mark.parametrize("name", ["DMLC_PS_ROOT_PORT", "DMLC_NUM_SERVER", "DMLC_NUM_WORKER"])
@pytest.mark.parametrize("value", ["0", "-1", "1.5", "two", "1e3", "99999999"])
def test_a_wrong_number_is_named(name, value):
    with pytest.raises(EnvironmentProblemError, match=f"^{name} is '{value}', but should be a whole number of 1 to"):
        Cluster.from_environment({**GOOD, name: value})


def test_a_port_ends_at_65535():
    with pytest.raises(EnvironmentProblemError, match="DMLC_PS_ROOT_PORT is '65536'"):
        Cluster.from_environment({**GOOD, "DMLC_PS_ROOT_PORT": "65536"})


def test_a_host_name_becomes_the_address_that_mxnet_needs():
    environment = {**GOOD, "DMLC_PS_ROOT_URI": "localhost"}
    cluster = Cluster.from_environment(environment)
    assert environment["DMLC_PS_ROOT_URI"] == "127.0.0.1"
    assert cluster.host == "localhost"
    assert "localhost:9091" in cluster.everyone


@pytest.mark.parametrize("host", ["no-such-host.invalid", ".leading.dot", "x" * 70 + ".example"])
def test_an_unknown_host_is_named(host):
    with pytest.raises(EnvironmentProblemError, match=f"DMLC_PS_ROOT_URI: cannot resolve the host '{host}'"):
        Cluster.from_environment({**GOOD, "DMLC_PS_ROOT_URI": host})


def test_an_address_that_is_another_machines_is_named():
    own = {**GOOD, "DMLC_NODE_HOST": "127.0.0.1", "DMLC_INTERFACE": "never looked at"}
    assert Cluster.from_environment(own).workers == 6
    with pytest.raises(
        EnvironmentProblemError, match=r"^DMLC_NODE_HOST is '203\.0\.113\.9', which is no address of this"
    ):
        Cluster.from_environment({**GOOD, "DMLC_NODE_HOST": "203.0.113.9"})


def test_a_network_interface_that_is_not_there_is_named():
    assert Cluster.from_environment({**GOOD, "DMLC_INTERFACE": "lo"}).workers == 6
    with pytest.raises(EnvironmentProblemError, match=r"^DMLC_INTERFACE is 'eth99', but this machine's .* are .*lo"):
        Cluster.from_environment({**GOOD, "DMLC_INTERFACE": "eth99"})


def test_whom_a_process_waits_for():
    everyone = Cluster("10.1.1.34", 9091, servers=2, workers=6).everyone
    assert everyone == "the scheduler at 10.1.1.34:9091, 2 server(s) and 6 worker(s) in all"


def test_a_role_is_taken_where_none_is_given():
    environment: dict[str, str] = {}
    take_role("worker", environment)
    assert environment == {"DMLC_ROLE": "worker"}


def test_the_right_role_is_fine():
    environment = {"DMLC_ROLE": "server"}
    take_role("server", environment)
    assert environment == {"DMLC_ROLE": "server"}


def test_another_role_is_refused():
    with pytest.raises(EnvironmentProblemError, match="DMLC_ROLE is 'server', but this is the program of the worker"):
        take_role("worker", {"DMLC_ROLE": "server"})


def test_it_is_a_value_error():
    assert issubclass(EnvironmentProblemError, ValueError)


def test_resending_which_the_scheduler_does_not_know_is_refused():
    assert Cluster.from_environment({**GOOD, "PS_RESEND": "0"}).workers == 6
    with pytest.raises(EnvironmentProblemError, match="PS_RESEND is set"):
        Cluster.from_environment({**GOOD, "PS_RESEND": "1"})


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("cloud2:10010", ("cloud2", 10010)),
        ("http://10.1.1.34:10010", ("10.1.1.34", 10010)),
        ("[::1]:10010", ("::1", 10010)),
    ],
)
def test_the_state_servers_address(text, address):
    assert state_server_address(text) == address
    assert state_server_address(environment={"ESYNC_STATE_SERVER": text}) == address


@pytest.mark.parametrize("text", ["", "cloud2", "cloud2:", ":10010", "cloud2:0", "cloud2:65536", "cloud2:port"])
def test_what_is_no_address_is_told_with_what_to_do(text):
    with pytest.raises(EnvironmentProblemError, match=r"should be host:port; give it .* ESYNC_STATE_SERVER"):
        state_server_address(environment={"ESYNC_STATE_SERVER": text})
