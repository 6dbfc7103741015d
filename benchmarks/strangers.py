"""Can strangers end a job?

    python benchmarks/strangers.py [--messages N] [--connections N] [--json FILE]

A scheduler, a parameter server and two workers train together, a round every few milliseconds,
while strangers attack one target after the other:

scheduler          messages framed as ZeroMQ's, of the kinds that ps-lite has, and partly right:
                   registrations of processes that do not or cannot exist, barriers, heartbeats,
                   ends, answers, under names that are taken, with wrong lengths, numbers and bits;
                   a tenth of them before anybody has registered
scheduler's port   connections that speak something else, stop halfway, say nothing, or are slow
server's port      the same
worker's port      the same

What counts: nobody ends; every round that has begun ends, and the weights at the end are, bit for
bit, those of so many rounds; the memory of the scheduler stays. `--framed` shows instead what
MXNet's own parser, in servers and workers, does not survive (docs/concepts/assumptions.md says what to do
about it): one cluster for each kind of message.

To add a target, write a function that takes the addresses, an amount and a source of chance, sends
so many messages or connections and returns their number, and list it in ATTACKS.
"""

import contextlib
import json
import os
import random
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import zmq
from harness import program
from harness.clusters import Cluster
from harness.figures import write_figures

from esync.membership.rendezvous import directory, messages
from esync.membership.rendezvous.messages import Message, Node
from esync.runtime.files import write_atomically

WORKERS = 2
LEARNING_RATE = 2.0**-20  # a power of two, so that the weights after any number of rounds are known exactly
GROWTH_MOST = 32e6  # bytes by which the scheduler's memory may grow from a tenth of the messages to all of them
READY = 60.0  # seconds for anything to happen
BEFORE = 0.1  # share of the scheduler's messages that come before anybody has registered

Address = tuple[str, int]
Addresses = dict[str, Address]


# --- the worker: this file, started with --be-worker ----------------------------------------------


def work(folder: Path) -> None:
    """Train until there is a file called stop; then print the rounds and a weight."""
    import esync
    from esync.runtime.mxnet_import import mx

    net = mx.gluon.nn.Dense(1, in_units=2, use_bias=False)
    net.initialize(mx.init.Zero())
    trainer = esync.Trainer(net.collect_params(), "sgd", {"learning_rate": LEARNING_RATE}, algorithm="sync")
    data = mx.nd.ones((1, 2))
    mine = folder / f"rounds-{os.getpid()}"
    while not trainer.finished:
        with mx.autograd.record():
            loss = net(data)
        loss.backward()
        trainer.step(1)
        write_atomically(mine, str(trainer.round).encode())
        if (folder / "stop").exists():
            trainer.stop()
    weights = net.weight.data().asnumpy().reshape(-1).tolist()
    print(json.dumps({"rounds": trainer.round, "weights": weights}), flush=True)
    trainer.close()


# --- the cluster ----------------------------------------------------------------------------------


class Victims(Cluster):
    """The cluster that is attacked; it begins with the scheduler alone."""

    def __init__(self, folder: Path) -> None:
        super().__init__(WORKERS)
        self._rounds = folder

    def __enter__(self) -> "Victims":
        with contextlib.ExitStack() as stack:
            stack.push(self.__exit__)
            self.start_scheduler()
            self._until(lambda: _listens(self.scheduler), "the scheduler does not listen")
            stack.pop_all()
        return self

    def begin(self) -> Addresses:
        """Start all other processes, and wait until they train; return their addresses."""
        self.start_servers()
        for _ in range(WORKERS):
            self.start_worker(__file__, "--be-worker", str(self._rounds))
        self._until(lambda: len(self.rounds()) == WORKERS and min(self.rounds()) >= 3, "the workers do not train")
        members = directory.members(self.scheduler, lambda: None)
        addresses = {"scheduler": self.scheduler}
        for node in members.values():
            if node.role != messages.SCHEDULER:
                addresses["server" if node.role == messages.SERVER else "worker"] = node.address
        return addresses

    def rounds(self) -> list[int]:
        """Return how many rounds each worker has completed."""
        return [int(path.read_text()) for path in self._rounds.glob("rounds-*[0-9]")]

    def ended(self) -> list[str]:
        """Return which processes have ended, with their exit codes."""
        return [
            f"{name} (exit code {process.returncode})"
            for name, process in self.processes.items()
            if process.poll() is not None
        ]

    def memory(self, name: str) -> int:
        """Return the bytes of memory that a process uses."""
        pages = int(Path(f"/proc/{self.processes[name].pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def finish(self) -> int:
        """End the job; return the number of rounds that were lost or counted twice."""
        done = max(self.rounds())
        self._until(lambda: min(self.rounds()) > done or self.ended(), "the rounds do not go on")
        (self._rounds / "stop").touch()
        self._until(lambda: len(self.ended()) == len(self.processes), "not everybody ends")
        if failed := [name for name, process in self.processes.items() if process.returncode]:
            raise RuntimeError(f"{', '.join(failed)} failed:\n{self.log(failed[0])[-3000:]}")
        return sum(abs(end["rounds"] - round(-end["weights"][0] / LEARNING_RATE)) for end in self.results())

    def _until(self, condition: Callable[[], object], complaint: str) -> None:
        end = time.monotonic() + READY
        while not condition():
            if time.monotonic() > end:
                logs = "\n".join(f"--- {name}\n{self.log(name)[-1000:]}" for name in self.processes)
                raise RuntimeError(f"{complaint} after {READY:.0f} s\n{logs}")
            time.sleep(0.02)


def _listens(address: Address) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(address, 5):
        return True
    return False


# --- framed messages for the scheduler ------------------------------------------------------------

NUMBERS = (0, 1, 2, 5, 7, 127, 128, 9091, 65535, 65536, 2**31 - 1, 2**31, 2**32, 2**63, 2**64 - 1)
HOSTS = ("127.0.0.1", "0.0.0.0", "255.255.255.255", "224.0.0.1", "no-such-host.invalid", "a\0b", "", " ", "*", "::1")
COMMANDS = (0, 1, 2, 2, 2, 2, 3, 3, 4, 5, 6, messages.WHO, 2**31)


def framed(addresses: Addresses, amount: int, chance: random.Random, names: bool = True) -> int:
    """Send the scheduler messages of ps-lite that are partly right.

    `names` says whether some of them carry the names of its processes.
    """
    sent = 0
    ports = [port for _, port in addresses.values()] + [9, 80]
    while sent < amount:
        with zmq.Context() as context, context.socket(zmq.DEALER) as outbox:
            outbox.setsockopt(zmq.LINGER, 5000)
            if names and chance.random() < 0.5:
                outbox.setsockopt(zmq.IDENTITY, f"ps{chance.choice((1, 8, 9, 10, 11, 13, 99, 2**31))}".encode())
            outbox.connect(f"tcp://{addresses['scheduler'][0]}:{addresses['scheduler'][1]}")
            for _ in range(min(amount - sent, chance.randint(1, 100))):
                outbox.send_multipart([_mutated(_content(chance, ports), chance) for _ in range(_frames(chance))])
                sent += 1
    return sent


def _frames(chance: random.Random) -> int:
    return 1 if chance.random() < 0.9 else chance.choice((2, 3, 20))


def _content(chance: random.Random, ports: list[int]) -> bytes:
    """Return a message, encoded."""
    nodes = tuple(_node(chance, ports) for _ in range(chance.choice((0, 1, 1, 1, 2, 50))))
    message = Message(
        chance.choice(COMMANDS),
        nodes,
        group=chance.choice(NUMBERS),
        request=chance.random() < 0.7,
        app=chance.choice(NUMBERS),
        customer=chance.choice(NUMBERS),
    )
    return message.encode(chance.choice(NUMBERS))


def _node(chance: random.Random, ports: list[int]) -> Node:
    return Node(
        role=chance.choice((0, 1, 1, 2, 3, 5, 2**31)),
        host=chance.choice(HOSTS)
        if chance.random() < 0.5
        else f"127.{chance.randrange(256)}.0.{chance.randrange(256)}",
        port=chance.choice(ports) if chance.random() < 0.3 else chance.choice((*NUMBERS, chance.randrange(1, 65536))),
        id=chance.choice((2**31 - 1, 1, 8, 9, 11, *NUMBERS)),
        recovery=chance.random() < 0.2,
        customer=chance.choice((0, *NUMBERS)),
    )


def _mutated(content: bytes, chance: random.Random) -> bytes:
    """Return the content unchanged in two of five cases, else with a mistake in it."""
    how = chance.random()
    if how < 0.4 or not content:
        return content
    if how < 0.7:
        changed = bytearray(content)
        for _ in range(chance.randint(1, 4)):
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
        return bytes(changed)
    if how < 0.85:
        return content[: chance.randrange(len(content))]
    if how < 0.97:
        return chance.randbytes(chance.randrange(300))
    return content * chance.choice((10, 100, 1000))


# --- connections that speak something else --------------------------------------------------------

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)  # of ZMTP 3.0
#: What a stranger says at once.
WORDS: dict[str, Callable[[random.Random], bytes]] = {
    "nothing": lambda chance: b"",
    "a byte": lambda chance: chance.randbytes(1),
    "noise": lambda chance: chance.randbytes(chance.randint(2, 5000)),
    "zeros": lambda chance: bytes(1000),
    "HTTP": lambda chance: b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": lambda chance: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + chance.randbytes(500),
    "SSH": lambda chance: b"SSH-2.0-OpenSSH_9.2\r\n",
    "half a greeting": lambda chance: GREETING[: chance.randrange(1, len(GREETING))],
    "a greeting and noise": lambda chance: GREETING + chance.randbytes(200),
    "a greeting and a huge frame": lambda chance: GREETING + b"\x06" + struct.pack("!Q", 2**62) + b"x" * 100,
    "ZMTP 2 and noise": lambda chance: b"\xff" + bytes(8) + b"\x7f\x01\x05" + chance.randbytes(3),
}
#: How it goes on.
ENDINGS = ("close", "reset", "half", "stay", "trickle")
STAYING = 200  # connections that stay open at the same time


def unframed(target: str) -> Callable[[Addresses, int, random.Random], int]:
    """Return an attack on a target's port by connections that speak little or no ZeroMQ."""

    def attack(addresses: Addresses, amount: int, chance: random.Random) -> int:
        staying: list[tuple[socket.socket, str]] = []
        for number in range(amount):
            word, ending = chance.choice(list(WORDS)), ENDINGS[number % len(ENDINGS)]
            one = socket.create_connection(addresses[target], READY)
            with contextlib.suppress(OSError):  # the other side may have ended it
                one.sendall(WORDS[word](chance))
                if ending == "half":
                    one.shutdown(socket.SHUT_WR)
                if ending == "reset":
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if ending in ("close", "reset"):
                one.close()
            else:
                staying.append((one, ending))
            while len(staying) > STAYING:
                staying.pop(0)[0].close()
            for each, ending in staying[-5:]:
                with contextlib.suppress(OSError):
                    if ending == "trickle":
                        each.sendall(chance.randbytes(1))
        time.sleep(1.0)
        for each, _ in staying:
            each.close()
        return amount

    return attack


#: Target → the attack on it while everybody trains, and whether it takes messages or connections.
ATTACKS: dict[str, tuple[Callable[[Addresses, int, random.Random], int], str]] = {
    "scheduler": (framed, "messages"),
    "scheduler's port": (unframed("scheduler"), "connections"),
    "server's port": (unframed("server"), "connections"),
    "worker's port": (unframed("worker"), "connections"),
}


def measure(targets: list[str], amounts: dict[str, int], chance: random.Random) -> dict[str, Any]:
    """Attack the targets one after the other; return the figures."""
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, Victims(Path(folder)) as cluster:
        early = round(BEFORE * amounts["messages"]) if "scheduler" in targets else 0
        framed({"scheduler": cluster.scheduler}, early, chance, names=False)
        addresses = cluster.begin()
        memory = cluster.memory("scheduler")
        for target in targets:
            attack, kind = ATTACKS[target]
            before = min(cluster.rounds())
            sent = attack(addresses, amounts[kind] - (early if target == "scheduler" else 0), chance)
            sent += early if target == "scheduler" else 0
            ended = cluster.ended()
            figures[target] = {kind: sent, "rounds meanwhile": min(cluster.rounds()) - before, "ended": ended}
            print(
                f"{target}: {sent} {kind}, {figures[target]['rounds meanwhile']} rounds meanwhile, {len(ended)} ended"
            )
            if ended:
                print("\n".join(cluster.log(name.split()[0])[-3000:] for name in ended))
                return {"targets": figures, "ended": len(ended)}
        growth = cluster.memory("scheduler") - memory
        rounds, log = max(cluster.rounds()), len(cluster.log("scheduler"))
        lost = cluster.finish()
    return {
        "targets": figures,
        "ended": 0,
        "rounds": rounds,
        "rounds lost": lost,
        "scheduler's growth": growth,
        "scheduler's log": log,
    }


# --- what MXNet's parser does not survive ---------------------------------------------------------


def _messages_for_mxnet(chance: random.Random) -> Iterator[tuple[str, list[bytes]]]:
    """Yield one well-framed message of each kind."""
    yield "an empty message", [b""]
    yield "noise", [chance.randbytes(50)]
    yield "the end of a process", [Message(messages.TERMINATE).encode(1)]
    yield "a registration", [Message(messages.ADD_NODE, (Node(messages.WORKER, "127.0.0.1", 9, 9),)).encode(1)]
    yield "a barrier's answer", [Message(messages.BARRIER, app=0, customer=0).encode(1)]
    yield "a heartbeat", [Message(messages.HEARTBEAT, (Node(messages.WORKER, "127.0.0.1", 9, 9),)).encode(1)]
    yield "a message without a command", [Message(0).encode(1)]


def show_framed(chance: random.Random) -> None:
    """Print which processes end when servers and workers get well-framed messages.

    Every message is sent to a new cluster.
    """
    for target in ("server", "worker"):
        for kind, frames in _messages_for_mxnet(chance):
            with tempfile.TemporaryDirectory() as folder, Victims(Path(folder)) as cluster:
                host, port = cluster.begin()[target]
                with zmq.Context() as context, context.socket(zmq.DEALER) as outbox:
                    outbox.setsockopt(zmq.LINGER, 5000)
                    outbox.setsockopt(zmq.IDENTITY, b"ps99")
                    outbox.connect(f"tcp://{host}:{port}")
                    outbox.send_multipart(frames)
                time.sleep(2.0)
                before = min(cluster.rounds())
                time.sleep(1.0)
                stalled = min(cluster.rounds()) == before
                ended = ", ".join(cluster.ended()) or ("nobody, but the rounds stall" if stalled else "nobody")
                print(f"{target}: {kind}: ends {ended}", flush=True)


def main() -> int:
    """Attack, print and, if asked to, write the figures.

    Returns 1 if a process ended or a round was lost.
    """
    if sys.argv[1:2] == ["--be-worker"]:
        work(Path(sys.argv[2]))
        return 0
    parser = program.parser(__doc__)
    parser.add_argument("--messages", type=int, default=10_000, help="that are framed (default: %(default)s)")
    parser.add_argument("--connections", type=int, default=2_000, help="to each port (default: %(default)s)")
    parser.add_argument("--targets", nargs="+", choices=ATTACKS, default=list(ATTACKS), help="(default: all)")
    parser.add_argument("--seed", type=int, default=0, help="of chance (default: %(default)s)")
    parser.add_argument("--framed", action="store_true", help="show which messages end MXNet's servers and workers")
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    if arguments.framed:
        show_framed(chance)
        return 0
    if arguments.messages < 1 or arguments.connections < 1:
        parser.error("--messages and --connections must be 1 or more")
    amounts = {"messages": arguments.messages, "connections": arguments.connections}
    figures = measure(arguments.targets, amounts, chance)
    good = not figures["ended"] and not figures["rounds lost"] and figures["scheduler's growth"] <= GROWTH_MOST
    if not figures["ended"]:
        print(
            f"{figures['rounds']} rounds, {figures['rounds lost']} lost; the scheduler's memory grew by "
            f"{figures['scheduler' + chr(39) + 's growth'] / 1e6:.1f} MB, its log to "
            f"{figures['scheduler' + chr(39) + 's log']} bytes"
        )
    write_figures(arguments.json, {"seed": arguments.seed, "cores": os.cpu_count(), **figures})
    return 0 if good else 1


if __name__ == "__main__":
    program.run(main)
