import threading
import time

import pytest

from esync.membership import names
from esync.membership.names import Lookup, is_address, resolve


def test_resolve_and_is_address_know_addresses_as_the_kernel_writes_them():
    assert resolve("localhost") == ["127.0.0.1"]
    assert resolve("127.0.0.1") == ["127.0.0.1"]
    for nobody in ("a\0b", "x" * 300):
        assert resolve(nobody) == []
    assert is_address("10.1.1.34")
    for name in ("127.1", "010.1.1.34", "cloud1", "::1", "a\0", ""):
        assert not is_address(name)


def test_lookup_of_an_address_resolves_nothing(monkeypatch):
    monkeypatch.setattr(names, "resolve", lambda host: pytest.fail("looked up"))
    assert Lookup("10.1.1.34").addresses() == ["10.1.1.34"]


def test_lookup_retries_until_the_name_is_found(monkeypatch):
    answers = [[], [], ["10.1.1.34"]]
    monkeypatch.setattr(names, "resolve", lambda host: answers.pop(0))
    monkeypatch.setattr(names, "RESOLVE_EVERY", 0.0)
    lookup = Lookup("cloud2")
    while not lookup.addresses():
        time.sleep(0.001)
    assert (lookup.addresses(), lookup.failures, answers) == (["10.1.1.34"], 2, [])


def test_lookup_does_not_block_on_a_name_server(monkeypatch):
    answered = threading.Event()

    def slowly(host: str) -> list[str]:
        answered.wait(60)
        return ["10.1.1.34"]

    monkeypatch.setattr(names, "resolve", slowly)
    lookup = Lookup("cloud2")
    assert lookup.addresses() == []
    assert lookup.addresses() == []
    answered.set()
    while not lookup.addresses():
        time.sleep(0.001)
