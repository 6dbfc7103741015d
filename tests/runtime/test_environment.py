import socket

import pytest

from esync.coordination.http_client import HTTPClient
from esync.runtime.environment import (
    Cluster,
    EnvironmentProblemError,
    state_server_address,
    take_role,
    without_part_in_job,
)
from esync.runtime.errors import ExpectedError

GOOD = {
    "DMLC_PS_ROOT_URI": "127.0.0.1",
    "DMLC_PS_ROOT_PORT": "9091",
    "DMLC_NUM_SERVER": "2",
    "DMLC_NUM_WORKER": "6",
}


def test_cluster_is_read_from_environment_variables():
    assert Cluster.from_environment(dict(GOOD)) == Cluster("127.0.0.1", 9091, 2, 6, address="127.0.0.1")


@pytest.mark.parametrize(
    "usable",
    [
        {"DMLC_NODE_HOST": "127.0.0.1", "DMLC_INTERFACE": "never looked at"},
        {"DMLC_INTERFACE": "lo"},
        {"PS_RESEND": "0"},
    ],
)
def test_cluster_with_usable_variables_is_read(usable):
    assert Cluster.from_environment({**GOOD, **usable}).workers == 6


def test_cluster_ignores_spaces_around_values():
    assert Cluster.from_environment({name: f" {value} " for name, value in GOOD.items()}).workers == 6


@pytest.mark.parametrize("missing", GOOD)
@pytest.mark.parametrize("value", ["nothing", "", "  "])
def test_cluster_with_missing_variable_names_it_and_its_meaning(missing, value):
    environment = {**GOOD, missing: value}
    if value == "nothing":
        del environment[missing]
    with pytest.raises(EnvironmentProblemError, match=f"^{missing} is not set: it is the .*for instance"):
        Cluster.from_environment(environment)


@pytest.mark.parametrize("name", ["DMLC_PS_ROOT_PORT", "DMLC_NUM_SERVER", "DMLC_NUM_WORKER"])
@pytest.mark.parametrize("value", ["0", "-1", "1.5", "two", "1e3", "99999999", "9" * 5000])
def test_cluster_with_invalid_number_names_the_variable(name, value):
    with pytest.raises(EnvironmentProblemError, match=f"^{name} is '{value}', but should be a whole number of 1 to"):
        Cluster.from_environment({**GOOD, name: value})


def test_cluster_with_host_name_resolves_it_for_mxnet():
    environment = {**GOOD, "DMLC_PS_ROOT_URI": "localhost"}
    cluster = Cluster.from_environment(environment)
    assert environment["DMLC_PS_ROOT_URI"] == "127.0.0.1"
    assert cluster.host == "localhost"
    assert cluster.scheduler == "the scheduler at localhost:9091"


def test_cluster_with_name_for_this_machine_resolves_it_for_mxnet():
    environment = {**GOOD, "DMLC_NODE_HOST": "localhost", "DMLC_RANK": "3"}
    Cluster.from_environment(environment)
    assert environment["DMLC_NODE_HOST"] == "127.0.0.1"
    assert "DMLC_RANK" not in environment  # or ps-lite would not take the rank that it is given


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"DMLC_PS_ROOT_URI": "::1"}, "DMLC_PS_ROOT_URI: '::1' is an IPv6 address or has no other one"),
        ({"DMLC_PS_ROOT_URI": "[::1]"}, "is an IPv6 address or has no other one; MXNet needs one of IPv4"),
        ({"DMLC_PS_ROOT_URI": "127.0.0.1:9091"}, "give a name or an address, and nothing else"),
        *(
            ({"DMLC_PS_ROOT_URI": host}, f"DMLC_PS_ROOT_URI: cannot resolve the host '{host}'")
            for host in ("no-such-host.invalid", ".leading.dot", "x" * 70 + ".example")
        ),
        ({"DMLC_PS_ROOT_PORT": "65536"}, "DMLC_PS_ROOT_PORT is '65536'"),
        ({"DMLC_NODE_HOST": "203.0.113.9"}, "DMLC_NODE_HOST is '203.0.113.9', which is not an address of this"),
        ({"DMLC_INTERFACE": "eth99"}, "DMLC_INTERFACE is 'eth99', but this machine's"),
        ({"DMLC_NODE_HOST": "::1"}, "DMLC_NODE_HOST: '::1' is an IPv6 address"),
        ({"DMLC_NODE_HOST": "no-such-host.invalid"}, "DMLC_NODE_HOST: cannot resolve the host"),
        ({"DMLC_NODE_HOST": "0.0.0.0"}, "DMLC_NODE_HOST is '0.0.0.0', which is not an address"),
        (
            {"DMLC_NODE_HOST": "localhost", "DMLC_PS_ROOT_URI": "203.0.113.9"},
            "at which the scheduler at 203.0.113.9 can",
        ),
        ({"PORT": "tcp://10.0.0.7:80"}, "PORT is 'tcp://10.0.0.7:80', but should be a whole number"),
        ({"PS_RESEND": "1"}, "PS_RESEND is set"),
        ({"PS_DROP_MSG": "10"}, "PS_DROP_MSG is set"),
        ({"DMLC_LOCAL": "1"}, "DMLC_LOCAL is set"),
        ({"DMLC_PS_VAN_TYPE": "p3"}, "DMLC_PS_VAN_TYPE is set"),
    ],
)
def test_cluster_with_variable_that_mxnet_would_misunderstand_is_refused(changes, sentence):
    with pytest.raises(EnvironmentProblemError) as refused:
        Cluster.from_environment({**GOOD, **changes})
    assert sentence in str(refused.value)


def test_cluster_with_port_in_use_is_refused_but_not_for_the_scheduler():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        environment = {**GOOD, "PORT": str(taken.getsockname()[1])}
        with pytest.raises(EnvironmentProblemError, match=r"^PORT is \d+, .* cannot \(Address already in use\); unset"):
            Cluster.from_environment(environment)
        assert Cluster.from_environment({**environment, "DMLC_ROLE": "scheduler"}).workers == 6


def test_variables_without_part_in_job_keep_what_holds_for_the_whole_job():
    variables = dict.fromkeys(
        ["ESYNC_TOKEN", "ESYNC_STATE_SERVER_CA", "PS_VERBOSE", "MXNET_ENGINE_TYPE", "PORTAL"], "1"
    )
    part = [
        "PORT",
        "DMLC_RANK",
        "PS_RESEND_TIMEOUT",
        "PMI_FD",
        "OMPI_COMM_WORLD_RANK",
        "ESYNC_SLOT",
        "ESYNC_COLLECTIVE",
    ]
    assert without_part_in_job(variables | dict.fromkeys(part, "1")) == variables


def test_take_role_sets_a_missing_role_and_refuses_another_one():
    environment: dict[str, str] = {}
    for _ in range(2):
        take_role("worker", environment)
        assert environment == {"DMLC_ROLE": "worker"}
    with pytest.raises(EnvironmentProblemError, match="DMLC_ROLE is 'server', but this is the program of the worker"):
        take_role("worker", {"DMLC_ROLE": "server"})


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("cloud2:10010", ("cloud2", 10010)),
        ("http://10.1.1.34:10010", ("10.1.1.34", 10010)),
        ("[::1]:10010", ("::1", 10010)),
    ],
)
def test_state_server_address_is_read_from_text_or_environment(text, address):
    assert state_server_address(text) == address
    assert state_server_address(environment={"ESYNC_STATE_SERVER": text}) == address


@pytest.mark.parametrize(
    "text",
    ["", "cloud2", "cloud2:", ":10010", "cloud2:0", "cloud2:65536", "cloud2:port", "https://h:1", "a b:1", "h:²"],
)
def test_state_server_address_that_is_invalid_says_what_to_do(text):
    with pytest.raises(EnvironmentProblemError, match=r"should be host:port; give it .* ESYNC_STATE_SERVER"):
        state_server_address(environment={"ESYNC_STATE_SERVER": text})


@pytest.mark.parametrize("token", ["two\nlines", "€", "with blank"])
def test_token_that_no_header_can_carry_is_refused(monkeypatch, token):
    monkeypatch.setenv("ESYNC_TOKEN", token)
    with pytest.raises(ExpectedError, match="ESYNC_TOKEN should have printable ASCII characters"):
        HTTPClient("127.0.0.1", 1, 1.0)
