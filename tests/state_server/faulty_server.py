"""A server on loopback that answers each request as the test's script says, faults included."""

import socket
import threading


def answer(body: str) -> bytes:
    """Return an answer like the state server's."""
    return f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


OK = answer('{"ready": false, "lease": 0.0}')


def refusal(status: int, message: str, *headers: str) -> bytes:
    """Return an answer like the state server's refusals."""
    body = f'{{"error": "{message}"}}'
    lines = [f"HTTP/1.1 {status} Refused", f"Content-Length: {len(body)}", *headers, "", body]
    return "\r\n".join(lines).encode()


class FaultyServer:
    """Plays `script`, one entry per request, and the last one from then on.

    An entry is the bytes to answer; None to close the connection without an answer; or a
    threading.Event to stay silent until it is set.
    """

    def __init__(self, *script: bytes | threading.Event | None) -> None:
        self._script = list(script)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.requests: list[str] = []
        self.connections = 0

    def __enter__(self) -> "FaultyServer":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            while first := stream.readline():
                headers = dict(iter(lambda: tuple(stream.readline().decode().strip().split(": ", 1)), ("",)))
                body = stream.read(int(headers.get("Content-Length", 0)))
                self.requests.append(f"{first.decode().split()[1]} {body.decode()}")
                entry = self._script.pop(0) if len(self._script) > 1 else self._script[0]
                if entry is None:
                    return
                if isinstance(entry, threading.Event):
                    entry.wait(30)
                    return
                connection.sendall(entry)
