"""Agent on a remote host: check it, reserve ports and log folders, and send the logs at the end.

Launch starts `esync.launch.remote_agent` over ssh, once for every remote host of a job. The agent
reads requests, one line of JSON each, and answers each with one line, MARK + JSON. Like
`process_shim`, it ends with its standard input.
"""

import base64
import importlib.util
import json
import socket
import sys
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Any

from ..algorithms.loading import digest as algorithm_digest
from ..algorithms.loading import find
from ..checkpoints.store import refuse_earlier
from ..data import locate
from ..runtime.cores import cores
from ..runtime.environment import is_local_address
from ..runtime.errors import ExpectedError
from ..runtime.files import expanded
from ..runtime.user_code import MissingUserCodeError, remedy
from ..runtime.user_functions import digest as function_digest
from ..version import __version__
from .folders import lock_host_folder
from .heartbeat_pipe import OrderReader
from .resources import Ports
from .user_program import UserProgram

#: Mark in front of every answer, which distinguishes it from the output of a login shell.
MARK = "@agent "
#: Seconds to wait until another host accepts a connection.
REACH = 5.0
#: Files that belong to a device's results.
RESULTS = ("*.txt", "*.json")


class Agent:
    """Answers requests, and holds the ports and folders that it reserves until it is closed."""

    def __init__(self) -> None:
        self._held, self._listening = ExitStack(), ExitStack()

    def close(self) -> None:
        """Release everything."""
        self._listening.close()
        self._held.close()

    def answer(self, request: Any) -> dict[str, Any]:
        """Return the answer of the method `do_…` that the request names, or the error."""
        try:
            return getattr(self, f"do_{request.pop('do')}")(**request)
        except ExpectedError as error:
            return {"error": str(error)}
        except OSError as error:
            return {"error": f"{error.filename or 'failed'}: {error.strerror or error}"}
        except Exception as error:  # an invalid request must not release the job's ports and folders
            return {"error": f"not a request of launch in version {__version__}: {type(error).__name__}: {error}"}

    def do_check(
        self,
        ports: int,
        claims: dict[str, int],
        data: tuple[str, str | None] | None,
        engine: bool,
        address: str,
        algorithm: tuple[str, str] | None,
        program: tuple[list[str], str] | None,
        functions: list[tuple[str, str]],
        checkpoints: tuple[str, int] | None,
    ) -> dict[str, Any]:
        """Check that this host has everything that its processes need, and reserve ports.

        Args:
            ports: how many free ports to reserve.
            claims: name in the description → port to reserve.
            data: name and directory of the data set; None if no worker runs here.
            engine: whether MXNet is needed.
            address: the address at which the other hosts reach this machine; "" if unknown.
            algorithm: name of the user's algorithm, and the digest of its source on the launching
                machine. None for an algorithm of this package, or if no worker runs here.
            program: the user's program with its arguments, and the digest of its script on the
                launching machine. None for the built-in worker, or if no worker runs here.
            functions: the user's functions that the workers call, by name, with the digests of their
                sources on the launching machine.
            checkpoints: directory that must not contain checkpoints of an earlier run, and the
                number of workers. None if it may.
        """
        if address and not is_local_address(address):
            raise ExpectedError(
                f"{address} is not one of that machine's own addresses, so that nothing there can listen at it; give "
                "the one at which the other hosts reach it, and direct ssh elsewhere with ssh_options: [-o, HostName=…]"
            )
        with ExitStack() as reserved:
            port_holder = reserved.enter_context(Ports())
            for owner, port in claims.items():
                port_holder.claim(port, owner)
            free = port_holder.free(ports)
            self._check_installation(data, engine)
            if algorithm is not None:
                self._check_source(*algorithm, lambda text: algorithm_digest(find(text)))
            if program is not None:
                words, theirs = program
                UserProgram.of(words).check(theirs)
            for function in functions:
                self._check_source(*function, function_digest)
            if checkpoints is not None:
                directory, workers = checkpoints
                refuse_earlier(expanded(directory), workers)
            self._held.push(reserved.pop_all())
        return {"ports": free, "cores": cores()}

    @staticmethod
    def _check_installation(data: tuple[str, str | None] | None, engine: bool) -> None:
        """Check that MXNet and the data set exist if they are needed."""
        if engine and importlib.util.find_spec("mxnet") is None:
            raise ExpectedError(f"{sys.executable} has no MXNet; install this package there with an extra: esync[cpu]")
        if data is not None:
            locate(*data)

    @staticmethod
    def _check_source(text: str, theirs: str, digest: Callable[[str], str]) -> None:
        """Check that the user's code exists here, and is the same as on the launching machine."""
        try:
            local_digest = digest(text)
        except MissingUserCodeError as error:
            raise ExpectedError(f"{error}; {remedy(text)}") from None
        if local_digest != theirs:
            raise ExpectedError(f"the source of {text} there differs from this machine's; {remedy(text)}")

    def do_prepare(self, folder: str, overwrite: bool, resume: bool) -> dict[str, Any]:
        """Lock the folder of a host's logs, and move an earlier run's logs aside."""
        self._held.enter_context(lock_host_folder(expanded(folder), overwrite, resume))
        return {}

    def do_listen(self, endpoints: list[tuple[str, str, int]]) -> dict[str, Any]:
        """Listen at these endpoints of this machine until `do_stop_listening`."""
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
        """Connect to endpoints of other hosts; return those that fail, with the reason."""

        def problem(endpoint: tuple[str, str, int]) -> str:
            try:
                socket.create_connection(endpoint[1:], timeout=REACH).close()
            except OSError as error:
                return error.strerror or str(error)
            return ""

        with ThreadPoolExecutor(16) as pool:
            problems = list(pool.map(problem, endpoints))
        return {"failed": [(*endpoint, reason) for endpoint, reason in zip(endpoints, problems, strict=True) if reason]}

    def do_stop_listening(self, endpoints: list[tuple[str, str, int]]) -> dict[str, Any]:
        """Stop listening. The endpoints are ignored: all requests of `reachability` have the same form."""
        self._listening.close()
        return {}

    def do_logs(self, folder: str, nonce_file: str, nonce: str) -> dict[str, Any]:
        """Return the logs below a host's folder (device/file → text), compressed.

        If launch has the same folder on a shared disk, the answer is {"shared": True} instead.

        Args:
            folder: {log_dir}/{network}/{mode}/{host}.
            nonce_file: path of a file relative to {log_dir}/{network}/{mode}.
            nonce: content that this file has if launch and this process share a disk.
        """
        host_folder = expanded(folder)
        nonce_path = host_folder.parent / nonce_file
        if nonce_path.is_file() and nonce_path.read_text() == nonce:
            return {"shared": True}
        texts = {
            f"{device.name}/{path.name}": path.read_text(encoding="utf-8", errors="surrogateescape")
            for device in sorted(host_folder.glob("[!.]*"))
            for kind in RESULTS
            for path in sorted(device.glob(kind))
            if not path.name.startswith(".") and path.is_file()
        }
        return {"logs": base64.b64encode(zlib.compress(json.dumps(texts).encode(), 1)).decode()}


def main(lease: float, make: Callable[[], Agent] = Agent) -> int:
    """Answer requests until launch is gone; return the exit code."""
    reader = OrderReader()
    with closing(make()) as agent:
        while (line := reader.line(lease)) is not None:
            print(MARK + json.dumps(agent.answer(json.loads(line))), flush=True)
    return 0


if __name__ == "__main__":
    from .. import config

    sys.exit(main(config.LAUNCH_LEASE))
