"""The thread that sends heartbeats for a busy worker."""

import logging
import threading

import pytest

from esync.membership.heartbeats import Heartbeats

#: Seconds after which a test that hangs fails.
PATIENCE = 60.0


def beaten(heartbeats: Heartbeats) -> list[None]:
    """The calls of an activity that lasts for three of them; the thread has ended by then."""
    calls: list[None] = []
    enough = threading.Event()

    def beat() -> None:
        calls.append(None)
        if len(calls) == 3:
            enough.set()

    with heartbeats.during("writing", beat):
        assert enough.wait(PATIENCE)
    return calls


def test_heartbeats_beat_during_activities_and_stop_at_close():
    heartbeats = Heartbeats(0.001, limit=PATIENCE)
    first, second = beaten(heartbeats), beaten(heartbeats)
    heartbeats.close()
    assert len(first) >= 3
    assert len(second) >= 3
    assert not [thread for thread in threading.enumerate() if thread.name == "heartbeats"]


def test_heartbeats_resume_for_the_outer_activity_after_the_inner():
    heartbeats, outer = Heartbeats(0.001, limit=PATIENCE), threading.Event()
    with heartbeats.during("writing", outer.set):
        beaten(heartbeats)
        outer.clear()
        assert outer.wait(PATIENCE)
    heartbeats.close()


def test_heartbeats_stop_after_the_limit_and_name_the_activity(caplog: pytest.LogCaptureFixture):
    heartbeats, said, beats = Heartbeats(0.001, limit=0.0), threading.Event(), list[None]()

    class Said(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.set()

    handler = Said()
    logging.getLogger("esync.membership.heartbeats").addHandler(handler)
    try:
        with heartbeats.during("writing the checkpoint of round 6", lambda: beats.append(None)):
            assert said.wait(PATIENCE)
    finally:
        logging.getLogger("esync.membership.heartbeats").removeHandler(handler)
        heartbeats.close()
    assert not beats
    expected = "writing the checkpoint of round 6 has taken more than 0 s: the others are no longer told"
    assert caplog.text.count(expected) == 1
