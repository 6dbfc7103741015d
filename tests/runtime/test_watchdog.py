import logging
import re
import signal
import threading
import time

import pytest

from esync import config
from esync.runtime.watchdog import WaitTimeoutError, Watchdog, WatchedWait

from ..support import child

#: A program that logs to standard error, and whose watchdog does not wait long for a main thread
#: that is stuck.
BEGIN = f"""
import logging, os, sys, time
from esync.runtime import watchdog
from esync.runtime.watchdog import Watchdog, WatchedWait
logging.basicConfig(level=logging.INFO, format="%(message)s")
watchdog.GRACE = 0.1
{child.REST}
{child.STUCK}
"""


def wait_for(caplog: pytest.LogCaptureFixture, messages: int) -> None:
    """Wait until so many messages have been logged."""
    deadline = time.monotonic() + 20
    while len(caplog.messages) < messages and time.monotonic() < deadline:
        time.sleep(0.02)


# --- announcements --------------------------------------------------------------------------------


def test_watchdog_announces_a_long_wait_repeatedly(caplog, monkeypatch):
    monkeypatch.setattr(config, "ANNOUNCE_AFTER", 0.2)
    dog = Watchdog()
    with caplog.at_level(logging.WARNING), dog.waiting("the commit of worker 3", 60, "is it running?"):
        wait_for(caplog, 2)
    assert len(caplog.messages) >= 2
    for message in caplog.messages:
        assert message.startswith("waiting for the commit of worker 3 for ")
    assert caplog.messages[0].endswith(" s (until 60 s); is it running?")
    assert caplog.messages[1].endswith(" s (until 60 s)")  # advice is given once


def test_watchdog_does_not_announce_a_short_wait(caplog, monkeypatch):
    monkeypatch.setattr(config, "ANNOUNCE_AFTER", 0.2)
    dog = Watchdog()
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            with dog.waiting("anything", 60):
                time.sleep(0.01)
        time.sleep(0.6)  # what is over is not announced later
    assert caplog.messages == []


def test_watchdog_announces_a_description_that_changed_during_the_wait(caplog, monkeypatch):
    monkeypatch.setattr(config, "ANNOUNCE_AFTER", 0.2)
    dog = Watchdog()
    with caplog.at_level(logging.WARNING), dog.waiting("the other workers", 60) as wait:
        wait.what = "worker 2"
        wait_for(caplog, 1)
    assert caplog.messages[0].startswith("waiting for worker 2 for")


def test_watchdog_announces_every_one_of_several_waits(caplog, monkeypatch):
    monkeypatch.setattr(config, "ANNOUNCE_AFTER", 0.2)
    dog = Watchdog()
    first, second = dog.begin(WatchedWait("the servers", 60)), dog.begin(WatchedWait("the workers", 60))
    with caplog.at_level(logging.WARNING):
        wait_for(caplog, 2)
    for wait in (first, second, second):  # saying twice that it is over is no error
        dog.over(wait)
    spoken = " ".join(caplog.messages)
    assert "the servers" in spoken
    assert "the workers" in spoken


# --- limits ---------------------------------------------------------------------------------------


def test_watched_wait_is_due_at_intervals():
    wait = WatchedWait("somebody", 60)
    assert not wait.due(10)
    wait.since -= 11
    assert [wait.due(10), wait.due(10)] == [True, False]
    wait.since -= 10
    assert [wait.due(10), wait.due(10)] == [True, False]


def test_watched_wait_that_polls_raises_at_its_limit():
    with Watchdog().waiting("worker 3", limit=0.05, hint="look at its log") as wait:
        wait.check()
        time.sleep(0.1)
        with pytest.raises(WaitTimeoutError, match=r"gave up after 0 s of waiting for worker 3; look at its log"):
            wait.check()


def test_watched_wait_ends_with_its_block_even_if_it_raises():
    dog = Watchdog()

    def fail() -> None:
        with dog.waiting("anything", 0.01):
            raise OSError("broken")

    with pytest.raises(OSError, match="broken"):
        fail()
    time.sleep(0.6)  # were it still watched, this process would be ended (by a limit long over)
    assert "watchdog" in {thread.name for thread in threading.enumerate()}


def test_watchdog_ends_a_wait_in_c_at_its_limit_with_exit_code_1():
    program = BEGIN + (
        "print('written before the end')\n"
        "with Watchdog().waiting('the scheduler at 10.1.1.34:9091', 0.2, 'check the firewall'):\n"
        "    stuck()\n"
    )
    result = child.run("-c", program)
    assert result.returncode == 1
    assert result.stdout == "written before the end\n"
    assert re.search(
        r"gave up after \d s of waiting for the scheduler at 10.1.1.34:9091; check the firewall", result.stderr
    )


def test_watchdog_limit_holds_when_nobody_reads_the_output():
    program = BEGIN + (
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        "sys.stdout.write('lost')\n"
        "with Watchdog().waiting('anything', 0.1):\n"
        "    stuck()\n"
    )
    with child.started("-c", program) as process:
        process.stdout.close()
        process.stderr.close()
        process.stdin.close()
        assert process.wait(20) == 1


# --- signals --------------------------------------------------------------------------------------


def test_watchdog_second_signal_does_not_interrupt_the_cleanup():
    program = BEGIN + (
        "Watchdog().handle_signals(grace=30)\n"
        "try:\n"
        "    print('ready', flush=True)\n"
        "    rest()\n"
        "finally:\n"
        "    print('tidying', flush=True)\n"
        "    time.sleep(0.5)\n"
        "    print('tidy', flush=True)\n"
    )
    with child.started("-c", program) as process:
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "tidying\n"
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=20)
        assert output == "tidy\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("grace", [0, 0.5])
def test_watchdog_signal_ends_a_process_that_waits_in_c(number, grace):
    program = BEGIN + (
        f"dog = Watchdog()\ndog.handle_signals({grace})\n"
        "with dog.waiting('the parameter server', 600):\n"
        "    print('ready', flush=True)\n"
        "    stuck()\n"
    )
    with child.started("-c", program) as process:
        time.sleep(0.2)  # into the C code
        process.send_signal(number)
        _, errors = process.communicate(timeout=20)
        assert process.returncode == 1
        assert "ended by a signal while waiting for the parameter server" in errors


def test_watchdog_ends_a_cleanup_that_hangs():
    program = BEGIN + (
        "Watchdog().handle_signals(grace=0.5)\n"
        "try:\n"
        "    print('ready', flush=True)\n"
        "    rest()\n"
        "finally:\n"
        "    stuck()\n"
    )
    with child.started("-c", program) as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 1


def test_watchdog_handles_signals_installed_after_the_first_wait():
    program = BEGIN + (
        "dog = Watchdog()\n"
        "with dog.waiting('anything', 60):\n"
        "    pass\n"
        "dog.handle_signals(0)\n"
        "print('ready', flush=True)\n"
        "stuck()\n"
    )
    with child.started("-c", program) as process:
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 1
