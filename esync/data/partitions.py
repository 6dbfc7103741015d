"""Partition samples among workers: pure functions from counts or labels to index arrays.

Every sample is in exactly one share, or in `dropped`.
"""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from ..runtime.errors import ExpectedError, enumeration

#: Word for the speeds of the devices, from a cluster's description, instead of weights.
SPEED = "speed"
#: The values of --partition, for messages.
GRAMMAR = (
    "uniform, contiguous, class, class-sorted (without shuffling), each also with a weight for every worker "
    "(class:4,4,1) or, with a description that has step times, weighted by speed (class:speed; speed is "
    "uniform:speed), or dirichlet:ALPHA with 0 < ALPHA <= 1e6"
)


class PartitionError(ExpectedError, ValueError):
    """Raised when a data set cannot be split as specified among the given number of workers."""


@dataclass(frozen=True, eq=False)
class Partition:
    """An int64 array of sample indices for each worker, and the unassigned indices."""

    shares: list[np.ndarray]
    dropped: np.ndarray


def partition(spec: str, labels: np.ndarray, parts: int, seed: int) -> Partition:
    """Split the samples with these labels into `parts` shares according to `spec` (see GRAMMAR).

    Raises:
        ValueError: `spec` is invalid.
        PartitionError: there are fewer samples than shares, weights for another number of workers, or a
            class of which no worker would have a sample.
    """
    scheme, numbers = parse_partition(spec)
    check_workers(spec, parts)
    refuse_speeds(spec)
    if scheme == "dirichlet":
        return dirichlet(labels, parts, numbers[0], seed)
    if scheme == "uniform" and not numbers:
        return uniform(len(labels), parts, seed)
    _check(len(labels), parts)
    dealt = _shares(ORDERS[scheme](labels, seed), parts, numbers)
    _check_classes(spec, labels, dealt)
    return dealt


def parse_partition(spec: str) -> tuple[str, list[float]]:
    """Return the scheme of a value of --partition, and its alpha or its weights, if it has any.

    Raises:
        ValueError: the text is invalid; the message says what was expected.
    """
    scheme, colon, argument = spec.partition(":")
    if needs_speeds(spec):
        return scheme, []
    numbers = [_number(number) for number in argument.split(",")] if colon else []
    if scheme == "dirichlet" and len(numbers) == 1 and 0 < numbers[0] <= 1e6:
        return scheme, numbers
    if scheme in ORDERS and all(0 < weight < math.inf for weight in numbers):
        return scheme, numbers
    raise ValueError(f"partition {spec!r}: expected {GRAMMAR}")


def check_workers(spec: str, workers: int) -> None:
    """Check that a valid partition with weights has one for each worker.

    Raises:
        PartitionError: it has another number of weights.
    """
    scheme, _, argument = spec.partition(":")
    if scheme in ORDERS and argument not in ("", SPEED) and (weights := len(argument.split(","))) != workers:
        raise PartitionError(f"partition {spec} has weights for {weights} workers, but there are {workers}")


def needs_speeds(spec: str) -> bool:
    """Return whether a partition uses the devices' speeds as weights."""
    scheme, _, argument = spec.partition(":")
    return spec == SPEED or (scheme in ORDERS and argument == SPEED)


def with_speeds(spec: str, step_times: Sequence[float]) -> str:
    """Replace the word `speed` in a partition by each worker's weight; return other partitions unchanged.

    The weight of the slowest device is 1.

    Args:
        spec: a value of --partition.
        step_times: seconds of an iteration of each worker.
    """
    if not needs_speeds(spec):
        return spec
    scheme = "uniform" if spec == SPEED else spec.partition(":")[0]
    return f"{scheme}:{','.join(f'{max(step_times) / seconds:.6g}' for seconds in step_times)}"


def refuse_speeds(spec: str) -> None:
    """Raise PartitionError if a partition needs the devices' speeds, which only a description contains."""
    if needs_speeds(spec):
        example = with_speeds(spec, (1, 1, 4))
        raise PartitionError(
            f"partition {spec} takes the devices' speeds from a cluster's description (esync launch, esync simulate); "
            f"a worker that is started by hand needs them as weights, {example} for instance"
        )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def uniform(samples: int, parts: int, seed: int) -> Partition:
    """Shuffle and split into i.i.d. shares, whose sizes differ by at most one sample.

    Nothing is dropped.
    """
    _check(samples, parts)
    return Partition(np.array_split(_shuffled(samples, seed), parts), _no_samples())


def in_order(samples: int, parts: int) -> Partition:
    """Split into shares that follow one another, the first ones longer by a sample where it does not divide evenly.

    Nothing is dropped.
    """
    _check(samples, parts)
    return Partition(np.array_split(np.arange(samples), parts), _no_samples())


def _shuffled(samples: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).permutation(samples)


def _by_class(labels: np.ndarray, seed: int) -> np.ndarray:
    return np.argsort(labels, kind="stable")


#: Scheme whose shares are not shuffled: batches have one class after the other, as in the public
#: implementation of ESync.
SORTED = "class-sorted"
#: Scheme with weights → the order of the samples with these labels, which is cut into shares
#: (`_shares`). Contiguous shares are those of the public implementation of ESync, sorted labels the
#: non-i.i.d. case of the ESync paper (§5).
ORDERS: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "uniform": lambda labels, seed: _shuffled(len(labels), seed),
    "contiguous": lambda labels, seed: np.arange(len(labels)),
    "class": _by_class,
    SORTED: _by_class,
}


def shuffles(spec: str) -> bool:
    """Return whether a worker's share is shuffled in every epoch."""
    return spec.partition(":")[0] != SORTED


def dirichlet(labels: np.ndarray, parts: int, alpha: float, seed: int) -> Partition:
    """Split each class in proportions drawn from Dirichlet(alpha), which skews the labels.

    See Hsu et al. 2019, arXiv:1909.06335.

    With a large alpha all shares have nearly the same mixture of classes. The smaller it is, the
    fewer workers share a class, down to whole classes on single workers. The sizes of the shares
    differ, and nothing is dropped. An empty share, which is possible for a tiny alpha, gets one sample
    of the largest share, so that every worker can train.
    """
    _check(len(labels), parts)
    rng = np.random.default_rng(seed)
    pieces: list[list[np.ndarray]] = [[] for _ in range(parts)]
    for label in np.unique(labels):
        samples = rng.permutation(np.flatnonzero(labels == label))
        proportions = rng.dirichlet(np.full(parts, alpha))
        cuts = np.rint(np.cumsum(proportions[:-1]) * len(samples)).astype(int)
        for piece, share in zip(np.split(samples, cuts), pieces, strict=True):
            share.append(piece)
    shares = [np.concatenate(share) for share in pieces]
    for empty in [i for i, share in enumerate(shares) if not len(share)]:
        largest = max(range(parts), key=lambda i: len(shares[i]))
        shares[empty], shares[largest] = shares[largest][-1:], shares[largest][:-1]
    return Partition(shares, _no_samples())


def redistribute(dealt: Partition, members: Collection[int], seed: int) -> Partition:
    """Divide the shares of absent workers among the present ones.

    The result depends only on the present ranks and the seed.

    Args:
        dealt: the shares of all workers.
        members: the ranks that are present.
        seed: seed of the order in which samples are divided.

    Returns:
        For each present rank its own share with an equal part of the absent ranks' shares, and for
        each absent rank an empty share. If all ranks are present or all are absent, `dealt`.
    """
    present = sorted(set(members))
    missing = [rank for rank in range(len(dealt.shares)) if rank not in present]
    if not missing or not present:
        return dealt
    parts: dict[int, list[np.ndarray]] = {rank: [dealt.shares[rank]] for rank in present}
    for rank in missing:
        order = np.random.default_rng([seed, rank]).permutation(dealt.shares[rank])
        for member, part in zip(present, np.array_split(order, len(present)), strict=True):
            parts[member].append(part)
    return Partition(
        [np.concatenate(parts[rank]) if rank in parts else _no_samples() for rank in range(len(dealt.shares))],
        dealt.dropped,
    )


def share_of(rank: int, dealt: Partition, members: Collection[int], resting: Collection[int], seed: int) -> np.ndarray:
    """Return a worker's share after the shares of absent and resting workers have been divided.

    Args:
        rank: the worker.
        dealt: the shares of all workers.
        members: the ranks that are present.
        resting: the ranks that are left out. Their shares are divided among the others, too, but they
            keep their own ones to measure their speed.
        seed: see `redistribute`.
    """
    holders = set(members) - set(resting)
    return (redistribute(dealt, holders, seed) if rank in holders else dealt).shares[rank]


def _shares(order: np.ndarray, parts: int, weights: Sequence[float]) -> Partition:
    """Split samples in this order into shares that follow one another.

    Args:
        order: indices of the samples.
        parts: number of shares.
        weights: relative sizes of the shares, as many as there are shares (`check_workers`), such as
            the devices' speeds; every share has at least one sample, and nothing is dropped.
            Without weights, the shares are equal, and the remainder is dropped.
    """
    if not weights:
        size = len(order) // parts
        *shares, dropped = np.split(order, [size * (i + 1) for i in range(parts)])
        return Partition(shares, dropped)
    # One sample each, and the others in proportion.
    ends = np.cumsum(np.divide(weights, max(weights)))
    ends *= (len(order) - parts) / ends[-1]
    cuts = np.rint(ends).astype(int) + np.arange(1, parts + 1)
    return Partition(np.split(order, cuts[:-1]), _no_samples())


def _check_classes(spec: str, labels: np.ndarray, dealt: Partition) -> None:
    """Check that every class is in some share, although the remainder of equal shares is dropped."""
    if not len(dealt.dropped):
        return
    lost = np.setdiff1d(labels[dealt.dropped], labels[np.concatenate(dealt.shares)])
    if not len(lost):
        return
    parts = len(dealt.shares)
    raise PartitionError(
        f"partition {spec} leaves out the remainder of {len(labels)} samples in {parts} equal shares "
        f"({len(dealt.dropped)}), and with it every sample of class {enumeration(lost.tolist(), 5)}: with weights "
        f"nothing is left out, {spec}:{','.join(['1'] * parts) if parts <= 8 else '1,1,…'} for instance"
    )


def _no_samples() -> np.ndarray:
    return np.empty(0, np.int64)


def _check(samples: int, parts: int) -> None:
    if not 1 <= parts <= samples:
        raise PartitionError(
            f"cannot split {samples} samples into {parts} shares: each worker needs one sample or more"
        )
