"""What the benchmarks' own small clusters have in common: everything on this machine, at a free port."""

import os
import socket


def environment(workers: int, servers: int = 1) -> dict[str, str]:
    """The variables by which the processes of one cluster find each other; one thread for each."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return {
        **{name: value for name, value in os.environ.items() if name != "DMLC_ROLE"},
        "DMLC_PS_ROOT_URI": "127.0.0.1",
        "DMLC_PS_ROOT_PORT": str(port),
        "DMLC_NODE_HOST": "127.0.0.1",
        "DMLC_NUM_WORKER": str(workers),
        "DMLC_NUM_SERVER": str(servers),
        "OMP_NUM_THREADS": "1",
    }
