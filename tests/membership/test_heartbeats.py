"""The thread that sends heartbeats for a worker that computes."""

import logging
import threading

import pytest

from esync.membership.heartbeats import Heartbeats

#: Seconds after which a test that hangs fails.
PATIENCE = 60.0


def test_heartbeats_beat_until_they_are_closed() -> None:
    heartbeats, beats = Heartbeats(0.001, limit=PATIENCE), threading.Semaphore(0)
    heartbeats.start(beats.release)
    assert all(beats.acquire(timeout=PATIENCE) for _ in range(3))
    heartbeats.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "heartbeats"]


def test_heartbeats_without_progress_stop_with_one_warning_and_go_on_with_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    heartbeats, beats, warned = Heartbeats(0.001, limit=10.0), threading.Event(), threading.Event()
    now = [0.0]
    monkeypatch.setattr("esync.membership.heartbeats.time.monotonic", lambda: now[0])

    class Warned(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            warned.set()

    handler = Warned()
    logging.getLogger("esync.membership.heartbeats").addHandler(handler)
    try:
        heartbeats.start(beats.set)
        assert beats.wait(PATIENCE)
        now[0] = 11.0
        assert warned.wait(PATIENCE)
        beats.clear()
        heartbeats.progressed()
        assert beats.wait(PATIENCE)
    finally:
        logging.getLogger("esync.membership.heartbeats").removeHandler(handler)
        heartbeats.close()
    assert caplog.text.count("no step for more than 10 s (half of --round-timeout)") == 1
