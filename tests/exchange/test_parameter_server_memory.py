"""The memory that a parameter server and its key store need."""

import tracemalloc

import numpy as np

from esync.exchange import WEIGHTS

from ..support.memory_servers import MemoryServers, Push


def test_server_memory_is_at_most_one_model_per_worker():
    """Measures the bound p·M in the docstring of parameter_server, over many rounds and deaths."""
    MemoryServers(1, [0.0]).send(0, 1, [1.0])  # what is loaded or compiled once does not count
    workers, size, bucket = 4, 200_000, 20_000
    cluster = MemoryServers(workers, np.zeros(size), bucket_elements=bucket)
    values = np.ones(size, np.float32)

    def round_(sequence: int) -> list[tuple[int | None, list[Push]]]:
        """(nonce of a new rank 0 that comes before them, pushes)"""
        # Rank 0 dies before its last bucket.
        steps: list[tuple[int | None, list[Push]]] = [
            (2 * sequence, cluster.buckets(0, sequence, values, nonce=2 * sequence)[:-1])
        ]
        nonces = {rank: 2 * sequence + 1 if rank == 0 else 1000 + rank for rank in range(workers)}
        payloads = [cluster.buckets(rank, sequence, values, nonce=nonces[rank]) for rank in range(workers)]
        steps.append((nonces[0], [push for together in zip(*payloads, strict=True) for push in together]))
        for rank in range(workers):
            steps.append((None, cluster.commits(rank, sequence, vectors=[WEIGHTS], nonce=nonces[rank])))
        return steps

    steps = [step for sequence in range(1, 5) for step in round_(sequence)]
    tracemalloc.start()
    try:
        for nonce, pushes in steps:
            if nonce is not None:
                cluster.join(0, nonce)
            cluster.deliver(*pushes)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert cluster.status()["round"] == 4
    assert workers * 4 * size <= peak <= workers * 4 * size + 4 * (4 * bucket)  # and the rule's work on one bucket


def test_payloads_are_added_as_soon_as_those_of_smaller_ranks_have_been() -> None:
    cluster = MemoryServers(4, np.zeros(100), bucket_elements=100)
    staged = []
    for rank in (2, 0, 1):
        cluster.send(rank, 1, np.ones(100))
        staged.append(cluster.memories[0].staged_bytes)
    assert staged == [400, 800, 400]
