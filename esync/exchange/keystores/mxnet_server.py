"""The parameter server on MXNet's key store: ps-lite's pushes and commands become calls of `ParameterServer`.

ps-lite runs asynchronously here, with an updater of ours: it never sums, counts or waits by itself. MXNet calls the
controller (commands) and the updater (pushes) one at a time on the main thread, and answers pulls from the stored
arrays in between, so no pull sees a half-written bucket.
"""

import functools
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from ...engine import mx
from ...liveness.membership import Membership
from ...memory import host_view
from ...program import leave
from ..protocol.endpoint import Endpoint
from ..protocol.greeting import Greeting, decode
from ..protocol.inbox import Memory
from ..protocol.parameter_server import ParameterServer

log = logging.getLogger(__name__)

#: Seconds between the last worker's goodbye and the end of the process, for the answer to reach it.
FAREWELL = 1.0


class KVStoreServer(mx.kvstore.kvstore_server.KVStoreServer):
    """Runs one parameter server until every worker has left.

    Args:
        kvstore: made with mx.kv.create("dist_async") in a process whose DMLC_ROLE is server.
        memory: where payloads are staged and added up.
    """

    def __init__(self, kvstore: Any, memory: Memory) -> None:
        super().__init__(kvstore)
        self._memory = memory
        self._ending = False

    def _controller(self) -> Callable[[int, bytes, Any], None]:
        """MXNet's hook for commands; `run` installs it."""
        return _or_exit(lambda head, body, _: self._on_command(body))

    @functools.cached_property
    def _endpoint(self) -> Endpoint:
        """The protocol's end, made with the first command: MXNet knows this server's rank by then."""
        self.kvstore._set_updater(_or_exit(self._on_push))
        return Endpoint(self.kvstore.rank, time.monotonic, self._memory, membership)

    def _on_command(self, body: bytes) -> None:
        command = decode(body)
        self._endpoint.command(command)
        if isinstance(command, Greeting):
            log.info("worker %d of %d is here", command.rank, command.slots)

    def _on_push(self, key: int | str, received: Any, stored: Any) -> None:
        self._endpoint.push(int(key), host_view(received), host_view(stored))
        ledger = self._endpoint.server.ledger
        if ledger.deserted and not self._ending:
            self._ending = True
            code = 1 if ledger.failure else 0
            log.info("all workers have left%s", f": {ledger.failure}" if code else "")
            threading.Timer(FAREWELL, leave, [code]).start()


def membership(server: ParameterServer, lease: float) -> Membership:
    """Look after the workers of a server by their connections, and by what is heard of them."""
    return Membership(server, lease, time.monotonic)


def _or_exit(call: Callable[..., None]) -> Callable[..., None]:
    """Let an error in a callback end the process: MXNet would carry on, and every worker would wait for ever."""

    def guarded(*arguments: Any) -> None:
        try:
            call(*arguments)
        except Exception:
            log.exception("the parameter server failed")
            leave(1)

    return guarded
