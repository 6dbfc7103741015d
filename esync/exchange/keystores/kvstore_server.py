"""The parameter server on MXNet's key store: ps-lite's pushes and commands become calls of `ParameterServer`.

ps-lite runs asynchronously here, with an updater of ours: it never sums, counts or waits by itself. MXNet calls the
controller (commands) and the updater (pushes) one at a time on the main thread, and answers pulls from the stored
arrays in between, so no pull sees a half-written bucket.
"""

import logging
import math
import threading
import time
from collections.abc import Callable
from typing import Any

from ...engine import mx
from ...liveness.membership import Membership
from ...memory import host_view
from ...program import leave
from ..protocol.greeting import Greeting, Resumed
from ..protocol.inbox import Memory
from ..protocol.parameter_server import ParameterServer
from ..protocol.serving import serve

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
        self._greeted: Greeting | None = None
        self._server: ParameterServer | None = None
        self._notices: dict[int, str] = {}
        self._ending = False
        self._membership: Membership | None = None

    def _controller(self) -> Callable[[int, bytes, Any], None]:
        """MXNet's hook for commands; `run` installs it."""
        return _or_exit(lambda head, body, _: self._on_command(body))

    def _on_command(self, body: bytes) -> None:
        resumed = Resumed.decode(body)
        if resumed is None:
            self._on_greeting(Greeting.decode(body))
        elif self._server is not None:
            self._server.resume(resumed.rank, resumed.nonce, resumed.exchanges, resumed.books)

    def _on_greeting(self, greeting: Greeting) -> None:
        if self._server is None or self._greeted is None:
            self._server = serve(greeting, self.kvstore.rank, time.monotonic, self._memory)
            self._greeted = greeting
            if greeting.lease < math.inf:
                self._membership = Membership(self._server, greeting.lease, time.monotonic)
            self.kvstore._set_updater(_or_exit(self._on_push))
        if greeting.aside:
            self._server.drop(greeting.rank)
            return
        self._server.join(greeting.rank, greeting.nonce, greeting.offers)
        if self._membership is not None:
            self._membership.joined(greeting.rank, greeting.address)
        differences = self._greeted.differences(greeting)
        if differences:
            self._server.ledger.abort(
                f"worker {greeting.rank} does not match worker {self._greeted.rank}: {'; '.join(differences)}"
            )
        self._notices[greeting.rank] = notice = self._greeted.notice(greeting)
        if notice:
            log.warning("%s", notice)
        self._server.ledger.notice = next(filter(None, self._notices.values()), "")  # there is room for one
        log.info("worker %d of %d is here", greeting.rank, greeting.slots)

    def _on_push(self, key: int | str, received: Any, stored: Any) -> None:
        server = self._server
        if server is None:
            raise RuntimeError("a push came before the first greeting")
        server.push(int(key), host_view(received), host_view(stored))
        if self._membership is not None:
            self._membership.look()
        if server.ledger.deserted and not self._ending:
            self._ending = True
            code = 1 if server.ledger.failure else 0
            log.info("all workers have left%s", f": {server.ledger.failure}" if code else "")
            threading.Timer(FAREWELL, leave, [code]).start()


def _or_exit(call: Callable[..., None]) -> Callable[..., None]:
    """Let an error in a callback end the process: MXNet would carry on, and every worker would wait for ever."""

    def guarded(*arguments: Any) -> None:
        try:
            call(*arguments)
        except Exception:
            log.exception("the parameter server failed")
            leave(1)

    return guarded
