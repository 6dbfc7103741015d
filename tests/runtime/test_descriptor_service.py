"""Processes that find a shared file by a name, where others use that name, too."""

import os
import resource
import secrets
import socket
import time
from collections.abc import Iterator

import pytest

from esync.runtime.descriptor_service import DescriptorService, OtherTermsError

pytestmark = pytest.mark.timeout(60)
TERMS = b"the same"


@pytest.fixture
def service() -> Iterator[DescriptorService]:
    """One that serves."""
    server = DescriptorService(f"test-{secrets.token_hex(8)}", TERMS)
    descriptor = server.get_or_make(lambda: os.memfd_create("test"))
    yield server
    server.close()
    os.close(descriptor)


def connect(service: DescriptorService) -> socket.socket:
    stranger = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    stranger.settimeout(20)
    stranger.connect(f"\0{service.name}")
    return stranger


def check_serves(service: DescriptorService, terms: bytes = TERMS) -> None:
    """Another one gets the same file."""
    other = DescriptorService(service.name, terms)
    try:
        descriptor = other.get_or_make(lambda: pytest.fail("the name was free"))
        assert os.path.sameopenfile(descriptor, service.descriptor)
        os.close(descriptor)
    finally:
        other.close()


@pytest.mark.parametrize("message", [b"", b"w", b"s", b"\xff" * 200, b"w" * 100_000])
def test_descriptor_service_with_garbage_or_silence_serves_on(service, message):
    with connect(service) as stranger:
        if message:
            stranger.send(message)
            assert stranger.recv(10) == b"n"
        check_serves(service)


def test_descriptor_service_with_other_terms_refuses(service):
    with pytest.raises(OtherTermsError, match="was made on other terms"):
        check_serves(service, b"others")


def test_descriptor_service_without_free_descriptors_pauses_and_serves_later(service, monkeypatch):
    check_serves(service)  # its thread has what it needs
    limit = time.monotonic() + 20
    while service._clients:
        assert time.monotonic() < limit
        time.sleep(0.01)
    accept, tries = service._accept, []
    monkeypatch.setattr(service, "_accept", lambda selector: (tries.append(1), accept(selector)))
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as waiting:
        resource.setrlimit(resource.RLIMIT_NOFILE, (waiting.fileno(), before[1]))
        try:
            waiting.connect(f"\0{service.name}")
            time.sleep(1.0)
            refused = len(tries)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        waiting.settimeout(20)
        waiting.send(b"w" + TERMS)
        assert waiting.recv(10) == b"y"
    assert 0 < refused < 10  # without a pause thousands
