"""Allreduce schedules against NumPy's sum, for many numbers of ranks and values."""

import random

import numpy as np
import pytest

from esync.exchange.collectives import SCHEDULES
from esync.exchange.collectives.allreduce import ReceiveBuffers, allreduce
from esync.exchange.collectives.memory import MemoryNetwork, run_round_robin
from esync.exchange.collectives.transport import CoroutinePool

SIZES = (0, 1, 2, 7, 64, 1001)


def summed(name: str, values: list[np.ndarray], buffers: ReceiveBuffers) -> list[np.ndarray]:
    """What each rank holds after the collective."""
    network = MemoryNetwork(len(values))
    results = [value.copy() for value in values]
    coroutines = [
        allreduce(SCHEDULES[name], result, network.transports[rank], 0, buffers) for rank, result in enumerate(results)
    ]
    random.Random(len(values)).shuffle(coroutines)
    run_round_robin(coroutines)
    assert not any(sent or received for sent, received in network.lines.values())
    return results


@pytest.mark.parametrize("ranks", range(1, 10))
@pytest.mark.parametrize("name", SCHEDULES)
def test_allreduce_equals_numpy_sum_with_the_same_bits_on_all_ranks(name: str, ranks: int) -> None:
    generator, dtype = np.random.default_rng(ranks), (np.float32, np.float16)[ranks % 2]
    for size in SIZES:
        values = [generator.standard_normal(size).astype(dtype) for _ in range(ranks)]
        results = summed(name, values, ReceiveBuffers())
        tolerance = 8 * ranks * float(np.finfo(dtype).eps)
        np.testing.assert_allclose(results[0], np.sum(np.float64(values), axis=0), rtol=tolerance, atol=tolerance)
        assert len({result.tobytes() for result in results}) == 1


@pytest.mark.parametrize("ranks", [2, 3, 6, 8, 13, 32])
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedule_sends_the_published_number_of_bytes_and_steps(name: str, ranks: int) -> None:
    values = 32 * 3 * 13
    steps = [SCHEDULES[name](rank, ranks, values) for rank in range(ranks)]
    sent = [sum(move.size for step in schedule for move in step.sends) for schedule in steps]
    received = [sum(move.size for step in schedule for move in step.receives) for schedule in steps]
    assert sum(sent) == sum(received)
    minimum = 2 * (ranks - 1) / ranks * values
    power = ranks & (ranks - 1) == 0
    if name == "ring":
        assert max(sent) <= minimum + 2 * ranks
        assert max(map(len, steps)) == 2 * (ranks - 1)
    elif power:  # as few bytes, far fewer steps
        assert max(sent) <= minimum + 2 * ranks
        assert max(map(len, steps)) == 2 * (ranks.bit_length() - 1)
    else:
        assert max(sent) <= 4 * values
        assert max(map(len, steps)) <= 2 * ranks.bit_length() + 3


def test_allreduce_with_mismatched_schedules_is_refused() -> None:
    network, buffers = MemoryNetwork(2), ReceiveBuffers()
    values = np.ones(4, np.float32)
    coroutines = [allreduce(SCHEDULES["ring"], values, network.transports[0], 0, buffers)]
    with pytest.raises(RuntimeError, match="wait for one another"):
        run_round_robin(coroutines)
    coroutines = [
        allreduce(SCHEDULES["ring"], np.ones(3 + rank, np.float32), network.transports[rank], 1, buffers)
        for rank in range(2)
    ]
    with pytest.raises(ValueError, match="values sent"):
        run_round_robin(coroutines)


def test_receive_buffers_are_reused_across_sizes_and_types() -> None:
    buffers, generator = ReceiveBuffers(), np.random.default_rng(0)
    for size, dtype in ((5, np.float16), (1001, np.float32), (3, np.float16), (64, np.float32), (1001, np.float16)):
        values = [generator.standard_normal(size).astype(dtype) for _ in range(3)]
        result, *_ = summed("butterfly", values, buffers)
        np.testing.assert_allclose(result, np.sum(np.float64(values), axis=0), rtol=0.01, atol=0.01)
    buffer = buffers.acquire(100)
    address = buffer.ctypes.data
    buffers.release(buffer)
    assert buffers.acquire(60).ctypes.data == address


def test_allreduce_counts_every_received_transfer_as_progress() -> None:
    """Backoff grow while nothing happens, and a large bucket takes long."""
    network, buffers = MemoryNetwork(2), ReceiveBuffers()
    ranks = [
        CoroutinePool([allreduce(SCHEDULES["ring"], np.ones(4, np.float32), transport, 0, buffers)])
        for transport in network.transports
    ]
    assert ranks[0].advance()  # has begun to wait
    assert not ranks[0].advance()  # the other one has not come
    assert ranks[1].advance()
    assert ranks[0].advance()  # the other one's values have come
    assert not (ranks[0].over and ranks[1].over)
