import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from ..support import child

#: A process that belongs to a cluster with others: argv holds everyone, least, patience, limit.
MEMBER = """
import logging, socket, sys, time
from esync import config
from esync.runtime import watchdog
from esync.membership.connections import connections
from esync.membership.monitor import Arrival, monitor_cluster
from esync.runtime.watchdog import WatchedWait, Watchdog
logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
everyone, least, patience, limit = (float(text) for text in sys.argv[1:])
watchdog.GRACE = 0
server = socket.create_server(("127.0.0.1", 0))
def alone():
    print("alone", flush=True)
    watchdog.exit_now(3)
wait = WatchedWait("1 of 2 workers", limit, "start them")
config.ANNOUNCE_AFTER = 0.3
dog = Watchdog()
def here():
    return {each.remote for each in connections() if each.established}
arrival = Arrival(lambda connected: connected >= everyone, dog, wait)
monitor = monitor_cluster(here, int(least), patience, alone, arrival)
monitor.start()
print("ready")
print(server.getsockname()[1], flush=True)
accepted = [server.accept() for _ in range(int(everyone))]
monitor.join()
"""


@contextmanager
def member(everyone: int, minimum: int, patience: float, limit: float = 60) -> Iterator[tuple]:
    arguments = [str(value) for value in (everyone, minimum, patience, limit)]
    with child.started("-c", MEMBER, *arguments) as process:
        yield process, ("127.0.0.1", int(process.stdout.readline()))


def arrive(stack: ExitStack, address: tuple[str, int]) -> socket.socket:
    """The connection of one process."""
    return stack.enter_context(socket.create_connection(address))


def next_line(process, beginning: str) -> str:
    while not (line := process.stdout.readline()).startswith(beginning):
        assert line, f"the process has ended without saying {beginning!r}"
    return line


def test_monitor_reports_alone_when_all_have_gone():
    with member(everyone=2, minimum=0, patience=0.2) as (process, address), ExitStack() as stack:
        first, second = arrive(stack, address), arrive(stack, address)
        next_line(process, "everyone is here")
        first.close()
        time.sleep(0.8)
        assert process.poll() is None  # one is left
        second.close()
        next_line(process, "alone")
        assert process.wait(20) == 3


def test_monitor_reports_alone_when_only_uncounted_peers_are_left():
    """A server is alone when only the scheduler is left."""
    with member(everyone=2, minimum=1, patience=0.2) as (process, address), ExitStack() as stack:
        arrive(stack, address)
        worker = arrive(stack, address)
        next_line(process, "everyone is here")
        worker.close()
        next_line(process, "alone")
        assert process.wait(20) == 3


def test_monitor_reports_alone_when_all_have_left_before_everyone_was_there():
    with member(everyone=2, minimum=0, patience=0.1) as (process, address):
        next_line(process, "waiting for 1 of 2 workers for")
        assert process.poll() is None  # nobody has been there yet
        with ExitStack() as stack:
            arrive(stack, address)
            time.sleep(0.5)  # for some looks
        next_line(process, "alone")
        assert process.wait(20) == 3


def test_monitor_names_the_missing_and_gives_up():
    with member(everyone=2, minimum=0, patience=0.1, limit=1.5) as (process, address), ExitStack() as stack:
        arrive(stack, address)
        line = next_line(process, "waiting for 1 of 2 workers for")
        assert line.endswith("; start them\n")
        next_line(process, "gave up after")
        assert process.wait(20) == 1
