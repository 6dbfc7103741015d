"""A process manager (PMI-1), by which processes become ranks of MPI without mpiexec.

MPICH's processes find one another through a process manager, a small key-value store with a
barrier and a line-based protocol (PMI-1, "simple PMI", over TCP if PMI_PORT is set). With this one,
`esync.launch` starts, monitors and ends the workers of a collective itself, on all machines. Set
PMI_PORT=host:port and PMI_ID=rank for every process.
"""

import argparse
import asyncio
import contextlib
import secrets
import sys
from collections.abc import Sequence

#: Start of the line that is printed when ranks may connect.
READY = "waiting for ranks on "
#: Maximum lengths of names, keys and values, which MPICH requests.
LONGEST = "kvsname_max=256 keylen_max=256 vallen_max=4096"


class ProcessManager:
    """The key-value store, the barrier, and the connected ranks.

    Args:
        ranks: number of ranks.
    """

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        # MPICH derives the names of its shared memory from this one, so it must differ between jobs
        # on a machine, also from jobs that were killed.
        self._name = f"esync-{secrets.token_hex(8)}"
        self._values: dict[str, str] = {}
        self._at_barrier: list[asyncio.StreamWriter] = []
        self._left = 0
        self.over = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one rank until it disconnects."""
        connected = False
        with contextlib.suppress(ConnectionError, ValueError, KeyError, asyncio.LimitOverrunError):
            while line := await reader.readline():
                words = dict(word.split("=", 1) for word in line.decode().split())
                connected = connected or words["cmd"] == "initack"
                for answer in self._answers(words, writer):
                    writer.write(f"{answer}\n".encode())
                await writer.drain()
        writer.close()
        self._left += connected
        if self._left >= self._ranks:
            self.over.set()

    def _answers(self, words: dict[str, str], writer: asyncio.StreamWriter) -> Sequence[str]:
        command = words["cmd"]
        if command == "initack":
            return (
                "cmd=initack rc=0",
                f"cmd=set size={self._ranks}",
                f"cmd=set rank={words['pmiid']}",
                "cmd=set debug=0",
            )
        if command == "put":
            self._values[words["key"]] = words["value"]
            return ["cmd=put_result rc=0"]
        if command == "get":
            value = self._values.get(words["key"])
            return (
                ("cmd=get_result rc=-1 msg=no_such_key",) if value is None else (f"cmd=get_result rc=0 value={value}",)
            )
        if command == "barrier_in":
            self._at_barrier.append(writer)
            if len(self._at_barrier) == self._ranks:
                for waiting in self._at_barrier:
                    waiting.write(b"cmd=barrier_out rc=0\n")
                self._at_barrier = []
            return []
        answers = {
            "init": "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1",
            "get_maxes": f"cmd=maxes rc=0 {LONGEST}",
            "get_appnum": "cmd=appnum rc=0 appnum=0",
            "get_my_kvsname": f"cmd=my_kvsname rc=0 kvsname={self._name}",
            "get_universe_size": f"cmd=universe_size rc=0 size={self._ranks}",
            "finalize": "cmd=finalize_ack rc=0",
        }
        return [answers.get(command, f"cmd={command}_result rc=-1 msg=not_known_here")]


async def _run(options: argparse.Namespace) -> None:
    manager = ProcessManager(options.ranks)
    server = await asyncio.start_server(manager.serve, options.host, options.port, limit=1 << 20)
    print(f"{READY}{options.host}:{server.sockets[0].getsockname()[1]}", flush=True)
    async with server:
        await manager.over.wait()


def main(words: list[str] | None = None) -> int:
    """Serve until all ranks have connected and disconnected; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m esync.exchange.collectives.process_manager", description=__doc__)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    options = parser.parse_args(words)
    try:
        asyncio.run(_run(options))
    except OSError as error:
        print(
            f"process manager: error: cannot listen on {options.host}:{options.port}: {error.strerror}", file=sys.stderr
        )
        return 1
    except KeyboardInterrupt:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
