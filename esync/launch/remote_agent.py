"""Agent on a remote host: checks it, reserves ports and log folders, and sends the result logs at the end.

`esync.launch.remote_agent` is what ssh starts there, once for every host of a job. It reads
requests, one line of JSON each, answers each with one line, MARK + JSON, and ends with its standard
input, as `process_shim` does.
"""

import base64
import importlib.util
import json
import os
import socket
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Any

from ..algorithms.loading import MissingAlgorithmError, digest, find
from ..checkpoints.store import refuse_earlier
from ..data import find_data_dir
from ..runtime.environment import is_own
from ..runtime.errors import ExpectedError
from ..runtime.files import expanded
from ..version import __version__
from .folders import HostFolder
from .heartbeat_pipe import OrderReader
from .resources import Ports

#: In front of every answer: a login shell may print, too.
MARK = "@agent "
#: Seconds that another host has to answer.
REACH = 5.0
#: Files that belong to a device's results.
RESULTS = ("*.txt", "*.json")
#: That one request may take.
MOST_PORTS = 1000


class Agent:
    """Answers requests; the ports and folders that it has taken are the job's until it is closed."""

    def __init__(self) -> None:
        self._held, self._listening = ExitStack(), ExitStack()

    def close(self) -> None:
        """Let go of everything."""
        self._listening.close()
        self._held.close()

    def answer_line(self, line: bytes) -> dict[str, Any]:
        """Return the answer to a line of JSON."""
        try:
            request = json.loads(line)
        except (ValueError, RecursionError) as error:
            return {"error": f"not a request of launch: {error}"}
        return self.answer(request)

    def answer(self, request: Any) -> dict[str, Any]:
        """Return the answer to a request: its method's, or why there is none."""
        try:
            return getattr(self, f"do_{request.pop('do')}")(**request)
        except ExpectedError as error:
            return {"error": str(error)}
        except OSError as error:
            return {"error": f"{error.filename or 'failed'}: {error.strerror or error}"}
        except Exception as error:  # whatever comes over the line, the ports and folders of the job stay taken
            return {"error": f"not a request of launch in version {__version__}: {type(error).__name__}: {error}"}

    def do_check(
        self,
        ports: int,
        claims: dict[str, int],
        data: tuple[str | None, str] | None,
        engine: bool,
        address: str,
        algorithm: tuple[str, str] | None,
        checkpoints: tuple[str, int] | None,
    ) -> dict[str, Any]:
        """Look whether everything is there, and take ports.

        Args:
            ports: how many free ones are wanted.
            claims: certain ports, by the names that they have in the description.
            data: directory and name of the data set, where workers are to run.
            engine: whether MXNet is needed.
            address: under which the other hosts are to reach this machine; "" where that is not
                known.
            algorithm: what was typed, and the digest of its source where launch runs; None: one of
                this package, or no workers are to run here.
            checkpoints: directory in which there must not be any of an earlier run, and number of
                workers.
        """
        if address and not is_own(address):
            raise ExpectedError(
                f"{address} is none of that machine's own addresses, so that nothing there can listen at it; give the "
                "one under which the other hosts reach it, and lead ssh elsewhere with ssh_options: [-o, HostName=…]"
            )
        if ports > MOST_PORTS:
            raise ExpectedError(f"{ports} ports are wanted; {MOST_PORTS} is the limit")
        with ExitStack() as taken:
            held = taken.enter_context(Ports())
            for owner, port in claims.items():
                held.claim(port, owner)
            free = held.free(ports)
            self._check_installation(data, engine)
            if algorithm is not None:
                self._check_algorithm(*algorithm)
            if checkpoints is not None:
                directory, workers = checkpoints
                refuse_earlier(expanded(directory), workers)
            self._held.push(taken.pop_all())
        return {"ports": free, "cores": len(os.sched_getaffinity(0))}

    @staticmethod
    def _check_installation(data: tuple[str | None, str] | None, engine: bool) -> None:
        """See whether MXNet and the data set are there, where they are needed."""
        if engine and importlib.util.find_spec("mxnet") is None:
            raise ExpectedError(f"{sys.executable} has no MXNet; install this package there with an extra: esync[cpu]")
        if data is not None:
            find_data_dir(*data)

    @staticmethod
    def _check_algorithm(text: str, theirs: str) -> None:
        """See whether an algorithm of another package can be imported here, and is the launching machine's."""
        place = text.rpartition(":")[0]
        if place.endswith(".py"):
            remedy = f"copy {place} there; a relative path begins in the host's workdir, {os.getcwd()}"
        else:
            remedy = f"install the same version of its package for {sys.executable} there, or copy it to {os.getcwd()}"
        try:
            mine = digest(find(text))
        except MissingAlgorithmError as error:
            raise ExpectedError(f"{error}; {remedy}") from None
        if mine != theirs:
            raise ExpectedError(f"the source of {text} there differs from this machine's; {remedy}")

    def do_prepare(self, folder: str, overwrite: bool, resume: bool) -> dict[str, Any]:
        """Take the folder of a host's logs: an earlier run's must not pass for this one's."""
        self._held.enter_context(closing(HostFolder(expanded(folder), overwrite, resume)))
        return {}

    def do_listen(self, endpoints: list[tuple[str, str, int]]) -> dict[str, Any]:
        """Listen at addresses and ports of this machine, until `do_hush`."""
        for _, address, port in endpoints:
            listener = self._listening.enter_context(socket.socket())
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((address, port))
                listener.listen(64)
            except OSError as error:
                raise ExpectedError(f"nothing can listen at {address}:{port}: {error.strerror}") from None
        return {}

    def do_reach(self, endpoints: list[tuple[str, str, int]]) -> dict[str, Any]:
        """Connect to addresses and ports of other hosts; those that do not answer, with the reason."""

        def problem(endpoint: tuple[str, str, int]) -> str:
            try:
                socket.create_connection(endpoint[1:], timeout=REACH).close()
            except OSError as error:
                return error.strerror or str(error)
            return ""

        with ThreadPoolExecutor(16) as pool:
            problems = list(pool.map(problem, endpoints))
        return {"failed": [(*each, why) for each, why in zip(endpoints, problems, strict=True) if why]}

    def do_hush(self, endpoints: list[tuple[str, str, int]]) -> dict[str, Any]:
        """Listen no more."""
        self._listening.close()
        return {}

    def do_logs(self, folder: str, nonce_file: str, nonce: str) -> dict[str, Any]:
        """The result logs below a host's folder, packed: device/file → text; nothing where launch has that folder.

        Args:
            folder: {log_dir}/{network}/{mode}/{host}.
            nonce_file: name of a file in the folder above, and …
            nonce: … what it holds where launch and this process share a disk.
        """
        place = expanded(folder)
        mine = place.parent / nonce_file
        if mine.is_file() and mine.read_text() == nonce:
            return {"shared": True}
        texts = {
            f"{device.name}/{path.name}": path.read_text()
            for device in sorted(place.glob("[!.]*"))
            for kind in RESULTS
            for path in sorted(device.glob(kind))
            if not path.name.startswith(".") and path.is_file()
        }
        return {"logs": base64.b64encode(zlib.compress(json.dumps(texts).encode(), 1)).decode()}


def main(lease: float) -> int:
    """Answer until launch has gone."""
    reader = OrderReader()
    with closing(Agent()) as agent:
        while (line := reader.line(lease)) is not None:
            print(MARK + json.dumps(agent.answer_line(line)), flush=True)
    return 0


if __name__ == "__main__":
    from .. import config

    sys.exit(main(config.LAUNCH_LEASE))
