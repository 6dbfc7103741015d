"""A worker's process with connections that do not belong to the cluster."""

import socket
import threading
from pathlib import Path

from .harness import SCRIPTS, Cluster


def test_connection_of_the_program_itself_may_end(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as tracker, Cluster(tmp_path, workers=1) as cluster:

        def track() -> None:
            connection, _ = tracker.accept()
            with connection:
                connection.recv(1)

        threading.Thread(target=track, daemon=True).start()
        cluster.start_worker(0, [str(SCRIPTS / "connected_worker.py"), str(tracker.getsockname()[1])])
        cluster.finish()
        assert "steps" in cluster.output("worker-0")
