"""A real HTTP server with a data set's files that can be told to misbehave."""

import gzip
import threading
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
from tiny_dataset import CONTENTS, idx_bytes


class Mirror(ThreadingHTTPServer):
    """Serves the tiny data set.

    Each request takes the next behaviour planned for its file, "whole" if none is.

    A behaviour is a number (answers with that HTTP status) or one of whole, truncated, closed
    (truncated, and no length was announced), corrupt, wrong (right format, other content), huge,
    stall (sends half and then nothing).
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.plans = defaultdict(list)
        self.requests = []
        self.stalled = threading.Event()  # set once a request has been left hanging
        self.released = threading.Event()  # ends all stalls

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/files"

    def __enter__(self):
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.released.set()
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        name = self.path.removeprefix("/files/")
        self.server.requests.append(name)
        plan = self.server.plans[name]
        behaviour = plan.pop(0) if plan else "whole"
        if isinstance(behaviour, int):
            self.send_error(behaviour)
            return
        content = CONTENTS[name]
        body = gzip.compress(content)
        if behaviour == "corrupt":
            body = body[:200] + bytes(byte ^ 0xFF for byte in body[200:])
        elif behaviour == "wrong":
            body = gzip.compress(idx_bytes(np.frombuffer(content[8:], np.uint8) ^ 1))
        elif behaviour == "huge":
            body = bytes(len(content) + (1 << 20))
        self.send_response(200)
        if behaviour != "closed":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if behaviour in ("truncated", "closed", "stall"):
            body = body[: len(body) // 2]
        try:
            self.wfile.write(body)
            if behaviour == "stall":
                self.server.stalled.set()
                self.server.released.wait()
        except ConnectionError:
            pass  # the other side had seen enough

    def log_message(self, *_):
        pass
