"""A TCP proxy on loopback that stands for a slow network.

Every byte arrives later, by a delay that fluctuates.
"""

import asyncio
import random
import threading


class DelayingProxy:
    """Forwards to a port of this machine; for use in a `with` statement.

    Each direction takes half of the round trip.

    Args:
        port: where the connections go to.
        round_trip: seconds that are added to a question and its answer.
        jitter: the seconds by which a round trip may be shorter or longer than that.
        seed: of the fluctuations.

    Attributes:
        port: to connect to.
    """

    def __init__(self, port: int, round_trip: float, jitter: float = 0.0, seed: int = 0) -> None:
        self._target, self._round_trip, self._jitter = port, round_trip, jitter
        self._random = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(asyncio.start_server(self._connected, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> "DelayingProxy":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        await asyncio.gather(self._forward(reader, upstream[1]), self._forward(upstream[0], writer))

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass everything on, in order and later; the end of the stream, too."""
        late: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        sending = asyncio.create_task(self._send(late, writer))
        try:
            while data := await reader.read(65536):
                await late.put((self._due(), data))
        except OSError:
            pass
        await late.put((self._due(), b""))
        await sending

    def _due(self) -> float:
        change = self._random.uniform(-self._jitter, self._jitter)
        return self._loop.time() + (self._round_trip + change) / 2

    async def _send(self, late: "asyncio.Queue[tuple[float, bytes]]", writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                due, data = await late.get()
                await asyncio.sleep(due - self._loop.time())
                if not data:
                    return
                writer.write(data)
                await writer.drain()
        except OSError:
            return
        finally:
            writer.close()
