"""A worker of the tests of stores, over MXNet's key store.

Usage: python -m tests.cluster.store_worker KIND FILE: goes through the checks where KIND is
"checks", else trains, and writes what it holds then to FILE.
"""

import sys

import numpy as np

from esync.exchange.keystores.mxnet_store import MXNetStore
from esync.runtime.environment import Cluster, take_role
from esync.runtime.watchdog import Watchdog
from tests.exchange.store_checks import BUCKET, check_store, train

#: Seconds that a worker waits in vain.
PATIENCE = 30


def main(kind: str, out: str) -> None:
    """Do it."""
    take_role("worker")
    store = MXNetStore(Cluster.from_environment(), Watchdog(), round_timeout=PATIENCE)
    store.bucket_elements = BUCKET
    if kind == "checks":
        check_store(store)
    else:
        np.savez(out, **train(kind, store).vectors)


if __name__ == "__main__":
    main(*sys.argv[1:])
